"""Language models: ids and embeddings in, logits out. `load.py` opens one, `base.py` says what every engine does.

`checkpoint/` finds a model's files and checks them before anything is built from them. `numpy/` is the fast engine
on CPUs, `torch/` the one on GPUs; `transformers_engine.py` runs any other model and is the reference for both.
`backend_selection.py` chooses among them by `self_test.py`.
"""
