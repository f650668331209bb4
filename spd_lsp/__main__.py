"""The entry point of `spd-lsp` and `python -m spd_lsp`: sets variables before other modules are imported."""

import os

# numpy and torch read both when they are first imported. Products of small models are over before more threads
# have begun, and threads that wait by turning take the cores from the editor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("PYTHONSAFEPATH", "1")  # a pool's processes import nothing from the working folder either

from spd_lsp.cli import main

if __name__ == "__main__":
    main()
