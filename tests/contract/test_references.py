"""Every method in a user's loop against references that were written from the papers, without sight of the program.

``python -m pytest tests/contract/test_references.py -s`` prints the largest difference of each, as docs/algorithms has
it. In units of the way: the difference of any parameter after any step, on any rank, over the distance that the
parameter which went furthest has come from its start.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.references.case import Case
from tests.references.cases_in_part import FEEDBACK, IN_PART
from tests.references.cases_of_decoupled import DECOUPLED
from tests.references.cases_of_gradients import GRADIENTS, ROUNDED
from tests.references.cases_of_momenta import MOMENTA
from tests.references.cases_of_replicas_apart import APART
from tests.references.cases_of_weights import GOSSIP, ROUNDS
from tests.references.side_by_side import STEPS, bits_equal, train

CASES = [*GRADIENTS, *ROUNDED, *MOMENTA, *GOSSIP, *FEEDBACK, *IN_PART, *DECOUPLED, *ROUNDS, *APART]


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    lines: list[str] = []
    yield lines
    print("\n| method | ranks | largest difference | beyond it |\n|---|---|---|---|", *lines, sep="\n")


@pytest.mark.filterwarnings("ignore:.*beside it replaces:UserWarning")  # presets of the same names
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_method_is_its_reference(case: Case, table: list[str]) -> None:
    largest, beyond = 0.0, 0.0
    for ranks in case.ranks:
        trained = train(case.method, ranks)
        apart, allowed = case.apart(trained)
        beyond = max(beyond, float((apart > allowed).any(0).double().mean()))
        assert beyond <= case.ties, f"{ranks} ranks: {beyond:.1%} differ by up to {float(apart.max()):.2g}"
        largest = max(largest, float(apart[apart <= allowed].max()))
        unequal = [step for step in range(STEPS) if case.equal(step) and not bits_equal(trained, step)]
        assert not unequal, f"{ranks} ranks: replicas differ after the steps {unequal}"
    shown = f"{beyond:.1%} of the parameters" if beyond else ""
    table.append(f"| {case.name} | {', '.join(map(str, case.ranks))} | {largest:.0e} | {shown} |")
