"""Hugging Face folders, computed by transformers."""
