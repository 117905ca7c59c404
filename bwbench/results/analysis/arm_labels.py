"""What arms are called where people read, and what must be said of arms that differ in more than one thing.

A record names an arm by all that its method is made of (``scatter-gather-int4(error_feedback=False)``), and that name
is for ever: cells are grouped, styled and asked for by it. Beside other arms it says more than a reader needs. A label
leaves out what tells no two of the shown arms apart. Names of the literature (presets) stand as they are.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bwbench.experiment.config.cell_config import LEFT_OUT
from bwbench.experiment.config.method_names import PRESETS
from bwbench.methods.roles import METHOD
from bwbench.records import CellFolder
from bwbench.records.schema import CellRecord
from bwbench.results.analysis.cells import name_of, setting_of, standing_of

UNLIKE = "Arms differ in more than one thing"  # begins the note that says in which
LONGEST = 30  # letters of a label, from which on it leaves options out that others of its name have as well
_DIGITS = 4  # of a number among the options
_MOST_WAYS = 6  # that a note names one by one
_AXES = ("algorithm", "collective", "codec")
_AVERAGE = "weight_average"
# Of a configuration: what makes an arm and a repeat, or says where it ran. All else arms can have in common.
_OF_AN_ARM = (
    "algorithm",
    "collective",
    "compression",
    "seed",
    "plugins",
    "link",
    "nodes",
    "dilation",
    "shrink",
    "hosts",
)


@dataclass(frozen=True)
class _Composition:
    """What one arm is made of, by the names of its components.

    Attributes:
        name: as recorded; codec: several of them joined by ``+``; ``none`` where nothing is compressed.
        average: of its weights, which only the name of an arm has that comes without one as well; else empty.
    """

    name: str
    algorithm: str
    collective: str
    codec: str
    average: str = ""

    @classmethod
    def of(cls, cell: CellRecord) -> _Composition:
        setting = setting_of(cell.config)
        average = name_of(cell.config.get("weight_average"))
        kind = "" if average in ("", "none") else average
        return cls(str(cell.arm), setting.algorithm, setting.collective, setting.compression, kind)

    @property
    def way(self) -> tuple[str, str, str]:
        """In the order of ``_AXES``."""
        return self.algorithm, self.collective, self.codec

    @property
    def base(self) -> str:
        """The recorded name without its options."""
        return self.name.partition("(")[0]

    @cached_property
    def options(self) -> dict[str, str]:
        """Those that the recorded name has, as they stand there, and the average."""
        return options_of(self.name) | ({_AVERAGE: self.average} if self.average else {})

    @property
    def is_put_together(self) -> bool:
        """Whether its name is that of its components, and none of the literature's."""
        usual = self.algorithm == LEFT_OUT["algorithm"]
        parts = [*([] if usual else [self.algorithm]), self.collective, self.codec]
        return self.base not in PRESETS and self.base == "-".join(part for part in parts if part not in ("", "none"))


def arm_labels(cells: Iterable[CellRecord]) -> dict[str, str]:
    """A label for each arm of these cells, by its recorded name; no two alike.

    A codec's own name where no other algorithm or collective is among the arms; of options what differs from the usual.
    """
    arms = {str(cell.arm): _Composition.of(cell) for cell in _one_of_each(cells)}
    if not any(_AVERAGE in options_of(name) for name in arms):  # all or none of them have one
        arms = {name: replace(arm, average="") for name, arm in arms.items()}
    shortest = {name: _label(arm, list(arms.values())) for name, arm in arms.items()}
    taken = Counter(shortest.values())
    for name, label in shortest.items():  # a label that another arm is recorded under would be taken for that one
        if taken[label] > 1 or (label != name and label in arms):
            shortest[name] = name
    return shortest


def options_of(arm: str) -> dict[str, str]:
    """The options that a recorded name has, as they stand there: ``{"period": "16"}`` of ``diloco(period=16)``."""
    text = arm.removeprefix(arm.partition("(")[0])
    return dict(_split(text[1:-1])) if text.endswith(")") else {}


def recorded_name(asked: str, labels: Mapping[str, str]) -> str:
    """The arm that somebody asks for by its recorded name or by its label; ``asked`` itself where there is none."""
    return asked if asked in labels else next((name for name, label in labels.items() if label == asked), asked)


def unlike_arms_note(folders: Iterable[CellFolder]) -> str | None:
    """A line for under a table or a picture where methods differ in several things at once, so that what one of them is
    better by need not be due to the one thing that its name says; None where every difference has a pair of its own."""
    methods = [folder for folder in folders if standing_of(folder.cell).role == METHOD]
    arms = {str(cell.arm): _Composition.of(cell) for cell in _one_of_each(folder.cell for folder in methods)}
    ways = sorted({arm.way for arm in arms.values()})
    varying = [axis for axis in range(len(_AXES)) if len({way[axis] for way in ways}) > 1]
    found = []
    if len(varying) > 1 and any(_has_untold_pair(ways, axis) for axis in varying):
        found.append(f"{_joined([_AXES[axis] for axis in reversed(varying)])} ({_in_words(ways)})")
    elif varying and len(arms) > 1:
        found.append(_joined([_AXES[axis] for axis in reversed(varying)]))
    elif len(arms) > 1:
        found.append("options")
    others = _that_follow(methods)
    if not found or not (others or "(" in found[0]):
        return None
    return f"{UNLIKE}: {'; '.join([*found, *others])}."


