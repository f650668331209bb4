"""N-gram tables of tokenised code: count, write, open, look up. Numbers in, numbers out; knows no model."""
