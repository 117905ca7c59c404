"""The ``bwbench`` command: its sub-commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
from itertools import takewhile
from typing import Annotated, Any, NoReturn

import typer

from bwbench import __version__
from bwbench.base.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT_MACHINE, EXIT_USER_INPUT, BwbenchError
from bwbench.base.interruption import ENDING, Interruption, handle
from bwbench.cli import machine_commands, result_commands, run_commands, verify_command, watch_command
from bwbench.cli.clean_text import cleaned
from bwbench.cli.command_help import Command, GroupedCommands, usage_error
from bwbench.cli.demo import demo
from bwbench.cli.init.init_command import init
from bwbench.cli.link import LINK_HELP, LinkGroup
from bwbench.cli.shapes_command import shapes
from bwbench.cli.standard_files import mend_standard_files

# Newer versions of typer bring their own copy of click, older ones use click itself: its public class leads to either.
_UsageError: Any = typer.BadParameter.__base__


class _Interrupted(Exception):
    """Ctrl-C, or a signal that ends us as it does."""


class _Commands(GroupedCommands):
    """All commands. Of an interruption newer versions of typer make an exit status, so that nothing would be said."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error


app = typer.Typer(
    name="bwbench",
    cls=_Commands,
    help="On my link, which way of data-parallel training reaches my target accuracy first?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(demo, init),
    *(run_commands.run, run_commands.sweep, run_commands.launch_script, run_commands.plan, run_commands.tune),
    *(result_commands.status, result_commands.show, result_commands.plot, result_commands.report),
    watch_command.watch,
    *(result_commands.compare, result_commands.export, result_commands.merge, result_commands.publish),
    verify_command.verify,
    shapes,
    *(machine_commands.list_, machine_commands.doctor, machine_commands.clean),
):
    app.command(command.__name__.strip("_").replace("_", "-"), cls=Command)(command)
app.add_typer(typer.Typer(cls=LinkGroup, help=LINK_HELP, no_args_is_help=True), name="link")
app.add_typer(machine_commands.data, name="data")


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"bwbench {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Entry point of the console script: runs the command and leaves with the exit code of docs/results-format.md."""
    handle(ENDING, Interruption())  # all as Ctrl-C does: the running cell is recorded as interrupted
    mend_standard_files()
    sys.stdout, sys.stderr = cleaned(sys.stdout), cleaned(sys.stderr)
    code = _run(sys.argv[1:])
    if sys.stdout is not None:
        with contextlib.suppress(OSError):  # what could not be written has been said; closed, it is not tried again
            try:
                sys.stdout.flush()
            except OSError:
                sys.stdout.close()
    sys.exit(code)


@functools.cache  # typer takes longer for it than most commands for their work: not again where one process runs many
def _commands() -> Any:
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    try:
        result = _commands()(arguments, prog_name="bwbench", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else EXIT_OK
    except BwbenchError as error:
        if "--debug" in takewhile(lambda word: word.startswith("-"), arguments):  # ours, not one of a command run
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except _UsageError as error:
        where = error.ctx.command_path if error.ctx else "bwbench"
        print(f"error: {usage_error(error.format_message(), where)}", file=sys.stderr)
        return EXIT_USER_INPUT
    except (KeyboardInterrupt, _Interrupted, typer.Abort):
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, e.g. `bwbench status | head`
        sys.stderr.close()
        return EXIT_OK
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            print(f"error: {str(error.filename)[:60]}…: {error.strerror}; name another one", file=sys.stderr)
            return EXIT_USER_INPUT
        if error.errno == errno.ENOENT and os.stat(".").st_nlink == 0:
            print("error: the working directory has been removed; cd to another one", file=sys.stderr)
            return EXIT_USER_INPUT
        from bwbench.records.files import machine_fault  # inside, as all that `bwbench --help` can do without

        if (text := machine_fault(error)) is None:
            raise
        print(f"error: {text}", file=sys.stderr)
        return EXIT_UNFIT_MACHINE


if __name__ == "__main__":
    main()
