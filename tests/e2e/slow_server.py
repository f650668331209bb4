"""The server with its real model, but with slow forward passes, and a record of its completions.

In: the seconds of a pass, the file of the record and the server's arguments. Out: for each completion that was not
stopped, the line before its cursor.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from spd_lsp.cli import main
from spd_lsp.completion.completer import Completer

_complete = Completer.complete


def run(pass_seconds: float, record: Path, arguments: list[str]) -> None:
    """Serve until the editor leaves."""

    def complete(self: Completer, source: str, cursor: int, *rest: Any, check: Any, **more: Any) -> Any:
        def slow_check() -> None:  # before each pass
            check()
            time.sleep(pass_seconds)
            check()

        result = _complete(self, source, cursor, *rest, check=slow_check, **more)
        with record.open("a") as file:
            file.write(source[:cursor].rpartition("\n")[2] + "\n")
        return result

    Completer.complete = complete  # type: ignore[method-assign]
    main(arguments)


if __name__ == "__main__":
    run(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
