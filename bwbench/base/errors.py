"""The errors that users meet. Each message names what was attempted, the value, what is allowed and the next step."""

from __future__ import annotations

from dataclasses import dataclass

EXIT_OK = 0
EXIT_CELLS_FAILED = 1
EXIT_USER_INPUT = 2
EXIT_UNFIT_MACHINE = 3
EXIT_INTERRUPTED = 130


class BwbenchError(Exception):
    """Base of all errors with a message meant for the user; the command line prints it without a traceback."""

    exit_code: int = EXIT_CELLS_FAILED

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the user's input: where it stands and what to do about it."""

    message: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class ConfigError(BwbenchError):
    """The user's input is wrong. Carries every problem found, not only the first."""

    exit_code = EXIT_USER_INPUT

    def __init__(self, problems: list[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnfitMachineError(BwbenchError):
    """The machine or the link cannot do what is asked (no rights for namespaces, no netem, link out of tolerance)."""

    exit_code = EXIT_UNFIT_MACHINE


class LinkError(UnfitMachineError):
    """A link could not be set up, or does not behave as asked."""


class LaunchError(BwbenchError):
    """Workers could not be started."""


class WorkerError(BwbenchError):
    """A worker failed while training."""


class CellTakenError(BwbenchError):
    """Another process runs this cell at the moment."""


class RecordError(BwbenchError):
    """A result folder cannot be read or written."""


class ForeignCellError(RecordError):
    """A record is not of the cell whose id it has."""


class PackedRecordsError(RecordError):
    """A file of published records is broken, or of a newer version."""

    exit_code = EXIT_USER_INPUT
