"""Taking off what bwbench has put on an interface; there may be nothing."""

from __future__ import annotations

from dataclasses import dataclass

from bwbench.base.errors import ConfigError
from bwbench.network.interface.kernel import Kernel
from bwbench.network.interface.remove import not_restored, recognise, remove
from bwbench.network.interface.run_state import StateFolder, forget_state, read_state


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
            removed = remove(kernel, dev, state.index, state.names, state.both)
            forget_state(state_file)  # the revert sees that, and ends
            return Cleared(state.run, tuple(removed), not_restored(kernel, state))
        index = kernel.index_of(dev)
        if index is None:
            kernel.device(dev)
            raise ConfigError(f"--dev {dev!r}: there is no such interface")
        names = recognise(kernel, index)  # of another user, or its state is lost
        if names is None:
            return Cleared(None, ())
        both = kernel.index_of(names.ifb) is not None
        return Cleared(names.run, tuple(remove(kernel, dev, index, names, both)))
