"""The files that a data set needs: their checksums, where else they may lie, and whether they are whole."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bwbench.base.errors import ConfigError, Problem

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class FileDigest:
    """A file in the data folder and its official checksum (hexadecimal; sha256 where both are known).

    Attributes:
        unpacked_md5: of the content of a file that ends in .gz. Packed anew, the same content has other bytes.
        also: files that hold the same in another folder or form, such as torchvision's; the first one that is there
            serves where this one is not.
    """

    relative_path: str
    md5: str | None = None
    sha256: str | None = None
    unpacked_md5: str | None = None
    also: tuple[FileDigest, ...] = ()

    @property
    def forms(self) -> tuple[FileDigest, ...]:
        """This one, and those that serve as well."""
        return (self, *self.also)


@dataclass(frozen=True)
class RemoteFile(FileDigest):
    """A file to download.

    Attributes:
        url: where it officially lies, http or https.
        members: not empty for a tar archive: the members to take out. A member's path in the archive is its path
            in the data folder. The archive itself does not stay.
    """

    url: str = ""
    members: tuple[FileDigest, ...] = ()

    @property
    def results(self) -> tuple[FileDigest, ...]:
        """The files that lie in the data folder once this one has been fetched."""
        return self.members or (self,)


def found_form(file: FileDigest, data_dir: Path) -> FileDigest | None:
    """The form in which a file is there; None where it is not."""
    return next((form for form in file.forms if (data_dir / form.relative_path).is_file()), None)


def has_digest(path: Path, digest: FileDigest) -> bool:
    """Whether the file is there with the right checksum."""
    name, expected = checksum(digest)
    try:
        with path.open("rb") as file:
            return _hexdigest(name, iter(lambda: file.read(CHUNK_BYTES), b"")) == expected
    except OSError:
        return False


def is_whole(path: Path, digest: FileDigest) -> bool:
    """Whether a file that is there holds what it should; one that has no checksum does."""
    if not (digest.md5 or digest.sha256) or has_digest(path, digest):
        return True
    if digest.unpacked_md5 is None:
        return False
    try:
        with gzip.open(path) as file:
            return _hexdigest("md5", iter(lambda: file.read(CHUNK_BYTES), b"")) == digest.unpacked_md5
    except (OSError, EOFError, zlib.error):
        return False


def checksum(digest: FileDigest) -> tuple[str, str]:
    """Name and value of the best checksum known; md5 is all that some official pages give."""
    if digest.sha256:
        return "sha256", digest.sha256
    assert digest.md5, f"{digest.relative_path} has no checksum"
    return "md5", digest.md5


def unfit_files(dataset: str, files: Iterable[FileDigest], data_dir: Path) -> ConfigError | None:
    """What is wrong with the files of a data set: those that are missing in one message, each damaged one in its own.

    None where nothing is. Reads all of them: some 30 MB take 0.1 s.
    """
    problems: list[Problem] = []
    absent: list[FileDigest] = []
    for file in files:
        form = found_form(file, data_dir)
        if form is None:
            absent.append(file)
            continue
        path = data_dir / form.relative_path
        try:
            path.open("rb").close()
        except OSError as error:
            problems.append(Problem(f"data set {dataset!r}: {path} cannot be read: {error.strerror}"))
            continue
        if not is_whole(path, form):
            name, expected = checksum(form)
            what = f"{path.stat().st_size:,} bytes whose {name} is not the official {expected}"
            problems.append(Problem(damaged_text(dataset, path, what)))
    if absent:
        problems.insert(0, Problem(missing_text(dataset, absent, data_dir)))
    return ConfigError(problems) if problems else None


def missing_text(dataset: str, absent: list[FileDigest], data_dir: Path) -> str:
    """What to say of files that are not there in any form: the first one, how many more, and what to do."""
    first, more = absent[0], len(absent) - 1
    path = data_dir / first.relative_path
    what = f"{path}, which is missing. Get it" if not more else f"{path} and {more} more, which are missing. Get them"
    folders = " or ".join(dict.fromkeys(str(Path(form.relative_path).parent) for form in first.forms))
    return (
        f"data set {dataset!r} needs {what} with 'bwbench data fetch {dataset}', "
        f"or set BWBENCH_DATA to the folder in which {folders} lies"
    )


def damaged_text(dataset: str, path: Path, what: str) -> str:
    """What to say of a file that cannot be what it should be."""
    return f"data set {dataset!r}: {path} is damaged: {what}. Delete it and run 'bwbench data fetch {dataset}'"


def _hexdigest(name: str, chunks: Iterable[bytes]) -> str:
    found = hashlib.new(name, usedforsecurity=False)
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()
