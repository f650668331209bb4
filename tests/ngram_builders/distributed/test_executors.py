"""Each machine has its share of the tasks, and datatrove's executors get what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from tests.ngram_builders.byte_encoder import make_encode

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders.distributed.executors import Cluster, StageRunner, make_executor, select_share


def test_shares_cover_all_tasks_once_and_the_first_has_the_last_stage() -> None:
    for tasks in range(1, 20):
        shares = [select_share(tasks, (machine, 3)) for machine in (1, 2, 3)]
        assert [rank for share in shares for rank in share] == list(range(tasks))
        assert 0 in shares[0]


@pytest.mark.parametrize("share", [(0, 2), (3, 2)])
def test_an_invalid_share_is_refused(share: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="no machine has the share"):
        Cluster(share=share)


def test_ray_gets_the_same_tasks(tmp_path: Path) -> None:
    """Constructed, not run: Ray is not among what is installed for tests."""
    stage = StageRunner("counts", 12, tmp_path, make_encode)
    executor = make_executor(stage, Cluster(executor="ray", workers=4, options={"mem_per_cpu_gb": 1}))
    assert (executor.world_size, executor.workers, executor.mem_per_cpu_gb) == (12, 4, 1)
    assert executor.pipeline == [stage]
