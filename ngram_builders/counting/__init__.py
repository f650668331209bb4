"""Documents to sorted runs of n-gram counts."""
