"""Files that hold keys and passwords are known by name and place; only a user's own list adds or allows some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from ngram_builders.sources import secret_files
from ngram_builders.sources.discovery import skip_reason, survey
from ngram_builders.sources.secret_files import USER_LIST, is_secret, user_globs
from spd_lsp.lsp.documents import may_hold_secrets

HELD = """
.env .env.local prod.env .envrc server.pem Server.KEY tls.cert tls.crt store.p12 apple.p8 vault.kdbx id_rsa
id_ed25519.pub deploy_rsa secrets.yaml secrets.py credentials .netrc .npmrc .pypirc .git-credentials prod.tfvars
terraform.tfstate .htpasswd kubeconfig .aws/credentials .aws/config .docker/config.json .ssh/config
.kube/config credentials.json AuthKey_2X9R4HXF34.p8
.config/gh/hosts.yml .m2/settings.xml
"""
FREE = """
environment.py keys.py monkey.py key.ts config.json docker/config.json aws/config kube/config.go secretary.py
settings.xml game.p8 ssh/config.py tokens.py certificate.rs credentials.go secrets_test.go Secrets.java
.github/workflows/ci.yml
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A person's own list."""
    folder = tmp_path / "configuration"
    folder.mkdir()
    monkeypatch.setattr(secret_files.platformdirs, "user_config_dir", lambda name, appauthor: str(folder))
    user_globs.cache_clear()
    yield folder / USER_LIST
    user_globs.cache_clear()


@pytest.mark.parametrize("name", HELD.split())
def test_files_with_secrets_are_recognized_in_any_folder(name: str, own: Path) -> None:
    for place in (PurePath(name), PurePath("/home/me/app") / name):
        assert is_secret(place)
        assert may_hold_secrets(f"untitled:{place.as_posix()}")


@pytest.mark.parametrize("name", FREE.split())
def test_ordinary_files_are_not_taken_for_secret(name: str, own: Path) -> None:
    assert not is_secret(PurePath("/home/me/app") / name)
    assert not may_hold_secrets(f"file:///home/me/app/{name}")


def test_a_users_list_adds_and_removes_patterns_for_builds_and_editors(own: Path, tmp_path: Path) -> None:
    own.write_text("# mine\n\nclients*.py\ninternal/*.PY\n!credentials.py\n", encoding="utf-8")
    root = tmp_path / "app"
    for name in ("clients_eu.py", "internal/keys.py", "credentials.py", "main.py", ".aws/tool.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n", encoding="utf-8")
    assert [Path(file.path).name for file in survey(root).files] == ["credentials.py", "main.py"]
    for name in ("internal/keys.py", ".aws/tool.py"):
        assert skip_reason(root / name, root) == "secret"
    assert may_hold_secrets((root / "clients_eu.py").as_uri())
    assert not may_hold_secrets((root / "credentials.py").as_uri())


def test_a_repository_cannot_remove_patterns(own: Path, tmp_path: Path) -> None:
    for name in (USER_LIST, ".spdignore", ".gitignore"):
        (tmp_path / name).write_text("!credentials.py\n", encoding="utf-8")
    (tmp_path / "credentials.py").write_text("x = 1\n", encoding="utf-8")
    assert skip_reason(tmp_path / "credentials.py", tmp_path) == "secret"


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"a" * 200_000, b"!\n!!\n*[\n"])
def test_an_invalid_list_changes_nothing(own: Path, content: bytes) -> None:
    own.write_bytes(content)
    assert is_secret(".env") and not is_secret("main.py")
    own.unlink()
    own.mkdir()
    user_globs.cache_clear()
    assert user_globs() == ()
