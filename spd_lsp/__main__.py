"""Run the command line: what `spd-lsp` and `python -m spd_lsp` call."""

from spd_lsp.surroundings import leave_out_working_folder

leave_out_working_folder()

from spd_lsp.cli import main  # noqa: E402 - whatever is imported before could be the working folder's

if __name__ == "__main__":
    main()
