"""Measuring a network of one's own, second by second, into trace files that links can follow."""

from bwbench.network.record.listener import Listener, listen
from bwbench.network.record.record_session import DEFAULT_PORT
from bwbench.network.record.recording import IPERF3_PORT, RecordSummary, record, record_with_iperf3

__all__ = ["DEFAULT_PORT", "IPERF3_PORT", "Listener", "RecordSummary", "listen", "record", "record_with_iperf3"]
