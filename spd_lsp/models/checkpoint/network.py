"""Whether this process may reach the network through Hugging Face's library: only while a named model is fetched.

Everything that asks there, transformers and the kernels it might load included, goes through one switch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_one_at_a_time = threading.RLock()
_closed_here = False  # what a person closed, by HF_HUB_OFFLINE, stays closed


def close_network() -> None:
    """Let nothing be fetched from now on."""
    global _closed_here
    from huggingface_hub import constants

    with _one_at_a_time:
        _closed_here = _closed_here or not constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True


@contextmanager
def opened_network() -> Iterator[None]:
    """Let something be fetched meanwhile, by one thread at a time."""
    from huggingface_hub import constants

    with _one_at_a_time:
        before = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = before and not _closed_here
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = before
