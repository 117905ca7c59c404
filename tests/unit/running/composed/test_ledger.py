import pytest
from simulated_runs import Machine, train

from bwbench.methods.phases import Phase, timing_steps
from bwbench.results.analysis.compose import compose
from bwbench.running.composed.content import weighted_ledger

RARE, OFTEN = (Phase("rounds", None, 50),), (Phase("rounds", None, 8),)


def test_rounds_weigh_as_much_as_in_the_whole_run() -> None:
    machine = Machine(0.05, 1.0, waited_s=0.0)
    timing = train(OFTEN, machine, timing_steps(OFTEN))
    found = compose(train(RARE, Machine(), 500), timing, RARE, OFTEN, has_target=False)
    ledger = weighted_ledger(timing, OFTEN, found.kinds)
    assert ledger.step_mean_s == pytest.approx(0.05 + 1.0 / 50)
    assert ledger.step_median_s == pytest.approx(0.05)
    assert sum(ledger.mean_s.values()) == pytest.approx(ledger.step_mean_s)


def test_without_steps_there_is_no_ledger() -> None:
    assert weighted_ledger({0: []}, OFTEN, []) is None
