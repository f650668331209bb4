from ngram_builders.errors import UserError as UserError
from spd_lsp.api.completer import Completer as Completer
from spd_lsp.api.completer import Completion as Completion
from spd_lsp.api.completer import Completions as Completions
from spd_lsp.api.completer import load as load
from spd_lsp.api.generate import superposed_decoding as superposed_decoding

__version__: str
__all__ = ["Completer", "Completion", "Completions", "UserError", "__version__", "load", "superposed_decoding"]
