"""Compare decoders on held-out examples: `spd-lsp eval quality`."""
