"""N-grams of every order from texts and their suffix array: build, write, open, search, count."""
