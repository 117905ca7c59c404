"""What goes on the wire: codecs that turn a gradient into bytes and back."""

from bwbench.methods.compression.chain import build_codec
from bwbench.methods.compression.codec import AbstractCodec, AbstractLinearCodec
from bwbench.methods.compression.error_feedback import ErrorFeedback

__all__ = ["AbstractCodec", "AbstractLinearCodec", "ErrorFeedback", "build_codec"]
