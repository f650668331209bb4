"""Language models: ids and embeddings in, logits out. `load.py` opens one, `base.py` is the interface of engines.

`hub.py` and `stored.py` find a model's files. `llama/` runs GGUF files, the bundled model among them; `torch/`
runs Hugging Face folders in transformers, on a CPU or a GPU. `model_server.py` asks a model in another process.
"""
