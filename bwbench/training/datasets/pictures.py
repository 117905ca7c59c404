"""Pictures in official files: MNIST and Fashion-MNIST in one format, CIFAR-10 in its binary version.

Where torchvision has fetched them before, its files serve as well: ``FashionMNIST/raw``, ``cifar-10-batches-py``.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bwbench.base.data_spec import DataSpec
from bwbench.training.datasets.dataset import (
    AbstractDataset,
    FileDigest,
    RemoteFile,
    Samples,
    Splits,
    split_validation,
    standardise,
)

_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
_UNSIGNED_BYTES = 0x08  # third byte of the magic number; the fourth is the number of dimensions


_Sums = tuple[str, str]  # md5 of a file as it is served, and of what is inside


def _files(folder: str, torchvision: str, url: str, sums: tuple[_Sums, _Sums, _Sums, _Sums]) -> tuple[RemoteFile, ...]:
    """The four files of a set, in its own folder or in torchvision's, packed or not."""
    found = []
    for name, (packed, unpacked) in zip((_TRAIN_IMAGES, _TRAIN_LABELS, _TEST_IMAGES, _TEST_LABELS), sums, strict=True):
        plain, theirs = name.removesuffix(".gz"), f"{torchvision}/raw"
        also = (
            FileDigest(f"{folder}/{plain}", md5=unpacked),
            FileDigest(f"{theirs}/{name}", md5=packed, unpacked_md5=unpacked),
            FileDigest(f"{theirs}/{plain}", md5=unpacked),
        )
        found.append(RemoteFile(f"{folder}/{name}", packed, None, unpacked, also, url=f"{url}/{name}"))
    return tuple(found)


class AbstractIdxPictures(AbstractDataset):
    """Grey 28x28 pictures in 10 classes in four idx files; ``mean`` and ``std`` of the training pixels."""

    mean: ClassVar[float]  # with grey in 0..1
    std: ClassVar[float]

    def spec(self) -> DataSpec:
        """Pictures of 1x28x28 in 10 classes."""
        return DataSpec((1, 28, 28), 10)

    def load(self, data_dir: Path) -> Splits:
        """All splits, from the four official files."""
        train = self._part(data_dir, _TRAIN_IMAGES, _TRAIN_LABELS)
        parts = (*split_validation(train), self._part(data_dir, _TEST_IMAGES, _TEST_LABELS))
        return Splits(*(standardise(part, (self.mean,), (self.std,)) for part in parts))

    def _part(self, data_dir: Path, images_name: str, labels_name: str) -> Samples:
        images = self._idx(data_dir, f"{self.name}/{images_name}", 3)
        labels = self._idx(data_dir, f"{self.name}/{labels_name}", 1)
        images_path, labels_path = (self.find(data_dir, f"{self.name}/{name}") for name in (images_name, labels_name))
        if images.shape[1:] != (28, 28):
            raise self.damaged(images_path, f"pictures of {images.shape[1]}x{images.shape[2]}, 28x28 expected")
        if len(images) != len(labels):
            raise self.damaged(
                labels_path, f"{len(labels)} labels for the {len(images)} pictures of {images_path.name}"
            )
        if len(labels) and labels.max() > 9:
            raise self.damaged(labels_path, f"label {labels.max()}, at most 9 expected")
        return Samples(images[:, None], labels.astype(np.int64))

    def _idx(self, data_dir: Path, relative_path: str, num_dimensions: int) -> NDArray[np.uint8]:
        """Content of an idx file, gzipped or not: magic number, sizes (big-endian), then bytes."""
        path = self.find(data_dir, relative_path)
        content = self.read(data_dir, relative_path)
        if path.suffix == ".gz":
            try:
                content = gzip.decompress(content)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise self.damaged(path, str(error)) from error
        header_bytes = 4 * (1 + num_dimensions)
        if len(content) < header_bytes:
            raise self.damaged(path, f"{len(content)} bytes unpacked, which is less than its header")
        magic, *shape = struct.unpack(f">{1 + num_dimensions}I", content[:header_bytes])
        if magic != (_UNSIGNED_BYTES << 8) + num_dimensions:
            raise self.damaged(path, f"magic number {magic}, {(_UNSIGNED_BYTES << 8) + num_dimensions} expected")
        expected = header_bytes + math.prod(shape)
        if len(content) != expected:
            raise self.damaged(path, f"{len(content)} bytes unpacked, {expected} expected")
        return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


class Mnist(AbstractIdxPictures):
    """70,000 grey 28x28 digits in 10 classes: 55,000 to train, 5,000 to validate, 10,000 to test; standardised."""

    name: ClassVar[str] = "mnist"
    files: ClassVar[tuple[RemoteFile, ...]] = _files(
        "mnist",
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist",  # the author's own page no longer serves the files
        (
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
            ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
            ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
            ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
        ),
    )
    mean: ClassVar[float] = 0.1307
    std: ClassVar[float] = 0.3081


