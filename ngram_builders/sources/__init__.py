"""Which files of a repository are counted, and their text."""