def _one_of_each(cells: Iterable[CellRecord]) -> Iterable[CellRecord]:
    """A cell of every arm, in the order of their names: all cells of an arm are made of the same."""
    found = {str(cell.arm): cell for cell in cells}
    return [found[name] for name in sorted(found)]


def _label(arm: _Composition, arms: Sequence[_Composition]) -> str:
    base = arm.base
    if arm.is_put_together:
        same_codec = [other for other in arms if other.codec == arm.codec and other.algorithm == arm.algorithm]
        one_collective = len({other.collective for other in same_codec}) == 1
        among = [other for other in arms if other.collective not in ("", "none")]
        one_algorithm = len({other.algorithm for other in among}) == 1 or arm.algorithm == LEFT_OUT["algorithm"]
        parts = ["" if one_algorithm else arm.algorithm, "" if one_collective else arm.collective, arm.codec]
        base = "-".join(part for part in parts if part not in ("", "none")) or base
    if not arm.options:
        return base
    whole = _with_options(base, arm.options)
    if len(whole) <= LONGEST:
        return whole
    kin = [other.options for other in arms if other.way == arm.way]
    telling = {
        key: value
        for key, value in arm.options.items()
        if key == _AVERAGE or len({str(one.get(key)) for one in kin}) > 1
    }
    return _with_options(base, telling) if telling and len(kin) > 1 else whole


def _with_options(base: str, options: Mapping[str, str]) -> str:
    return f"{base}({', '.join(word for key, value in options.items() for word in _option(key, value))})"


def _option(key: str, value: str) -> list[str]:
    """``error_feedback=False`` as ``no error_feedback``; a mapping by what is in it; numbers in few digits."""
    if value in ("True", "False"):
        return [key if value == "True" else f"no {key}"]
    try:
        known = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return [f"{key}={value}"]
    if isinstance(known, dict):
        return [word for inner, one in known.items() for word in _option(str(inner), str(one))]
    return [f"{key}={known:.{_DIGITS}g}" if isinstance(known, float) else f"{key}={value}"]


def _split(text: str) -> list[tuple[str, str]]:
    """``a=1,b={'c': 2, 'd': 3}`` at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    pairs = (re.fullmatch(r"([^=]+)=(.*)", part.strip(), re.DOTALL) for part in parts)
    return [(match[1], match[2]) for match in pairs if match]


Way = tuple[str, str, str]


def _has_untold_pair(ways: Sequence[Way], axis: int) -> bool:
    """Whether two values of one axis are nowhere compared with all else equal."""
    beside: dict[str, set[Way]] = {}
    for way in ways:
        beside.setdefault(way[axis], set()).add(_without(way, axis))
    values = list(beside.values())
    return any(one.isdisjoint(other) for index, one in enumerate(values) for other in values[index + 1 :])


def _without(way: Way, axis: int) -> Way:
    first, second, third = ("" if index == axis else part for index, part in enumerate(way))
    return first, second, third


def _in_words(ways: Sequence[Way]) -> str:
    """``fp16 over ring; threshold or top-k over all-gather``; the algorithm before it where it is not the usual one."""
    codecs: dict[tuple[str, str], list[str]] = {}
    for algorithm, collective, codec in ways:
        codecs.setdefault((algorithm, collective), []).append("no codec" if codec == "none" else codec)
    collectives: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (algorithm, collective), sent in codecs.items():
        collectives.setdefault((algorithm, tuple(sent)), []).append(collective)
    words = []
    for (algorithm, all_sent), over in collectives.items():
        before = "" if algorithm == LEFT_OUT["algorithm"] else f"{algorithm} with "
        words.append(f"{before}{_joined(all_sent, 'or')} over {_joined(over, 'or')}")
    more = len(words) - _MOST_WAYS
    return "; ".join([*words[:_MOST_WAYS], *([f"and {more} more"] if more > 0 else [])])


def _that_follow(folders: Sequence[CellFolder]) -> list[str]:
    """Further settings that no value of is common to all arms, such as a learning rate that was tuned for each.

    Where arms have components of several names, their own options follow from these, and are not told.
    """
    by_arm: dict[str, dict[str, set[str]]] = {}
    for folder in folders:
        of_arm = by_arm.setdefault(str(folder.cell.arm), {})
        for name, value in folder.flat_config.items():
            if name.partition(".")[0] not in _OF_AN_ARM:
                of_arm.setdefault(name, set()).add(str(value))
    names = sorted({name for of_arm in by_arm.values() for name in of_arm})
    values = {name: [of_arm.get(name, {"None"}) for of_arm in by_arm.values()] for name in names}
    unlike = [name for name, sets in values.items() if len(sets) > 1 and not set.intersection(*sets)]
    told = [name for name in unlike if all(name in of_arm for of_arm in by_arm.values()) or _parent(name) not in unlike]
    return [name.removesuffix(".name").replace(".", " ").replace("_", " ") for name in told]


def _parent(option: str) -> str:
    """``optimizer.name`` of ``optimizer.betas``."""
    return f"{option.rpartition('.')[0]}.name"


def _joined(words: Sequence[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
