"""Words that figures share: setting, target, number of runs, times and ratios as people write them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pandas as pd

from bwbench.base.units import BANDWIDTH, DURATION
from bwbench.experiment.config.cell_config import NO_DATA
from bwbench.methods.roles import REFERENCE
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.caveats import COMPOSED_MARK
from bwbench.results.analysis.cell_arrival import FIRST_CROSSING_MARK
from bwbench.results.analysis.cells import is_virtual, time_words
from bwbench.results.analysis.host_bound import HOST_BOUND_MARK
from bwbench.results.analysis.results import Results
from bwbench.results.analysis.statistics import ONE_REPEAT, Estimate
from bwbench.results.text import TimeUnit as TimeUnit  # what figures say of times stands in one place
from bwbench.results.text import time_unit as time_unit

APART = 1.2  # times: what differs by less spans no axis
_RATE_DIGITS = 4  # the mean of a trace has many more
_NAMED_KINDS = 2  # of link: more are counted
_ONE_NODE = " (1 node)"
LONG_NAME = 18  # letters of an arm's name that a narrow picture writes in one line
LONG_OPTIONS = 26  # and of the options below it


def setting_line(
    results: Results, *, num_runs: Iterable[float] | str, with_bandwidth: bool = True, link: str | None = None
) -> str:
    """``cnn on digits · 4 nodes · 10 Mbit/s, RTT 5 ms, shared air · n = 3`` (``n = 2–3`` where arms differ).

    Args:
        num_runs: of each mark, or what stands in place of ``n``.
        link: in place of the words on the link.
    """
    cells = results.cells
    networked = cells[cells["role"] != REFERENCE]
    shown = networked if len(networked) else cells
    nodes = _range(sorted({int(nodes) for nodes in shown["nodes"]}))
    data = "" if set(shown["dataset"]) == {NO_DATA} else f" on {_each(shown['dataset'])}"
    parts = [f"{_each(shown['model'])}{data}", f"{nodes} {'node' if nodes == '1' else 'nodes'}"]
    parts += _unusual_times(results, set(shown["id"]))
    if link is None:
        links = sorted({str(words) for words in shown["link"]})
        link = links[0] if with_bandwidth and len(links) == 1 else _link_without_bandwidth(shown)
    if not isinstance(num_runs, str):
        counts = sorted({int(count) for count in num_runs})
        num_runs = f"n = {_range(counts)}" if counts else ""
    return " · ".join(part for part in (*parts, link, results.group.words, num_runs) if part)


def _unusual_times(results: Results, ids: Collection[object]) -> list[str]:
    """Slow motion, and nodes that take unlike times: what ``Group.words`` does not say already."""
    said = {name for name, _ in results.group.key}
    configs = (folder.cell.config for folder in results.done if folder.cell.id in ids)
    words = time_words(configs)
    factors = {"dilation": "dilation", "shrink": "shrink", "vectors": "compute.vector_speed"}
    key_of = {
        one: next((key for word, key in factors.items() if one.startswith(word)), "compute.step_time") for one in words
    }
    return [one for one in words if key_of[one] not in said]


def target_words(results: Results) -> str:
    """``95 % validation accuracy``, or ``validation loss 1.5``."""
    metric, value = target(results)
    if metric is None:
        return "target"
    return f"{100 * value:.4g} % validation accuracy" if metric == "accuracy" else f"validation {metric} {value:.4g}"


def timed_target(results: Results) -> str:
    """``target_words`` where times to it stand: marked where some of them are first crossings."""
    kinds = results.cells["arrival_kind"] if "arrival_kind" in results.cells else ()
    return f"{target_words(results)}{FIRST_CROSSING_MARK if FIRST_CROSSING in set(kinds) else ''}"


def target(results: Results) -> tuple[str | None, float]:
    """The target's metric and value; metric None where there is none."""
    cells = results.cells
    if cells.empty or cells["target_metric"].isna().all():
        return None, math.nan
    first = cells[cells["target_metric"].notna()].iloc[0]
    return str(first["target_metric"]), float(first["target_value"])


def seconds(value: float) -> str:
    """A duration with three digits: ``3.42 s``, ``41.3 s``, ``15.2 min``."""
    unit = time_unit(value)
    return f"{digits(value / unit.seconds)} {unit.symbol}"


