"""Output of commands and logs: nothing in it controls a terminal, and no log holds code."""
