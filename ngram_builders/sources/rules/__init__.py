"""Lines of ignore and attribute files, and a user's globs -> which paths are skipped."""
