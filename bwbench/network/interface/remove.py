"""Taking a run off an interface: what is its own and nothing else, as often as one likes."""

from __future__ import annotations

from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.plan import IFB_PREFIX, SHAPED, Names, is_root_handle
from bwbench.network.interface.run_state import RunState
from bwbench.network.interface.settings import INGRESS, INGRESS_PARENT, ROOT, Htb, Tbf, show_handle
from bwbench.network.interface.snapshot import Snapshot


def remove(kernel: Kernel, dev: str, index: int | None, names: Names, both: bool) -> list[str]:
    """Remove what run ``names`` has put on interface number ``index``; returns what that was, for people.

    Args:
        index: None where the interface is gone.
        both: whether the ingress qdisc is ours.
    """
    removed = []
    if index is not None and kernel.index_of(dev) == index:
        if both:
            removed += _remove_ingress(kernel, dev, index)
        if kernel.delete_qdisc(index, names.root, ROOT):
            removed.append(f"root qdisc {show_handle(names.root)} of {dev} with all below it")
    if both and kernel.delete_interface(names.ifb):
        removed.append(f"interface {names.ifb}")
    return removed


def _remove_ingress(kernel: Kernel, dev: str, index: int) -> list[str]:
    removed = []
    filters = len(kernel.filters(index, INGRESS))
    if filters and kernel.delete_filters(index, INGRESS):
        removed.append(f"{filters} filter(s) on what comes into {dev}")
    # Whoever has put filters of his own into it meanwhile keeps it.
    if not kernel.has_foreign_filters(index, INGRESS) and kernel.delete_qdisc(index, INGRESS, INGRESS_PARENT):
        removed.append(f"ingress qdisc of {dev}")
    return removed


def not_restored(kernel: Kernel, state: RunState) -> str | None:
    """How the qdiscs differ from what they were before the run; None where they do not, or the interface is gone."""
    if kernel.index_of(state.dev) != state.index:
        return None
    now = Snapshot.of(kernel.described(state.index))
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
