"""TCP settings of the nodes, set in each node's namespace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from bwbench.base.units import Memory, PositiveDuration


class TcpSettings(BaseModel):
    """What the kernel's TCP is told in every node; None leaves the kernel's own value. All of it is recorded.

    Attributes:
        congestion_control: ``reno``, ``cubic``, ``bbr``, …; must be among the host's
            net.ipv4.tcp_allowed_congestion_control. None takes cubic where it is allowed, else reno.
        slow_start_after_idle: whether a connection that was silent begins slowly again (the kernel's default is yes).
        receive_buffer_bytes, send_buffer_bytes: the largest buffer of a connection.
        rto_max_s: longest wait between two retransmissions (net.ipv4.tcp_rto_max_ms, from Linux 6.15 on).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    congestion_control: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")] | None = None
    slow_start_after_idle: bool | None = None
    receive_buffer_bytes: Memory | None = Field(None, alias="receive_buffer")
    send_buffer_bytes: Memory | None = Field(None, alias="send_buffer")
    rto_max_s: PositiveDuration | None = Field(None, alias="rto_max")

    def sysctls(self) -> dict[str, str]:
        """Names below net.ipv4 and the text to write; without the congestion control and its default."""
        found: dict[str, Any] = {}
        if self.slow_start_after_idle is not None:
            found["tcp_slow_start_after_idle"] = int(self.slow_start_after_idle)
        for name, value in (("tcp_rmem", self.receive_buffer_bytes), ("tcp_wmem", self.send_buffer_bytes)):
            if value is not None:
                found[name] = f"4096 {min(131_072, int(value))} {int(value)}"
        if self.rto_max_s is not None:
            found["tcp_rto_max_ms"] = round(self.rto_max_s * 1e3)
        return {name: str(value) for name, value in found.items()}
