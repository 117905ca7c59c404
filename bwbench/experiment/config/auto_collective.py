"""What ``collective: auto`` stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bwbench.base.component import Component
from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
from bwbench.methods.compression.chain import chain_refusal, nest

_ELEMENTS = 1_000_000  # of the tensor that sizes are compared on: large enough that headers do not matter


def auto_collective(algorithm: Component, chain: Sequence[Component], num_nodes: int) -> tuple[str, str]:
    """Name of a collective that the algorithm and every codec accept, and why it is this one.

    Where none fits it is the one that the algorithm would take at best, so that the check of combinations tells why it
    cannot be.
    """
    names = " + ".join(component.name for component in chain)
    if (reason := chain_refusal(chain)) is not None:
        return "ring", f"collective: auto has no codec to go by: {reason}"
    reasons: list[str] = []
    first = ""
    for name, reason in _candidates(algorithm, chain, num_nodes):
        refusal = refusal_of(algorithm, name, chain)
        if refusal is None:
            why = "; ".join([*reasons, reason])
            return name, f"collective: auto is {name!r} for compression {names}" + (f": {why}" if why else "")
        first = first or name
        if name == "ring":
            reasons.append(refusal.partition(";")[0])  # what else to use is told next
    return first, f"collective: auto finds none for algorithm {algorithm.name} with compression {names}"


def refusal_of(algorithm: Component, collective: str, chain: Sequence[Component]) -> str | None:
    """The algorithm's own reason for refusing a collective, or the collective's for refusing one of these codecs."""
    kind = COLLECTIVES.load(collective)
    reasons: Iterator[str | None] = (kind.accepts(COMPRESSIONS.load(codec.name)) for codec in chain)
    refusal: str | None = ALGORITHMS.load(algorithm.name).accepts(kind)
    return refusal or next(filter(None, reasons), None)


def _candidates(algorithm: Component, chain: Sequence[Component], num_nodes: int) -> Iterator[tuple[str, str]]:
    """Collectives from the best to the last resort, each with the reason for taking it."""
    preferred = getattr(ALGORITHMS.load(algorithm.name), "preferred_collective", None)
    if preferred is not None:
        yield preferred, f"algorithm {algorithm.name} is made for it"
    linear = bool(COMPRESSIONS.load(chain[0].name).linear)
    yield "ring", "its messages are sums, which a ring forms" if linear else "its payloads can be added along a ring"
    yield from _by_bytes(chain, num_nodes)
    for name in COLLECTIVES.names():
        yield name, f"the only kind that algorithm {algorithm.name} can use"


def _by_bytes(chain: Sequence[Component], num_nodes: int) -> Iterator[tuple[str, str]]:
    """All-gather and scatter-gather, the one first that sends less, in numbers."""
    codec = nest(chain)
    codec.prepare([(_ELEMENTS,)])
    payload = sum(codec.payloads(_ELEMENTS)) / (4 * _ELEMENTS)  # as a share of dense fp32
    gather = (num_nodes - 1) * payload
    # Entries that few nodes share fill in: their mean has up to N times as many, but no more than all.
    sparse = bool(codec.carries)
    mean = min(num_nodes * payload, 1.0) if sparse else payload
    scatter = (num_nodes - 1) / num_nodes * (payload + mean)
    sizes = f"each of {num_nodes} nodes sends {100 * gather:.3g} % of the fp32 tensor with all-gather"
    filled = ", whose means are sparse no more," if sparse else ""
    sizes += f", {100 * scatter:.3g} % with scatter-gather{filled}"
    choices = [("all-gather", gather), ("scatter-gather", scatter)]
    # All-gather on a tie: it takes one round and compresses once.
    for name, _ in sorted(choices, key=lambda choice: round(choice[1], 9)):
        yield name, sizes
