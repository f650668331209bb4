"""Data parallelism: `torchrun --nproc-per-node 2 -m spd_lsp.training train` shares a step's rows among processes.

They start with equal weights and sum their gradients, so the weights stay equal. With matrices this small, two
processes of one thread are twice as fast as one, and one process of two threads is no faster. Without torchrun
there is one process. It knows no models.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, distributed

from ngram_builders.errors import UserError


def join() -> None:
    """Join the other processes if torchrun started this one; on one machine, over its loopback interface."""
    if distributed.is_torchelastic_launched():
        if sys.platform == "linux" and os.environ["GROUP_WORLD_SIZE"] == "1":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        distributed.init_process_group("gloo")


def rank() -> int:
    """Return the number of this process; process 0 reports progress and saves."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def count() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def require_rows(rows: int) -> None:
    """Refuse to go on with more processes than a step has rows."""
    if rows < count():
        raise UserError(f"{count()} processes share {rows} rows a step; start at most {rows}")


def sum_over_processes(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over all processes, the same in each, bit for bit."""
    if distributed.is_initialized():
        for tensor in tensors:
            distributed.all_reduce(tensor)


def any_process(said: bool) -> bool:
    """Return whether it is true in any process."""
    votes = torch.tensor(int(said))
    sum_over_processes([votes])
    return bool(votes > 0)


def wait() -> None:
    """Wait until every process has come this far."""
    if distributed.is_initialized():
        distributed.barrier()


@contextmanager
def first_alone() -> Iterator[None]:
    """Run the block in process 0, and only then in the others, which find the files it wrote."""
    if rank() > 0:
        wait()
    yield
    if rank() == 0:
        wait()
