"""GGUF models, computed by llama.cpp."""
