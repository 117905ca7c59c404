"""Plays of Shakespeare as a stream of characters: predict the next one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import LANGUAGE_MODELLING, DataSpec
from bwbench.training.datasets.dataset import AbstractDataset, RemoteFile, Samples, Splits, validation_size

VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NUM_CHARACTERS = 1_115_394
_TEST_SHARE = 0.1


class TinyShakespeareConfig(ComponentConfig):
    """Options of ``tinyshakespeare``: ``context``, the characters of one sample."""

    context: int = Field(64, ge=1, le=4096)


class TinyShakespeare(AbstractDataset):
    """1.1 M characters of plays, 65 different ones, cut into pieces of ``context`` that do not overlap.

    The last tenth of the text is the test split, the end of the rest (a tenth of it, at most 5000 pieces) the
    validation split: both contiguous, since neighbouring pieces tell much about each other. The target at each
    position is the next character; accuracy counts positions. Inputs are character numbers, int64 ``[n, context]``.
    """

    Config: ClassVar[type[ComponentConfig]] = TinyShakespeareConfig
    name: ClassVar[str] = "tinyshakespeare"
    files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            "tinyshakespeare/input.txt",
            sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ),
    )
    options: TinyShakespeareConfig

    def spec(self) -> DataSpec:
        """Pieces of ``context`` characters, each one of 65."""
        return DataSpec((self.options.context,), len(VOCABULARY), LANGUAGE_MODELLING)

    def load(self, data_dir: Path) -> Splits:
        """All splits, from the one official file."""
        path = data_dir / self.files[0].relative_path
        content = np.frombuffer(self.read(data_dir, self.files[0].relative_path), np.uint8)
        if len(content) != _NUM_CHARACTERS:
            raise self.damaged(path, f"{len(content)} characters, {_NUM_CHARACTERS} expected")
        numbers = np.full(256, -1, np.int64)
        numbers[np.frombuffer(VOCABULARY.encode("ascii"), np.uint8)] = np.arange(len(VOCABULARY))
        text = numbers[content]
        if text.min() < 0:
            offset = int(np.argmin(text))
            raise self.damaged(path, f"byte {content[offset]} at offset {offset} is none of its 65 characters")
        num_test = int(len(text) * _TEST_SHARE)
        train = _pieces(text[:-num_test], self.options.context)
        first_validation = len(train) - validation_size(len(train))
        return Splits(
            train.take(slice(0, first_validation)),
            train.take(slice(first_validation, None)),
            _pieces(text[-num_test:], self.options.context),
        )


def _pieces(text: NDArray[np.int64], context: int) -> Samples:
    """Inputs ``[n, context]`` and, one character on, targets ``[n, context]``."""
    num_pieces = (len(text) - 1) // context
    end = num_pieces * context
    return Samples(text[:end].reshape(num_pieces, context), text[1 : end + 1].reshape(num_pieces, context))
