"""The same table from a real Ray, where it is installed; and what is said where it cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders.distributed.ray_cluster import start_ray
from ngram_builders.errors import UserError
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.distributed.test_build import here

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
from pathlib import Path
from ngram_builders.distributed import build as distributed
from tests.ngram_builders.distributed.test_build import run
from ngram_builders.registry.registry import Registry
distributed.MIN_SHARDS = 3
run(Registry(Path(sys.argv[1])), Path(sys.argv[2]), executor="ray", folder=Path(sys.argv[3]))
"""


def test_ray_makes_the_same_bytes(
    registry: Registry, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: what pytest does with warnings stops Ray's threads."""
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    arguments = [str(registry.folder), str(sources), str(tmp_path / "shared")]
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, check=True, timeout=400)
    assert registry.find("there").path.read_bytes() == here(registry, sources).path.read_bytes()


def test_an_address_without_a_ray_cluster_ends_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UserError, match=r"no Ray cluster answers at RAY_ADDRESS=127\.0\.0\.1:9"):
        start_ray(10**9)


def test_tasks_that_fit_on_no_machine_of_a_ray_cluster_are_told(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    program = """
import ray
from ngram_builders.distributed import ray_cluster
ray_cluster._ROOM_SECONDS = 2.0
ray.init(num_cpus=1, _memory=200_000_000, include_dashboard=False)
ray_cluster.start_ray(10**9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert "no machine of the Ray cluster has 1 CPU and 1.0 GB for a task; the one with the most" in done.stderr
