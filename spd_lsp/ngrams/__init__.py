"""N-gram probabilities of the next token, from tables and open files."""
