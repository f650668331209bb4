"""matplotlib as a person has set it up: without the `matplotlibrc` of the working folder, which it would read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ngram_builders.programs import AWAY


def import_matplotlib() -> Any:
    """The package; ImportError where it is not installed."""
    here = Path.cwd()
    os.chdir(AWAY)
    try:
        import matplotlib
    finally:
        os.chdir(here)
    return matplotlib
