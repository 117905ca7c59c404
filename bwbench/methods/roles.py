"""What an arm is among others: its role, which arms compute the same, who averages with whom. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, cast, get_args

from bwbench.base.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS

Role: TypeAlias = Literal["method", "reference", "headroom"]
METHOD: Final = "method"  # a way to train on a link
REFERENCE: Final = "reference"  # one node alone: is a second one worth it at all?
HEADROOM: Final = "headroom"  # averages that cost nothing: what a perfect network would give
CENTRAL, DECENTRAL = "central", "decentral"
AFTER_EVERY_STEP, NEVER = "after every step", "never"  # of an algorithm's ``replicas_equal``
EXACT, PARTIAL, UNKNOWN = "exact", "partial", "unknown"
LIMITS: tuple[Role, ...] = (REFERENCE, HEADROOM)  # what there is to lose or to gain: they draw the frame for methods


@dataclass(frozen=True)
class ArmStanding:
    """What an arm is among others.

    Attributes:
        kinship: equal for arms that compute the same mean up to rounding, half precision included: their replicas
            learn alike, only their times differ. None where an arm is kin to itself alone: its display name, which
            holds its options, then says which it is.
    """

    role: Role
    kinship: str | None


@dataclass(frozen=True)
class Topology:
    """Who averages with whom.

    Attributes:
        name: ``server``, ``sharded server``, ``ring``, ``gossip`` …; the collective's own name where it says nothing.
        averaging: ``exact`` where all nodes hold the mean of all, ``partial`` where that of some; ``unknown``.
        place: ``central`` where one node, or every node for its share, averages for all; else ``decentral``.
    """

    name: str
    averaging: str
    place: str


def standing_by_name(algorithm: str, collective: str, codecs: Sequence[str]) -> ArmStanding:
    """Role and kinship of a method by the names of its components, as the components declare them.

    A component that is not known here, of a plugin that was not loaded, makes a method that is nobody's kin.
    """
    try:
        return _declared(algorithm, collective, tuple(codecs))
    except Exception:  # no such name, or a broken package: old records are read without what they were made with
        return ArmStanding(METHOD, None)


def algorithms_of_role(role: Role) -> tuple[str, ...]:
    """Names of the algorithms that declare a role; arms are named after them, and so are the folders of their cells."""
    return tuple(name for name in ALGORITHMS.names() if standing_by_name(name, "none", ["none"]).role == role)


def averages_gradients(algorithm: str) -> bool:
    """Whether nodes send gradients in every step, whose mean the optimizer gets; False where that is not known."""
    try:
        kind = ALGORITHMS.load(algorithm)
        return as_role(kind.role) == METHOD and vars(kind).get("mean_of") == "gradients"
    except Exception:  # as for ``standing_by_name``
        return False


def topology_by_name(collective: str) -> Topology | None:
    """The topology of a collective as its class declares it; None where nothing is averaged over a link.

    One that is not known here, of a plugin that was not loaded, has its own name, and averages nobody knows how.
    """
    if not collective:
        return None
    try:
        way = COLLECTIVES.load(collective)
    except Exception:  # as above
        return Topology(collective, UNKNOWN, DECENTRAL)
    if not way.needs_peers:
        return None
    return Topology(way.topology or collective, EXACT if way.exact else PARTIAL, CENTRAL if way.central else DECENTRAL)


def replicas_equal_by_name(algorithm: str, collective: str) -> str | None:
    """When all nodes hold the same bits: as the algorithm declares it, and never where its collective is not exact.

    None where one of them is not known here: of a plugin that was not loaded.
    """
    try:
        kind, way = ALGORITHMS.load(algorithm), COLLECTIVES.load(collective)
        return str(kind.replicas_equal) if way.exact else NEVER
    except Exception:  # as for ``standing_by_name``
        return None


def as_role(text: str) -> Role:
    """A role that was recorded or declared; one that this version does not know is a method's."""
    return cast(Role, text) if text in get_args(Role) else METHOD


def needs_no_link(role: str, *, shaped: bool) -> bool:
    """Whether no link concerns a cell: one node alone has none, and free averages need none unless told to wait."""
    return role == REFERENCE or (role == HEADROOM and not shaped)


def may_win(role: str) -> bool:
    """Whether a cell takes part in the race: free averages would win everywhere, and nobody can have them."""
    return role != HEADROOM


@lru_cache(maxsize=1024)  # thousands of cells share a few methods; what failed is asked again
def _declared(algorithm: str, collective: str, codecs: tuple[str, ...]) -> ArmStanding:
    kind, way = ALGORITHMS.load(algorithm), COLLECTIVES.load(collective)
    role = as_role(kind.role)
    mean_of = vars(kind).get("mean_of")  # not inherited: whoever changes the arithmetic is no kin unasked
    if mean_of and way.exact and all(_rounds_at_most(codec) for codec in codecs):
        return ArmStanding(role, f"mean of all {mean_of}")
    return ArmStanding(role, None)


def _rounds_at_most(codec: str) -> bool:
    kind = COMPRESSIONS.load(codec)
    return bool(kind.lossless or kind.rounds)
