"""The table file: written, opened, queried."""
