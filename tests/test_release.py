"""What a release is made of: tools by hash, actions by commit, and the same bytes from the same sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_package import build

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "editors" / "vscode"
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").iterdir()}
HASHED = (ROOT / ".github" / "build-requirements.txt").read_text(encoding="utf-8")


def test_the_workflow_is_yaml_and_publishes_only_what_was_built():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert "contents" not in {right for right, may in jobs["build"]["permissions"].items() if may != "read"}


def test_every_build_tool_has_one_version_and_its_hashes():
    lines = [line for line in HASHED.splitlines() if not line.lstrip().startswith("#")]
    tools = re.split(r"\n(?=\S)", "\n".join(lines))
    assert len(tools) > 3
    for tool in tools:
        assert re.match(r"[\w.-]+==[\w.]+ \\\n", tool), tool
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", tool)) == tool.count("--hash") >= 1
    wanted = re.findall(r"^[\w-]+==.+$", (ROOT / ".github" / "build-requirements.in").read_text(), re.MULTILINE)
    assert wanted and all(f"{tool} \\" in HASHED for tool in wanted)


def test_the_hatchling_of_a_release_is_the_tested_one():
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert f"hatchling=={pins['hatchling']} " in HASHED


def test_the_tools_of_a_release_come_by_hash():
    assert "--require-hashes" in WORKFLOWS["release.yml"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit_and_jobs_name_their_rights(name):
    workflow = WORKFLOWS[name]
    used = re.findall(r"uses: (\S+)", workflow)
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used)
    assert "\npermissions: {}\n" in workflow
    assert workflow.count("runs-on:") == workflow.count("    permissions:\n")


@pytest.mark.skipif(not shutil.which("actionlint"), reason="needs actionlint: pip install --group workflows")
def test_actionlint_finds_nothing():
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_the_same_sources_give_the_same_archive(tmp_path, target):
    first, second = (build(target, tmp_path / name)[0].read_bytes() for name in ("first", "second"))
    assert first == second


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("npm") and (EXTENSION / "node_modules").is_dir()), reason="needs `npm ci` in editors/vscode"
)
def test_the_same_sources_give_the_same_extension(tmp_path):
    found = []
    for zone in ("Asia/Tokyo", "America/Lima"):
        place = tmp_path / zone.partition("/")[2]
        shutil.copytree(EXTENSION, place, ignore=shutil.ignore_patterns("node_modules", "dist", "*.vsix"))
        (place / "node_modules").symlink_to(EXTENSION / "node_modules")
        done = subprocess.run(
            ["npm", "run", "package"], cwd=place, env={**os.environ, "TZ": zone}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found.append((place / "spd-lsp.vsix").read_bytes())
    assert found[0] == found[1]
