"""A model's files: found, described, measured and judged before anything of them is made."""
