"""The experiments of the Superposed Decoding paper, on source code, for any model."""
