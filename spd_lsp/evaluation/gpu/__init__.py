"""What a GPU gives: `python -m spd_lsp.evaluation.gpu`. Random weights serve, as speed does not depend on them.

Written where no GPU was at hand: its tests run it at a tiny size on a CPU.
"""
