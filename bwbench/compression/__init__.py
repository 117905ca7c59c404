"""What goes on the wire: codecs that turn a gradient into bytes and back."""

from bwbench.compression.base import AbstractCodec
from bwbench.compression.chain import build_codec, refusal
from bwbench.compression.error_feedback import ErrorFeedback

__all__ = ["AbstractCodec", "ErrorFeedback", "build_codec", "refusal"]
