"""May this process change an interface?"""

from __future__ import annotations

from bwbench.base.errors import UnfitMachineError
from bwbench.network.namespaces import CAP_NET_ADMIN, has_capability


def may_change_interfaces() -> bool:
    """Whether it has the capability."""
    return has_capability(CAP_NET_ADMIN)


def require_rights(command: str) -> None:
    """Raise UnfitMachineError with the line to type where it may not; ``command`` is what was typed."""
    if not may_change_interfaces():
        raise UnfitMachineError(
            f"changing a real interface needs root (CAP_NET_ADMIN), and nothing was changed; run: sudo {command}"
        )
