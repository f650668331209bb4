"""The same table from a real Slurm and a real Ray, through kills, a dead controller and jobs that cannot start."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders.distributed import build as distributed
from ngram_builders.distributed import slurm
from ngram_builders.distributed.executors import Cluster
from ngram_builders.distributed.ray_cluster import start_ray
from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import END, VOCABULARY, make_encode
from tests.ngram_builders.distributed.slurm_cluster import SlurmCluster, find_missing, running_cluster

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
OPTIONS: dict[str, Any] = {"end_of_text": END, "fingerprint": "bytes", "vocab_size": VOCABULARY}
PROGRAM = """
import sys
from pathlib import Path
from ngram_builders.distributed import build as distributed, slurm
from tests.ngram_builders.distributed.test_clusters import build
from ngram_builders.registry.registry import Registry
distributed.MIN_SHARDS = 2
slurm.POLL_SECONDS = 0.2
build(Registry(Path(sys.argv[1])), Path(sys.argv[2]), executor=sys.argv[4], folder=Path(sys.argv[3]))
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.py").write_text(f"import os\nvalue_{number % 4} = {number % 4}\n" * (1 + number))
    return folder


@pytest.fixture(autouse=True)
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "MIN_SHARDS", 2)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.2)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := find_missing():
        pytest.skip(reason)
    if not (Path(sys.executable).parent / "launch_pickled_pipeline").exists():
        pytest.skip("datatrove's launch_pickled_pipeline is not installed beside this Python")
    with running_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    yield started
    started.ask("scancel", "--user=root")


def build(registry: Registry, sources: Path, **where: Any) -> Domain:
    """Build in tasks, and return the domain."""
    made, _ = distributed.build(
        [sources], "there", make_encode, registry=registry, cluster=Cluster(**where), **OPTIONS
    )
    assert made is not None
    return registry.find(made.domain)


def local_bytes(tmp_path: Path, sources: Path) -> bytes:
    """The table of a build on this machine."""
    return build(Registry(tmp_path / "local"), sources, workers=1).path.read_bytes()


def test_slurm_makes_the_same_bytes_with_five_arrays_of_jobs(
    cluster: SlurmCluster, registry: Registry, sources: Path, tmp_path: Path
) -> None:
    before = cluster.count_submitted()
    options = {"partition": "cpu", "time": "0-00:10", "mem": "1G"}
    domain = build(registry, sources, executor="slurm", folder=tmp_path / "shared", options=options)
    assert domain.path.read_bytes() == local_bytes(tmp_path, sources)
    assert cluster.count_submitted() - before == 5


def test_a_run_that_is_killed_at_any_time_is_continued_without_a_second_job(
    cluster: SlurmCluster, registry: Registry, sources: Path, tmp_path: Path
) -> None:
    """Three runs are killed: while they submit, and after."""
    before, shared = cluster.count_submitted(), tmp_path / "shared"
    cluster.ask("scontrol", "update", "PartitionName=cpu", "State=DOWN")  # jobs are accepted, and wait
    try:
        for jobs in (1, 3, 5):
            arguments = [str(registry.folder), str(sources), str(shared), "slurm"]
            with subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT) as running:
                while cluster.count_submitted() - before < jobs and running.poll() is None:
                    time.sleep(0.02)
                running.send_signal(signal.SIGKILL)
    finally:
        cluster.ask("scontrol", "update", "PartitionName=cpu", "State=UP")
    domain = build(registry, sources, executor="slurm", folder=shared)
    assert domain.path.read_bytes() == local_bytes(tmp_path, sources)
    assert cluster.count_submitted() - before == 5


def test_a_controller_that_is_away_is_waited_for(
    cluster: SlurmCluster, registry: Registry, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    read_queue: Callable[..., Any] = slurm._read_queue

    def ask(names: list[str]) -> Any:
        """Stop the controller as the first job starts, and start it after some questions."""
        if not asked and not is_first_job_allocated(names):
            return read_queue(names)
        if not asked:
            cluster.stop("slurmctld")
        if len(asked) == 3:
            cluster.start_controller()
        asked.append(True)
        return read_queue(names)

    def is_first_job_allocated(names: list[str]) -> bool:
        """Whether Slurm has chosen a node for a job; its script may not have begun."""
        return any(job.state in ("CONFIGURING", "RUNNING") for job in read_queue(names))

    monkeypatch.setattr(slurm, "_read_queue", ask)
    domain = build(registry, sources, executor="slurm", folder=tmp_path / "shared")
    assert domain.path.read_bytes() == local_bytes(tmp_path, sources)
    assert len(asked) > 3


def test_a_job_that_cannot_start_is_told_and_can_be_replaced(
    cluster: SlurmCluster, registry: Registry, sources: Path, tmp_path: Path
) -> None:
    shared, hopeless = tmp_path / "shared", {"partition": "short", "time": "0-01:00"}
    with pytest.raises(
        UserError, match=r"Slurm will not start job .*: PartitionTimeLimit; run: scancel"
    ) as raised:
        build(registry, sources, executor="slurm", folder=shared, options=hopeless)
    numbers = str(raised.value).split("scancel ")[1].split(",")[0].split()
    cluster.ask("scancel", *numbers)
    domain = build(registry, sources, executor="slurm", folder=shared)
    assert domain.path.read_bytes() == local_bytes(tmp_path, sources)


def test_what_the_cluster_does_not_have_is_refused(
    cluster: SlurmCluster, registry: Registry, sources: Path, tmp_path: Path
) -> None:
    for options in ({"partition": "gpu"}, {"mem": "900G"}):
        with pytest.raises(UserError, match="Slurm refused a job, for the reason that sbatch gives above"):
            build(registry, sources, executor="slurm", folder=tmp_path / "shared", options=options)


def test_ray_makes_the_same_bytes(
    registry: Registry, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: what pytest does with warnings stops Ray's threads."""
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    arguments = [str(registry.folder), str(sources), str(tmp_path / "shared"), "ray"]
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, check=True, timeout=400)
    assert registry.find("there").path.read_bytes() == local_bytes(tmp_path, sources)


def test_an_address_without_a_ray_cluster_ends_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(UserError, match=r"no Ray cluster answers at RAY_ADDRESS=127\.0\.0\.1:9"):
        start_ray(1, 10**9)


def test_tasks_that_fit_on_no_machine_of_a_ray_cluster_are_told(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install ray")
    program = """
import ray
from ngram_builders.distributed import ray_cluster
ray_cluster._ROOM_SECONDS = 2.0
ray.init(num_cpus=1, _memory=200_000_000, include_dashboard=False)
ray_cluster.start_ray(1, 10**9)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert "no machine of the Ray cluster has 1 CPU and 1.0 GB for a task; the one with the most" in done.stderr