def digits(value: float) -> str:
    """A number with three digits, whole above a hundred: ``0.0521``, ``3.42``, ``41.3``, ``1204``."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}".rstrip(".")


def bytes_unit(most: float) -> tuple[str, float]:
    """The unit in which ``most`` is no long number: symbol, and bytes of one."""
    return next((symbol, unit) for symbol, unit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)) if most >= unit)


def byte_words(value: float) -> str:
    """A number of bytes with three digits: ``34.1 MB``."""
    symbol, unit = bytes_unit(max(value, 1.0))
    return f"{digits(value / unit)} {symbol}"


def ratio(value: float, bound: str = "") -> str:
    """``2.3×``, ``0.45×``, ``> 12×``."""
    if value >= 0.995:
        text = f"{value:.0f}" if value >= 99.5 else f"{value:#.3g}"
    else:
        text = f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"
    return f"{bound} {text}×" if bound else f"{text}×"


def span(first: str, second: str) -> str:
    """Two quantities as a range: ``1–100 Mbit/s``, ``500 kbit/s–1 Mbit/s``; one of them where they are equal."""
    if first == second:
        return first
    same_unit = " " in second and first.partition(" ")[2] == second.partition(" ")[2]
    return f"{first.partition(' ')[0] if same_unit else first}–{second}"


def on_censored(values: pd.Series, num_censored: pd.Series) -> list[str]:
    """Sentences on marks some of whose repeats did not reach the target; infinite where fewer than half did."""
    if not (num_censored > 0).any():
        return []
    words = []
    if values.map(math.isinf).any():
        words.append("Hollow with arrow: fewer than half of the repeats reached the target in time; a bound.")
    if ((num_censored > 0) & ~values.map(math.isinf)).any():
        words.append("Where other repeats did not reach it, mark and interval are those of a censored log-normal fit.")
    return words


def on_fits(times: Iterable[Estimate]) -> list[str]:
    """A sentence on times of arms some of whose repeats did not reach the target, beside numbers; none without any."""
    fitted = any(time.num_censored and math.isfinite(time.value) for time in times)
    return (
        ["Where some repeats did not reach the target, times are those of a censored log-normal fit."] if fitted else []
    )


def arm_label(arm: str, role: str, num_composed: float = 0, num: float = 0) -> str:
    """An arm's name in figures, ``marked``; one node alone is said, because all others have more."""
    unsaid = role == REFERENCE and "one node" not in arm
    return marked(f"{arm}{_ONE_NODE}" if unsaid else arm, num_composed, num)


def marked(name: str, num_composed: float, num: float) -> str:
    """``name`` with COMPOSED_MARK where all of its ``num`` repeats are composed and not measured whole."""
    if not num_composed:
        return name
    return f"{name}{COMPOSED_MARK}" if num_composed >= num else f"{name}{COMPOSED_MARK} ({num_composed:g} of {num:g})"


def host_bound_marked(name: str, num_host_bound: float) -> str:
    """``name`` with HOST_BOUND_MARK where any of its cells is host-bound, for pictures whose marks cannot show that."""
    return f"{name}{HOST_BOUND_MARK}" if num_host_bound else name


def label_of(results: Results, arm: str, num_composed: float = 0, num: float = 0) -> str:
    """``arm_label`` of an arm by its recorded name, as short as the others leave it."""
    return arm_label(results.labels.get(arm, arm), results.roles[arm], num_composed, num)


@dataclass(frozen=True)
class CommonMarks:
    """Marks that every arm of a picture would have stand behind its target once, and behind no name.

    Attributes:
        text: these marks.
        composed, host_bound: whether they are among them.
    """

    text: str
    composed: bool
    host_bound: bool

    def label(self, results: Results, arm: str) -> str:
        """An arm's name, with the marks that not all have."""
        cells = results.cells[results.cells["arm"] == arm]
        num_composed = 0 if self.composed else int(cells["composed"].sum())
        name = label_of(results, arm, num_composed, len(cells))
        return host_bound_marked(name, 0 if self.host_bound else _num_host_bound(cells))


def common_marks(results: Results) -> CommonMarks:
    """Which marks all arms have: some of their cells are composed, and of arms with a link host-bound."""
    arms = [part for _, part in results.cells.groupby("arm")]
    linked = [part for part in arms if part["role"].iloc[0] != REFERENCE]
    composed = bool(arms) and all(part["composed"].astype(bool).any() for part in arms)
    host_bound = bool(linked) and all(_num_host_bound(part) for part in linked)
    text = f"{COMPOSED_MARK if composed else ''}{HOST_BOUND_MARK if host_bound else ''}"
    return CommonMarks(text, composed, host_bound)


