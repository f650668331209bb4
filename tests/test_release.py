"""A release: tools by hash, actions by commit, a wheel for each system, the same bytes from the same sources."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spd_lsp import __version__
from tests.test_package import build

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "editors" / "vscode"
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").iterdir()}
HASHED = (ROOT / ".github" / "build-requirements.txt").read_text(encoding="utf-8")


def test_the_workflow_is_yaml_and_publishes_only_what_was_built():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]
    assert (jobs["publish"]["needs"], jobs["build"]["needs"]) == ("build", "wheel")
    assert (jobs["pypi"]["needs"], jobs["marketplaces"]["needs"]) == ("build", "build")
    assert "id-token" not in jobs["marketplaces"]["permissions"]
    for name in ("wheel", "build", "pypi", "marketplaces"):
        assert "contents" not in {right for right, access in jobs[name]["permissions"].items() if access != "read"}


def test_every_build_tool_has_one_version_and_its_hashes():
    lines = [line for line in HASHED.splitlines() if not line.lstrip().startswith("#")]
    tools = re.split(r"\n(?=\S)", "\n".join(lines))
    assert len(tools) > 3
    for tool in tools:
        assert re.match(r"[\w.-]+==[\w.]+ \\\n", tool), tool
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", tool)) == tool.count("--hash") >= 1
    wanted = re.findall(r"^[\w-]+==.+$", (ROOT / ".github" / "build-requirements.in").read_text(), re.MULTILINE)
    assert wanted and all(f"{tool} \\" in HASHED for tool in wanted)


@pytest.mark.slow
def test_a_release_links_to_its_own_files_and_other_builds_name_no_repository(tmp_path):
    home = "example.org/me/spd-lsp"
    address = f"https:{'//'}{home}"
    described = []
    for name, variables in (("release", {"REPOSITORY_URL": address}), ("other", {"REPOSITORY_URL": ""})):
        with zipfile.ZipFile(build("wheel", tmp_path / name, **variables)[0]) as archive:
            described.append(archive.read(f"spd_lsp-{__version__}.dist-info/METADATA").decode())
    released, other = described
    assert f"Project-URL: Repository, {address}\n" in released and home not in other
    assert f"({address}/blob/v{__version__}/spd_lsp/README.md)" in released
    assert re.findall(r'src="(?!https:)|]\((?!https:|#)', released) == []


@pytest.mark.slow
def test_a_release_has_the_bundled_model_in_a_wheel_of_its_own_that_stays_the_same(tmp_path):
    digests = []
    for name, variables in (("one", {}), ("other", {"REPOSITORY_URL": "example"})):
        whole, _ = build("wheel", tmp_path / name, **variables)
        split = [sys.executable, str(ROOT / ".ci" / "split_wheel.py"), str(whole)]
        subprocess.run(split, check=True, capture_output=True)
        program, model = sorted((tmp_path / name).iterdir())
        digests.append(hashlib.sha256(model.read_bytes()).digest())
        assert program.stat().st_size < 2_000_000
    assert digests[0] == digests[1]
    folder = tmp_path / "site"
    for wheel in (program, model):
        zipfile.ZipFile(wheel).extractall(folder)
    (tmp_path / "demo.py").write_text("import argparse\n\nparser = argparse.")
    command = [sys.executable, "-m", "spd_lsp", "complete", str(tmp_path / "demo.py")]
    variables = {name: value for name, value in os.environ.items() if name != "SPD_LSP_STARTER"}
    environment = variables | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "ArgumentParser" in done.stdout, done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit_and_jobs_name_their_rights(name):
    workflow = WORKFLOWS[name]
    assert "://" not in workflow, "no package index is named"
    assert name == "check.yml" or "--require-hashes" in workflow
    used = re.findall(r"uses: (\S+)", workflow)
    ours = "./.github/workflows/wheel.yml"
    assert used and all(action == ours or re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in used)
    assert "\npermissions: {}\n" in workflow
    assert workflow.count("runs-on:") + used.count(ours) == workflow.count("    permissions:\n")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_the_same_sources_give_the_same_archive(tmp_path, target):
    first, second = (build(target, tmp_path / name)[0].read_bytes() for name in ("first", "second"))
    assert first == second


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("npm") and (EXTENSION / "node_modules").is_dir()), reason="needs `npm ci` in editors/vscode"
)
def test_the_same_sources_give_the_same_extension_with_all_that_it_needs(tmp_path):
    archives = []
    server, _ = build("sdist", tmp_path / "server")
    for zone in ("Asia/Tokyo", "America/Lima"):
        copy = tmp_path / zone.partition("/")[2]
        shutil.copytree(EXTENSION, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "*.vsix"))
        (copy / "node_modules").symlink_to(EXTENSION / "node_modules")
        command = ["npm", "run", "package", "--", "--server", str(server)]
        done = subprocess.run(command, cwd=copy, env={**os.environ, "TZ": zone}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        archives.append((copy / "spd-lsp.vsix").read_bytes())
    assert archives[0] == archives[1]
    check_extension(zipfile.ZipFile(io.BytesIO(archives[0])), server)


def check_extension(package: zipfile.ZipFile, server: Path) -> None:
    """The package holds the server, the licences of all libraries, and a README with its picture."""
    names = {name.removeprefix("extension/") for name in package.namelist() if name.startswith("extension/")}
    assert {
        "dist/extension.js",
        "icon.png",
        "drafts.png",
        "index.png",
        "menu.png",
        "words.png",
        "typing.webp",
        "LICENSE.txt",
        "ThirdPartyNotices.txt",
    } <= names
    assert {f"server/{server.name}", "server/constraints.txt"} <= names
    assert not any(name.startswith(("node_modules/", "src/")) for name in names)
    notices = package.read("extension/ThirdPartyNotices.txt").decode()
    assert {"vscode-languageclient", "minimatch", "semver"} <= set(re.findall(r"^([\w@/-]+) \d+\.", notices, re.M))
    readme = package.read("extension/readme.md").decode()
    assert "data:image/png;base64," in readme and "Nothing is sent anywhere" in readme
