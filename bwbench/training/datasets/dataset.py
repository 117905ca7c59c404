"""What every data set offers: its shape without loading, its splits as arrays, and the files that it needs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import DataSpec
from bwbench.base.errors import ConfigError
from bwbench.training.datasets.data_files import FileDigest as FileDigest
from bwbench.training.datasets.data_files import RemoteFile as RemoteFile
from bwbench.training.datasets.data_files import damaged_text, found_form, missing_text, unfit_files

VALIDATION_SHARE = 0.1
MAX_VALIDATION = 5000  # evaluation stands still between training steps: more would only cost time
_SPLIT_SEED = 20170612  # fixed for ever: results are comparable only on the same split


@dataclass(frozen=True)
class Samples:
    """One split of a data set.

    Attributes:
        inputs: float32 ``[n, *input_shape]``; character numbers as int64 where the task is language modelling.
        targets: int64 ``[n]``, or ``[n, context]`` where the task is language modelling.
    """

    inputs: NDArray[Any]
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.targets)

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: NDArray[Any] | slice) -> Samples:
        """The samples at ``indices``, in that order."""
        return Samples(self.inputs[indices], self.targets[indices])


@dataclass(frozen=True)
class Splits:
    """Training, validation (decides when the target is reached) and test (decides nothing)."""

    train: Samples
    validation: Samples
    test: Samples


class AbstractDataset(ABC):
    """A data set, described by its class and its options; nothing is read before ``load``.

    Attributes:
        Config: the options' class.
        name: as in the registry; used in messages and by ``bwbench data fetch``.
        metrics: what an evaluation reports. ``accuracy`` rises, ``loss`` falls.
        files: what ``load`` needs in the data folder; empty where nothing is downloaded.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    files: ClassVar[tuple[RemoteFile, ...]] = ()

    def __init__(self, options: ComponentConfig) -> None:
        self.options = options

    @abstractmethod
    def spec(self) -> DataSpec:
        """Shapes and task, without reading a file."""

    @abstractmethod
    def load(self, data_dir: Path) -> Splits:
        """All samples, read from ``data_dir``; the same for every seed, rank and machine.

        Raises ConfigError where a file is missing or damaged; its message says what to do.
        """

    def missing(self, data_dir: Path) -> ConfigError | None:
        """The error for files that are not in ``data_dir``; None where all are there. Reads none of them."""
        absent = [file for file in self._needed if found_form(file, data_dir) is None]
        return ConfigError(missing_text(self.name, absent, data_dir)) if absent else None

    def unfit(self, data_dir: Path) -> ConfigError | None:
        """The error for files that are missing or damaged, by their checksums; None where all are as they should be."""
        return unfit_files(self.name, self._needed, data_dir)

    def find(self, data_dir: Path, relative_path: str) -> Path:
        """Where a file of this data set lies: in its own place, or in one of those that serve as well."""
        known = next((file for file in self._needed if file.relative_path == relative_path), FileDigest(relative_path))
        return data_dir / (found_form(known, data_dir) or known).relative_path

    def read(self, data_dir: Path, relative_path: str) -> bytes:
        """Content of what ``find`` finds; raises ConfigError that says how to get it where it is missing."""
        path = self.find(data_dir, relative_path)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise self.missing(data_dir) or ConfigError(
                f"data set {self.name!r} needs {path}, which is missing; put it there"
            ) from None
        except OSError as error:
            raise ConfigError(f"data set {self.name!r}: {path} cannot be read: {error.strerror}") from error

    def damaged(self, path: Path, what: str) -> ConfigError:
        """The error for a file that cannot be what it should be."""
        return ConfigError(damaged_text(self.name, path, what))

    @property
    def _needed(self) -> list[FileDigest]:
        return [result for remote in self.files for result in remote.results]


def standardise(samples: Samples, mean: tuple[float, ...], std: tuple[float, ...]) -> Samples:
    """Grey or colour values 0..255 as float32 of mean 0 and deviation 1.

    Pictures are parted as bytes first and standardised last: as floats they are four times as large.

    Args:
        samples: inputs uint8 ``[n, channels, height, width]``.
        mean: of each channel, with values in 0..1.
        std: likewise.
    """
    centre, scale = (np.array(values, np.float32).reshape(-1, 1, 1) * 255 for values in (mean, std))
    inputs = np.subtract(samples.inputs, centre, dtype=np.float32)
    inputs /= scale  # in place: no second copy as floats
    return Samples(inputs, samples.targets)


def split_validation(samples: Samples) -> tuple[Samples, Samples]:
    """Part training data into (training, validation): a random tenth, at most 5000, always the same one."""
    order = np.random.default_rng([_SPLIT_SEED, len(samples)]).permutation(len(samples))
    num_validation = validation_size(len(samples))
    # Sorted: reading in file order is kinder to the memory, and the training order is drawn later anyway.
    validation, train = np.sort(order[:num_validation]), np.sort(order[num_validation:])
    return samples.take(train), samples.take(validation)


def split_test(samples: Samples, share: float = 0.2) -> tuple[Samples, Samples]:
    """Part a data set that has no official test split into (training, test): always the same one."""
    order = np.random.default_rng([_SPLIT_SEED, 1, len(samples)]).permutation(len(samples))
    num_test = int(len(samples) * share)
    return samples.take(np.sort(order[num_test:])), samples.take(np.sort(order[:num_test]))


def validation_size(num_train: int) -> int:
    """Samples of the training data that become the validation split."""
    return min(int(num_train * VALIDATION_SHARE), MAX_VALIDATION)


DATA_VARIABLE = "BWBENCH_DATA"


def data_folder() -> Path:
    """Absolute path of the data folder, which need not exist yet: ``BWBENCH_DATA``, else the user's cache."""
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of XDG says that a relative path is to be ignored.
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "bwbench" / "data"
