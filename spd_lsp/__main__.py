"""Run the command line: `python -m spd_lsp`."""

from spd_lsp.cli import main

if __name__ == "__main__":
    main()
