"""Indexing of the folders that an editor opens."""