def _num_host_bound(cells: pd.DataFrame) -> int:
    return sum(bound is True for bound in cells["host_bound"]) if "host_bound" in cells else 0


def on_repeats(num: pd.Series, several: str) -> str:
    """How to read marks of ``num`` repeats: ``several`` where any has more than one, and what those of one say."""
    single = f"n = 1: {ONE_REPEAT}, and has no interval."
    return " ".join([*([several] if (num > 1).any() else []), *([single] if (num == 1).any() else [])])


def on_first_crossings(results: Results, num: pd.Series) -> list[str]:
    """A sentence on intervals of first crossings, which do not lie around the time that is shown; none without any."""
    if not (num > 1).any() or FIRST_CROSSING not in set(results.cells["arrival_kind"]):
        return []
    earlier = "Intervals of first crossings lie around a time half an evaluation earlier"
    return [f"{earlier}: the target was met somewhere since the evaluation before."]


def without_first_crossings(notes: Iterable[str]) -> list[str]:
    """Notes below a picture that has no time to the target."""
    return [note for note in notes if not note.startswith(FIRST_CROSSING_MARK)]


def in_short_lines(label: str) -> str:
    """A long name broken before its options, or else at the hyphen nearest its middle, for narrow pictures; others as
    they are. Options that are longer than a line take as many as they need."""
    if len(label) <= LONG_NAME:
        return label
    if "(" in label.removesuffix(_ONE_NODE):
        name, _, options = label.partition("(")
        lines = textwrap.wrap(f"({options}", LONG_OPTIONS, break_long_words=False, break_on_hyphens=False)
        return "\n".join([name, *lines])
    breaks = [place + 1 for place, letter in enumerate(label) if letter in "- "]
    if not breaks:
        return label
    place = min(breaks, key=lambda place: abs(place - len(label) / 2))
    return f"{label[:place].rstrip()}\n{label[place:]}"


def without_times(results: Results) -> str | None:
    """Why a figure of times has nothing to draw: all done cells have virtual nodes; None where one has workers."""
    return "virtual nodes have no times" if results.done and all(map(is_virtual, results.done)) else None


def without_times_to_target(results: Results) -> str | None:
    """Why a figure of times to the target has nothing to draw; None where there are some."""
    return without_times(results) or (None if results.has_times else "the cells have no target")


def too_few_bandwidths(results: Results) -> str | None:
    """Why a figure over bandwidths has nothing to draw: fewer than two of them; None where there are more."""
    shaped = [bps for bps in results.bandwidths if bps is not None]
    if len(shaped) < 2:
        return f"only one bandwidth ({BANDWIDTH.format(shaped[0])})" if shaped else "the link is unshaped"
    low, high = min(shaped), max(shaped)
    if high < APART * low:
        rates = span(BANDWIDTH.show(low, _RATE_DIGITS), BANDWIDTH.show(high, _RATE_DIGITS))
        return f"the bandwidths are all but equal ({rates})"
    return None


def _link_without_bandwidth(cells: pd.DataFrame) -> str:
    bandwidths = sorted({float(bps) for bps in cells["bandwidth_bps"].dropna()})
    rates = [BANDWIDTH.show(bps, _RATE_DIGITS) for bps in bandwidths]
    rate = span(rates[0], rates[-1]) if rates else "unshaped link"
    rtts = [DURATION.format(rtt) for rtt in sorted({float(rtt) for rtt in cells["rtt_s"].dropna()})]
    rtt = f"RTT {span(rtts[0], rtts[-1])}" if rtts else ""
    media = sorted({link.split(", ", 2)[2] for link in cells["link"] if link.count(", ") >= 2})
    if len(media) > _NAMED_KINDS:
        return ", ".join(part for part in (rate, rtt, f"{len(media)} kinds of link") if part)
    words = [kind.split(", ") for kind in media]
    shared = [word for word in (words[0] if words else []) if all(word in kind for kind in words)]
    unlike = [", ".join(word for word in kind if word not in shared) for kind in words]
    return ", ".join(part for part in (rate, rtt, " or ".join(filter(None, unlike)), *shared) if part)


def _each(values: pd.Series) -> str:
    return "/".join(sorted({str(value) for value in values}))


def _range(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}" if values else ""
