"""Superposed Decoding and what it is compared with: a prompt's ids in, k drafts out."""
