"""How good next edits are, on the history of repositories."""
