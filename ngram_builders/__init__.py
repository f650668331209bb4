"""N-gram tables of tokenized code: count, write, open, look up. Numbers in, numbers out; knows no model."""
