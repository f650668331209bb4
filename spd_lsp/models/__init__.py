"""Language models: ids and embeddings in, logits out. `load.py` opens one, `base.py` says what every engine does.

`checkpoint/` finds and judges a model's files before anything is made of them. `numpy/` is the fast
engine on CPUs, `torch/` the one on GPUs; `transformers_engine.py` runs any other model and is what both are
measured by. `backend_selection.py` chooses among them by `self_test.py`.
"""
