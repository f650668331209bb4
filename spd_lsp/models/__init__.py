"""Language models: ids and embeddings in, logits out. `load.py` opens one, `base.py` says what every engine does.

`checkpoint/` finds a model's files and checks them before anything is built from them. `llama/` runs GGUF files,
the starter among them; `torch/` runs Hugging Face folders in transformers, on a CPU or a GPU.
"""
