"""What goes on the wire: codecs that turn a gradient into bytes and back."""

from bwbench.compression.base import AbstractCodec
from bwbench.compression.chain import build_codec
from bwbench.compression.error_feedback import ErrorFeedback
from bwbench.compression.linear import AbstractLinearCodec

__all__ = ["AbstractCodec", "AbstractLinearCodec", "ErrorFeedback", "build_codec"]
