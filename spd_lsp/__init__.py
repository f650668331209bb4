"""spd-lsp: several local code completions for one model pass per token."""

import os

__version__ = "0.1.0"

# Both are read when numpy and torch are first imported. Products of small models are over before more threads have
# begun, and threads that wait by turning take the cores from the editor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
