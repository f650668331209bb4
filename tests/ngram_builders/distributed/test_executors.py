"""datatrove's executors get what they need, and Ray is not waited for in vain."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from ngram_builders.errors import UserError
from tests.ngram_builders.byte_encoder import make_encode

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders.distributed import ray_cluster
from ngram_builders.distributed.executors import Cluster, StageRunner, slurm_stage
from ngram_builders.distributed.ray_cluster import check_address


def sbatch_lines(folder: Path, **options: str) -> dict[str, object]:
    """The directives of a stage's jobs."""
    stage = StageRunner("counts", 12, folder / "corpus-0123456789abcdef.counting", make_encode)
    made: dict[str, object] = slurm_stage(stage, Cluster(executor="slurm", sbatch=options)).get_sbatch_args(12)
    return made


def test_slurm_gets_what_was_chosen_and_nothing_else(tmp_path: Path) -> None:
    chosen = {"partition": "cpu", "time": "0-02:00", "account": "lab", "qos": "low", "mem": "4G"}
    lines = sbatch_lines(tmp_path, **chosen)
    assert {name: lines[name] for name in chosen} == chosen
    assert lines["job-name"] == "ngrams-counts-0123456789abcdef"
    assert "mem-per-cpu" not in lines
    lines = sbatch_lines(tmp_path)
    assert chosen.keys() & lines.keys() == set()
    assert lines["mem-per-cpu"] == "2G"


def test_an_address_at_which_no_ray_cluster_answers_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "no-such-host.invalid:6379", "h:99999999"):
            with pytest.raises(UserError, match=f"no Ray cluster answers at RAY_ADDRESS={address}"):
                check_address(address)
        taken.listen()
        check_address(f"127.0.0.1:{port}")
    for address in ("", "auto", "local"):
        check_address(address)


def machines(*sizes: tuple[float, float]) -> SimpleNamespace:
    """What Ray says of a cluster."""
    nodes = [{"Alive": True, "Resources": {"CPU": cpus, "memory": memory}} for cpus, memory in sizes]
    return SimpleNamespace(nodes=lambda: [{"Alive": False, "Resources": {}}, *nodes])


def test_a_task_that_no_machine_has_room_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines are not one, and a machine may join a little later."""
    monkeypatch.setattr(ray_cluster, "_ROOM_SECONDS", 0.0)
    monkeypatch.setattr(ray_cluster.time, "sleep", lambda seconds: None)
    ray_cluster._wait_for_room(machines((0, 9e9), (1, 1e9)), 10**9)
    with pytest.raises(UserError, match=r"has 1 CPU and 1\.0 GB for a task; the one .* has 0 and 9\.0 GB; add"):
        ray_cluster._wait_for_room(machines((0, 9e9), (8, 1e8)), 10**9)
    monkeypatch.setattr(ray_cluster, "_ROOM_SECONDS", 60.0)
    answers = iter([machines(), machines((1, 1e9))])
    ray_cluster._wait_for_room(SimpleNamespace(nodes=lambda: next(answers).nodes()), 10**9)
