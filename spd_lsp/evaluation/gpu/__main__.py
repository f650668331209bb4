"""`python -m spd_lsp.evaluation.gpu --shape 1.5b --out FILE.md --out FILE.json`."""

from spd_lsp.evaluation.gpu.command import gpu

gpu()
