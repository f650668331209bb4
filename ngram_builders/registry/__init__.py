"""One person's tables: where they lie, and which files they serve."""
