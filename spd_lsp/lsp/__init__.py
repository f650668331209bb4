"""The language server: an editor's requests in, completion items out."""
