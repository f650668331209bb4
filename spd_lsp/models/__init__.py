"""Language models: ids and embeddings in, logits out."""
