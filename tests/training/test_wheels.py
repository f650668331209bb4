"""A wheel is described by its own metadata."""

from __future__ import annotations

import email.message
import hashlib
from pathlib import Path

from spd_lsp.training.corpus.wheels import describe_wheel, licence_of
from tests.training.archives import CODE, make_wheel


def test_a_licence_is_read_from_expression_then_classifiers_then_text() -> None:
    metadata = email.message.Message()
    metadata["License"] = "Apache License\nVersion 2.0"
    assert licence_of(metadata) == "Apache License"
    metadata["Classifier"] = "License :: OSI Approved :: BSD License"
    assert licence_of(metadata) == "BSD License"
    metadata["License-Expression"] = "MIT"
    assert licence_of(metadata) == "MIT"


def test_a_licence_that_only_its_file_names_is_read_from_there(tmp_path: Path) -> None:
    granted = {"quiet-1.0.dist-info/licenses/LICENSE": "Permission is hereby granted,\nfree of charge, to"}
    assert describe_wheel(make_wheel(tmp_path, "quiet", granted, "")).licence == "MIT (by its LICENSE file)"


def test_a_wheel_is_described_by_its_own_metadata_and_checksum(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "kept", {"kept/a.py": CODE})
    source = describe_wheel(wheel)
    assert (source.name, source.version, source.licence, source.archive) == ("kept", "1.0", "MIT", wheel.name)
    assert source.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
