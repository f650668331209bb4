"""What programs import: completions of code, and Superposed Decoding as a way of transformers' `generate`."""
