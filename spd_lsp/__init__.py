"""spd-lsp: several local code completions for one model pass per token."""

__version__ = "0.1.0"
