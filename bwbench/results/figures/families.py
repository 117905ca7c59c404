"""Which arms a picture of lines shows where there are more than an eye can follow: one of each way of sending less.

What way an arm has its components declare. The arms that are not drawn are said below the picture; their numbers stand
in its table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.plain_data import list_at
from bwbench.base.registry import ALGORITHMS, COMPRESSIONS
from bwbench.experiment.config.method_names import BASELINES
from bwbench.methods.roles import AFTER_EVERY_STEP, NEVER, REFERENCE
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.cells import name_of
from bwbench.results.analysis.results import Results

MOST_LINES = 6
ALONE = "one node alone"
WHOLE = "all values in full precision, in every step"
BITS = "fewer bits a value"
NUMBERS = "fewer values"
SELDOM = "agreement every so many steps"
APART = "replicas that differ"  # averages in the background, with some of the others, or of parts
OTHER = "other"  # of a plugin that is not there


@dataclass(frozen=True)
class Shown:
    """What is drawn of many arms.

    Attributes:
        arms: those that are drawn.
        others: those that are not.
        leads: whether arms are drawn beside that of their way, since they are first on a link.
    """

    arms: tuple[str, ...]
    others: tuple[str, ...]
    leads: bool = False

    def note(self, labels: Mapping[str, str], fastest: Collection[str] = ()) -> list[str]:
        """A sentence on what is not drawn; none where all is.

        Args:
            fastest: arms that may be the fastest on some link.
        """
        if not self.others:
            return []
        first = ", and what is first somewhere" if self.leads else ""
        words = [f"Drawn: one arm of each way to send less{first}."]
        for what, wanted in (("Not drawn, and perhaps as fast on a link", True), ("Not drawn", False)):
            names = [labels.get(arm, arm) for arm in sorted(self.others) if (arm in fastest) is wanted]
            words += [f"{what}: {', '.join(names)}."] if names else []
        return [" ".join(words)]


def shown_arms(results: Results, order: Sequence[str], fastest: Sequence[str] = (), first: Sequence[str] = ()) -> Shown:
    """All of ``order`` where they are few; else one of each family and the ``first``, MOST_LINES at most.

    Of a family that is the baseline, else the arm that ran on most links, since a line with holes is none; of several
    the one that may be the fastest most often, else the one that is faster on the mean.

    Args:
        order: arms, fastest first.
        fastest: of each link the arms that may be the fastest there.
        first: of each link the arm with the shortest mean time.
    """
    if len(order) <= MOST_LINES:
        return Shown(tuple(order), ())
    cells = {folder.cell.arm: folder.cell for folder in results.done}
    wins = Counter(fastest)
    links = {
        str(arm): len(part[["bandwidth_bps", "rtt_s"]].drop_duplicates()) for arm, part in results.cells.groupby("arm")
    }
    members: dict[str, list[str]] = {}
    for arm in order:
        members.setdefault(family_of(cells[arm], results.roles[arm]), []).append(arm)

    def standing(arm: str) -> tuple[int, int, int, int]:
        usual = BASELINES.index(arm) if arm in BASELINES else len(BASELINES)
        return usual, -links[arm], -wins[arm], order.index(arm)

    chosen = {family: min(arms, key=standing) for family, arms in members.items()}
    # More than lines: those go that are never first, then never among the fastest, and the slowest of them first.
    candidates = {*chosen.values(), *first} & set(order)
    kept = sorted(
        candidates,
        key=lambda arm: (
            arm not in BASELINES and arm not in first,
            arm not in BASELINES and not wins[arm],
            order.index(arm),
        ),
    )
    arms = tuple(arm for arm in order if arm in kept[:MOST_LINES])
    others = tuple(arm for arm in order if arm not in arms)
    return Shown(arms, others, leads=not set(arms) <= set(chosen.values()))


def family_of(cell: CellRecord, role: str) -> str:
    """How an arm comes to send less, by what its algorithm and its codecs declare."""
    if role == REFERENCE:
        return ALONE
    codecs = [str(codec.get("name")) for codec in list_at(cell.config, "compression") if isinstance(codec, dict)]
    try:
        agrees = str(ALGORITHMS.load(name_of(cell.config.get("algorithm"))).replicas_equal)
        kinds = [COMPRESSIONS.load(codec) for codec in codecs]
    except Exception:  # no such name, or a broken package: old records are read without what they were made with
        return OTHER
    if agrees != AFTER_EVERY_STEP:
        return APART if agrees == NEVER else SELDOM
    if any(kind.carries or kind.linear for kind in kinds):
        return NUMBERS
    return WHOLE if all(kind.lossless for kind in kinds) else BITS
