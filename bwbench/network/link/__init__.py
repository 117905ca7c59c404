"""What the network is asked to be: one pure description, used by both back ends, by the probe and by prediction."""

from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, UDP_PAYLOAD_BYTES
from bwbench.network.link.link import UNSHAPED, Link
from bwbench.network.link.node_link import MINIMUM_QUEUE_BYTES

__all__ = ["ETHERNET_FRAME_BYTES", "MINIMUM_QUEUE_BYTES", "TCP_PAYLOAD_BYTES", "UDP_PAYLOAD_BYTES", "UNSHAPED", "Link"]
