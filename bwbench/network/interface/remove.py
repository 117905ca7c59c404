"""Taking off what bwbench has put on an interface: a run's own things and nothing else, as often as one likes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.run_state import QdiscSnapshot, RunState, StateFolder, forget_state, read_state
from bwbench.network.interface.steps import (
    IFB_PREFIX,
    INGRESS,
    INGRESS_PARENT,
    ROOT,
    SHAPED,
    Htb,
    Names,
    Tbf,
    is_root_handle,
    show_handle,
)


def undo(kernel: Kernel, state: RunState, state_file: Path) -> list[str]:
    """Remove a run and forget it; returns what it had put on its interface, for people."""
    removed = remove(kernel, state.dev, state.index, state.names, both=state.both)
    forget_state(state_file)  # its revert sees that, and ends
    return removed


def remove(kernel: Kernel, dev: str, index: int | None, names: Names, *, both: bool) -> list[str]:
    """Remove what run ``names`` has put on interface number ``index``; returns what that was, for people.

    Args:
        index: None where the interface is gone.
        both: whether the ingress qdisc is ours.
    """
    removed = []
    if index is not None and kernel.index_of(dev) == index:
        if both:
            filters = len(kernel.filters(index, INGRESS))
            if filters and kernel.delete_filters(index, INGRESS):
                removed.append(f"{filters} filter(s) on what comes into {dev}")
            # Whoever has put filters of his own into it meanwhile keeps it.
            if not kernel.has_foreign_filters(index, INGRESS) and kernel.delete_qdisc(index, INGRESS, INGRESS_PARENT):
                removed.append(f"ingress qdisc of {dev}")
        if kernel.delete_qdisc(index, names.root, ROOT):
            removed.append(f"root qdisc {show_handle(names.root)} of {dev} with all below it")
    if both and kernel.delete_interface(names.ifb):
        removed.append(f"interface {names.ifb}")
    return removed


def not_restored(kernel: Kernel, state: RunState) -> str | None:
    """How the qdiscs differ from what they were before the run; None where they do not, or the interface is gone."""
    if kernel.index_of(state.dev) != state.index:
        return None
    now = QdiscSnapshot.of(kernel.described(state.index))
    if now == state.before:
        return None
    return (
        f"what bwbench had put on {state.dev} is gone, but its qdiscs are not what they were: {state.before} before, "
        f"{now} now; somebody else has changed them meanwhile"
    )


def recognise(kernel: Kernel, index: int) -> Names | None:
    """The run whose things are on interface number ``index``, known by their names alone, where no state is left.

    A run that shapes one direction gets a name made up from its handle.
    """
    targets = [str(found.target) for found in kernel.filters(index, INGRESS)]
    run = next((target.removeprefix(IFB_PREFIX) for target in targets if target.startswith(IFB_PREFIX)), None)
    if run is not None:
        return Names(run)
    qdiscs = {qdisc.handle: qdisc for qdisc in kernel.qdiscs(index)}
    for handle, qdisc in qdiscs.items():
        shaper = qdiscs.get(handle + (1 << 16))
        if qdisc.parent == ROOT and isinstance(qdisc.setting, Htb) and is_root_handle(handle) and shaper is not None:
            if isinstance(shaper.setting, Tbf) and shaper.parent == handle | SHAPED:
                return Names.of_root(handle)
    return None


@dataclass(frozen=True)
class Cleared:
    """What was found.

    Attributes:
        run: whose it was; None where there was nothing.
        removed: in words, one an entry.
        difference: how the qdiscs differ from what they were before; None where they do not, or nobody knows.
    """

    run: str | None
    removed: tuple[str, ...]
    difference: str | None = None


def clear(kernel: Kernel, dev: str) -> Cleared:
    """Take it off. Raises ConfigError where there is no such interface, and none was ever shaped."""
    folder = StateFolder.open()
    with folder.locked():
        state_file = folder.file_of(dev)
        state = read_state(state_file)
        if state is not None:
            return Cleared(state.run, tuple(undo(kernel, state, state_file)), not_restored(kernel, state))
        index = kernel.device(dev).index
        names = recognise(kernel, index)  # of another user, or its state is lost
        if names is None:
            return Cleared(None, ())
        both = kernel.index_of(names.ifb) is not None
        return Cleared(names.run, tuple(remove(kernel, dev, index, names, both=both)))
