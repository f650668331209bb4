"""Ways to mix n-gram counts with a model, compared by likelihood and by what they complete."""
