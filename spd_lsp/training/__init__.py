"""The recipe of the starter model, step by step: corpus, tokenizer, training, export."""