class FashionMnist(AbstractIdxPictures):
    """70,000 grey 28x28 pictures of clothes in 10 classes, parted like MNIST; harder (Xiao et al. 2017)."""

    name: ClassVar[str] = "fashion-mnist"
    files: ClassVar[tuple[RemoteFile, ...]] = _files(
        "fashion-mnist",
        "FashionMNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        (
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
            ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
            ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
            ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
        ),
    )
    mean: ClassVar[float] = 0.2860
    std: ClassVar[float] = 0.3530


_CIFAR_FOLDER = "cifar-10-batches-bin"
_CIFAR_TRAIN = tuple(f"{_CIFAR_FOLDER}/data_batch_{number}.bin" for number in range(1, 6))
_CIFAR_TEST = (f"{_CIFAR_FOLDER}/test_batch.bin",)
_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)
_PYTHON_MD5 = (  # of the same six as torchvision keeps them: the data set's Python version, which is pickled
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
    "40351d587109b95175f43aff81a1287e",
)


def _cifar_members() -> tuple[FileDigest, ...]:
    members = []
    for path, sha256, md5 in zip(_CIFAR_TRAIN + _CIFAR_TEST, _SHA256, _PYTHON_MD5, strict=True):
        pickled = FileDigest(f"cifar-10-batches-py/{Path(path).stem}", md5=md5)
        members.append(FileDigest(path, sha256=sha256, also=(pickled,)))
    return tuple(members)


_PIXEL_BYTES = 3 * 32 * 32
_RECORD_BYTES = 1 + _PIXEL_BYTES  # label, then the red, the green and the blue plane
_RECORDS_PER_FILE = 10_000
_CIFAR_MEAN = (0.4914, 0.4822, 0.4465)  # a channel, of the training pixels, with 0..1
_CIFAR_STD = (0.2470, 0.2435, 0.2616)


class Cifar10(AbstractDataset):
    """60,000 colour 32x32 pictures in 10 classes: 45,000 to train, 5,000 to validate, 10,000 to test.

    Each channel is standardised; there is no augmentation. All splits take 740 MB of memory in each worker.
    """

    name: ClassVar[str] = "cifar10"
    files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            f"{_CIFAR_FOLDER}.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            members=_cifar_members(),
        ),
    )

    def spec(self) -> DataSpec:
        """Pictures of 3x32x32 in 10 classes."""
        return DataSpec((3, 32, 32), 10)

    def load(self, data_dir: Path) -> Splits:
        """All splits, from the six official files."""
        parts = (*split_validation(self._part(data_dir, _CIFAR_TRAIN)), self._part(data_dir, _CIFAR_TEST))
        return Splits(*(standardise(part, _CIFAR_MEAN, _CIFAR_STD) for part in parts))

    def _part(self, data_dir: Path, relative_paths: tuple[str, ...]) -> Samples:
        inputs = np.empty((len(relative_paths) * _RECORDS_PER_FILE, 3, 32, 32), np.uint8)
        targets = np.empty(len(inputs), np.int64)
        for number, relative_path in enumerate(relative_paths):
            path, content = self.find(data_dir, relative_path), self.read(data_dir, relative_path)
            labels, pixels = self._binary(path, content) if path.suffix == ".bin" else self._pickled(path, content)
            if labels.max() > 9:
                raise self.damaged(path, f"label {labels.max()}, at most 9 expected")
            rows = slice(number * _RECORDS_PER_FILE, (number + 1) * _RECORDS_PER_FILE)
            targets[rows] = labels
            inputs[rows] = pixels.reshape(-1, 3, 32, 32)
        return Samples(inputs, targets)

    def _binary(self, path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Labels ``[n]`` and pixels ``[n, 3072]`` of a file of the binary version."""
        if len(content) != _RECORDS_PER_FILE * _RECORD_BYTES:
            raise self.damaged(path, f"{len(content)} bytes, {_RECORDS_PER_FILE * _RECORD_BYTES} expected")
        records = np.frombuffer(content, np.uint8).reshape(_RECORDS_PER_FILE, _RECORD_BYTES)
        return records[:, 0], records[:, 1:]

    def _pickled(self, path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The same of a file of the Python version, which holds the same planes."""
        try:
            batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
            labels, pixels = np.array(batch["labels"], np.uint8), np.asarray(batch["data"])
        except Exception as error:  # a broken pickle fails in any way
            raise self.damaged(path, f"it is no pickled batch of pictures: {type(error).__name__}: {error}") from None
        expected = (_RECORDS_PER_FILE, _PIXEL_BYTES)
        if labels.shape != expected[:1] or pixels.shape != expected or pixels.dtype != np.uint8:
            found = f"{labels.shape} labels and {pixels.shape} pixels of {pixels.dtype}"
            raise self.damaged(path, f"{found}, {expected} of uint8 expected")
        return labels, pixels


class _ArraysOnly(pickle.Unpickler):
    """Reads plain values and arrays. A pickle may name any function to be called: here none but those of an array."""

    _KNOWN: ClassVar[dict[str, Any]] = {
        "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
        "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
        "numpy.ndarray": np.ndarray,
        "numpy.dtype": np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle names; raises UnpicklingError for anything else."""
        if (known := self._KNOWN.get(f"{module}.{name}")) is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no pictures need")
        return known
