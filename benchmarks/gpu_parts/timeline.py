"""What a GPU did when, from a profiler's events: how much of the copies lay beside computing, and a picture of a step.

An event is ``{"kind", "name", "begin_us", "end_us", "stream"}``, the kind ``kernel``, ``to host``, ``to device`` or
``backward`` (from the call of the backward pass to its last kernel).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Span = tuple[float, float]
ROWS = ("backward", "kernel", "to host", "to device")
WORDS = {"backward": "backward pass", "kernel": "kernels", "to host": "copies to the host", "to device": "copies back"}
COLOURS = {"backward": "#9aa5b1", "kernel": "#4c78a8", "to host": "#e45756", "to device": "#f2a541"}
LEAST_US = 5.0  # a copy of a number that is asked for is no copy of a bucket


def spans(events: Iterable[Event], kind: str, least_us: float = 0.0) -> list[Span]:
    """Begin and end of the events of a kind."""
    found = [(float(e["begin_us"]), float(e["end_us"])) for e in events if e["kind"] == kind]
    return [(begin, end) for begin, end in found if end - begin >= least_us]


def united(pieces: Iterable[Span]) -> list[Span]:
    """The same time as spans that do not overlap."""
    found: list[Span] = []
    for begin, end in sorted(pieces):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def busy(events: Iterable[Event], gap_us: float = 5.0) -> list[Event]:
    """Kernels that follow one another closely as one event: how long the GPU computed, in a record of little size."""
    found: list[Event] = []
    for begin, end in united((b, e + gap_us) for b, e in spans(events, "kernel")):
        found.append({"kind": "kernel", "name": "kernels", "begin_us": begin, "end_us": round(end - gap_us, 3)})
    return found


def common_us(some: Sequence[Span], others: Sequence[Span]) -> float:
    """Time that lies in spans of both; each without overlaps of its own."""
    return sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in some
        for other_begin, other_end in others
    )


def summary(events: Sequence[Event]) -> dict[str, float]:
    """Milliseconds of copies to the host, and which share of them lay inside a backward pass and beside a kernel."""
    copies = united(spans(events, "to host", LEAST_US))
    backward, kernels = united(spans(events, "backward")), united(spans(events, "kernel"))
    total = sum(end - begin for begin, end in copies)
    return {
        "copies_to_host_ms": total / 1e3,
        "inside_backward": common_us(copies, backward) / total if total else 0.0,
        "beside_kernels": common_us(copies, kernels) / total if total else 0.0,
        "backward_ms": sum(end - begin for begin, end in backward) / 1e3,
    }


def draw(record: dict[str, Any], file: Path) -> None:
    """One step: a row a kind, time from the begin of its backward pass."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    passes = spans(record["events"], "backward")
    if not passes:
        print("the profiler has recorded no kernel: nothing to draw")
        return
    begin, end = passes[-1]
    shown = [e for e in record["events"] if e["end_us"] > begin - 200 and e["begin_us"] < end + 0.35 * (end - begin)]
    figure, axes = pyplot.subplots(figsize=(9, 2.8), layout="constrained")
    for row, kind in enumerate(reversed(ROWS)):
        least = LEAST_US if kind.startswith("to ") else 0.0
        bars = [((b - begin) / 1e3, (e - b) / 1e3) for b, e in spans(shown, kind, least)]
        axes.broken_barh(bars, (row - 0.38, 0.76), facecolors=COLOURS[kind], linewidth=0)
    axes.set_yticks(range(len(ROWS)), [WORDS[kind] for kind in reversed(ROWS)])
    axes.set_xlabel("ms from the begin of the backward pass")
    share = record["summary"]["inside_backward"]
    axes.set_title(
        f"{record['gpu']}: {record['method']}, {record['parameters'] / 1e6:.1f} M parameters; "
        f"{share:.0%} of the copies to the host inside the backward pass",
        fontsize=10,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
