"""The entry point of `spd-lsp` and `python -m spd_lsp`."""

from spd_lsp.safe_path import ignore_working_folder

ignore_working_folder()

from spd_lsp.cli import main  # noqa: E402 - imported before, it could be the working folder's

if __name__ == "__main__":
    main()
