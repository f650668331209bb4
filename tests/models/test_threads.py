"""The thread count is what measures best, is tried again when work becomes slow, and is never all cores."""

from __future__ import annotations

import pytest

from spd_lsp.models.threads import RECENT_STEPS, TRIAL_STEPS, ThreadCountTuner, thread_counts


class Machine:
    """Where a step takes a known time with each count of threads."""

    def __init__(self, times):
        self.times = times
        self.used = []
        self.threads = ThreadCountTuner(sorted(times), self.used.append)

    def steps(self, count):
        for _ in range(count):
            self.threads.note_step(self.times[self.used[-1]])


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({1: 10.0, 2: 6.0, 4: 4.0}, 4),
        ({1: 10.0, 2: 6.0, 4: 20.0}, 2),
        ({1: 10.0, 2: 30.0, 4: 40.0}, 1),
        ({1: 10.0, 2: 9.5, 4: 9.0}, 1),  # not worth the cores
        ({1: 10.0}, 1),
    ],
)
def test_the_fewest_threads_that_none_beats_clearly(times, best):
    machine = Machine(times)
    machine.steps(TRIAL_STEPS * len(times) + 3)
    assert machine.used[-1] == best


def test_no_more_steps_are_tried_than_needed():
    machine = Machine({1: 10.0, 2: 6.0, 4: 4.0})
    machine.steps(3 * TRIAL_STEPS)
    assert machine.used == [1, 2, 4, 4]
    machine.steps(10 * RECENT_STEPS)
    assert machine.used == [1, 2, 4, 4]


def test_a_busy_neighbour_starts_another_trial():
    machine = Machine({1: 10.0, 2: 6.0, 4: 4.0})
    machine.steps(3 * TRIAL_STEPS)
    machine.times = {1: 12.0, 2: 30.0, 4: 40.0}
    machine.steps(RECENT_STEPS + 3 * TRIAL_STEPS)
    assert machine.used[-1] == 1


def test_one_slow_step_changes_nothing():
    machine = Machine({1: 10.0, 2: 6.0})
    machine.steps(2 * TRIAL_STEPS)
    machine.threads.note_step(500.0)
    machine.steps(RECENT_STEPS)
    assert machine.used == [1, 2, 2]


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [1]), (3, [1, 2]), (4, [1, 2]), (8, [1, 2, 4]), (64, [1, 2, 4])]
)
def test_never_all_cores(cores, counts):
    assert thread_counts(cores) == counts
