"""The recipe that made the starter model, step by step: corpus, tokenizer, train, export, ngrams."""
