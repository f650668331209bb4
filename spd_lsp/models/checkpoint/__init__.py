"""A model's files: found, read and checked before anything is built from them."""
