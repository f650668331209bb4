"""As many threads as measure best on the cores that other programs leave, chosen again when that changes."""

from __future__ import annotations

import pytest

from spd_lsp.models.threads import LOOK_SECONDS, RECENT_STEPS, TRIAL_STEPS, ThreadCountTuner


class Machine:
    """Where a step takes a known time with each count of threads, and others keep some cores busy."""

    def __init__(self, times, cores=4, limit=4):
        self.times = times
        self.busy = 0.0
        self.time = 0.0
        self.used = []
        self.tuner = ThreadCountTuner(self.set_counts, cores, limit, lambda: self.busy, lambda: self.time)

    def set_counts(self, step, prompt):
        self.used.append(step)
        self.prompt = prompt

    @property
    def step(self):
        return self.used[-1]

    def steps(self, count):
        for _ in range(count):
            self.time += self.times[self.step]
            self.tuner.note_step(self.times[self.step])

    def others(self, busy):
        """They keep so many cores busy for a while."""
        self.busy = busy
        self.time += LOOK_SECONDS
        self.tuner.look_around()


FAST = {1: 0.010, 2: 0.006, 3: 0.0055, 4: 0.004}


@pytest.mark.parametrize(
    ("times", "best"),
    [
        (FAST, 4),
        ({1: 0.010, 2: 0.006, 4: 0.020}, 2),
        ({1: 0.010, 2: 0.030, 4: 0.040}, 1),
        ({1: 0.010, 2: 0.0095, 4: 0.009}, 1),  # not worth the cores
    ],
)
def test_the_fewest_threads_that_none_beats_clearly(times, best):
    machine = Machine(times)
    assert machine.prompt == 4  # all cores read a prompt
    machine.steps(3 * TRIAL_STEPS + 3)
    assert machine.step == best


def test_busy_neighbours_keep_their_cores():
    machine = Machine(FAST)
    machine.steps(3 * TRIAL_STEPS)
    for busy, prompt, step in [(0.3, 4, 4), (1.2, 3, 2), (2.9, 1, 1), (9.0, 1, 1), (0.0, 4, 4)]:
        machine.others(busy)
        machine.steps(3 * TRIAL_STEPS)
        assert (machine.prompt, machine.step) == (prompt, step), busy


def test_what_was_slow_beside_busy_neighbours_is_tried_again_without_them():
    machine = Machine({1: 0.010, 2: 0.006, 3: 0.050, 4: 0.050})
    machine.others(1.0)
    machine.steps(3 * TRIAL_STEPS)
    assert machine.step == 2
    machine.others(0.0)
    machine.times = FAST
    machine.steps(3 * TRIAL_STEPS)
    assert machine.step == 4


def test_the_load_is_not_read_at_every_step():
    reads = []
    machine = Machine(FAST)
    machine.tuner.busy_cores = lambda: reads.append(machine.time) or 0.0
    machine.steps(200)
    assert 1 <= len(reads) <= machine.time / LOOK_SECONDS + 1


def test_steps_that_became_slow_start_another_trial():
    """As beside a neighbour that the system does not tell of."""
    machine = Machine(FAST)
    machine.steps(3 * TRIAL_STEPS)
    machine.times = {1: 0.012, 2: 0.030, 4: 0.040}
    machine.steps(RECENT_STEPS + 3 * TRIAL_STEPS)
    assert machine.step == 1


def test_the_user_bounds_the_count():
    machine = Machine(FAST)
    machine.tuner.limit_to(2)
    machine.steps(3 * TRIAL_STEPS)
    assert (machine.prompt, machine.step) == (2, 2)
    machine.tuner.limit_to(1)
    assert (machine.prompt, machine.step) == (1, 1)
    machine.tuner.limit_to(0)
    machine.steps(3 * TRIAL_STEPS)
    assert (machine.prompt, machine.step) == (4, 4)
    machine.tuner.limit_to(64)
    assert machine.prompt == 4
