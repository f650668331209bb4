"""How a language model is run: `runner.py` says what every engine does, and which prompts stay in memory.

The fast one on CPUs: `conversion.py` lays out a network's weights for `numpy_decoder.py`, whose products are in
`linears.py` and whose past is in `keys_values.py`; `numpy_runner.py` makes it an engine.
`spd_lsp/model.py` holds the reference, which runs any model, and chooses.
"""
