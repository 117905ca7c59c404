"""What ``--help`` shows beside options: the group of every command, and two examples or more.

A new command gets its entry in ``COMMANDS``, and ``cls=Command`` where it is registered. tests/unit/cli/test_help.py
says what is missing.
"""

from __future__ import annotations

import contextlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

RUN = "Run: from an experiment file to results"
LOOK = "Look: at results, while they come and later"
LINK = "Link: the network by itself, for any program"
SHARE = "Share: results for others, and for other programs"
MACHINE = "Machine: what is on this one, and what it can do"
GROUPS = (RUN, LOOK, LINK, SHARE, MACHINE)


@dataclass(frozen=True)
class CommandHelp:
    """What the help of one command says beside its options.

    Attributes:
        group: one of ``GROUPS``; of a command inside of a group of commands the one that this is in.
        examples: for each what it does, and the line that does it.
    """

    group: str
    examples: tuple[tuple[str, str], ...]


# By the words after `bwbench`, in the order of `bwbench --help`. mine.yaml stands for a file of the user's.
COMMANDS: dict[str, CommandHelp] = {
    "demo": CommandHelp(
        RUN,
        (
            ("an example, from its question to its answer", "bwbench demo"),
            ("with its results in another folder", "bwbench demo ~/bwbench-results"),
        ),
    ),
    "init": CommandHelp(
        RUN,
        (
            ("a first experiment, which asks for your link", "bwbench init"),
            ("without questions", "bwbench init experiment my_office --nodes 3 --link cable"),
            ("a codec of your own, as a package", "bwbench init codec one-byte"),
        ),
    ),
    "run": CommandHelp(
        RUN,
        (
            ("every cell that is not done yet", "bwbench run mine.yaml"),
            ("with another value for a key of the file", "bwbench run mine.yaml --set nodes=8"),
            (
                "two methods on one link, and one node for comparison",
                "bwbench run mine.yaml --only 'arm=ring|ddp|single' --only 'link.bandwidth=10 Mbit/s'",
            ),
        ),
    ),
    "sweep": CommandHelp(
        RUN,
        (
            ("all experiments of a folder, and one more", "bwbench sweep experiments mine.yaml"),
            ("the second quarter of the cells, on another machine", "bwbench sweep experiments --shard 2/4"),
        ),
    ),
    "plan": CommandHelp(
        RUN,
        (
            ("what would run, for how long, and whether its data are there", "bwbench plan mine.yaml"),
            ("for a program", "bwbench plan mine.yaml --only arm=ring --json"),
        ),
    ),
    "tune": CommandHelp(
        RUN,
        (
            ("what it would train, and for how long", "bwbench tune mine.yaml --dry-run"),
            ("search, and write the table", "bwbench tune mine.yaml --output rates.yaml"),
        ),
    ),
    "launch-script": CommandHelp(
        RUN,
        (
            ("torchrun on every host", "bwbench launch-script mine.yaml > train.sh"),
            ("one method, on fewer nodes", "bwbench launch-script mine.yaml --set nodes=2 --only arm=ddp > two.sh"),
            ("four ranks on every host", "bwbench launch-script --per-host 4 mine.yaml > train.sh"),
            ("eight machines of a cluster", "bwbench launch-script --slurm --array 8 experiments > sweep.sh"),
        ),
    ),
    "shapes": CommandHelp(
        RUN,
        (
            ("of a model of pictures", "bwbench shapes my_model.py:Model --input 3,224,224"),
            ("of a model of text", "bwbench shapes my_model.py:make_gpt --tokens 1024 --out gpt.json"),
        ),
    ),
    "list": CommandHelp(
        RUN,
        (
            ("methods, and what each of them sends", "bwbench list algorithms --parameters 200000 --nodes 8"),
            ("data sets with their options, for a program", "bwbench list datasets --json"),
        ),
    ),
    "status": CommandHelp(
        LOOK,
        (
            ("all cells of an experiment", "bwbench status results/mine"),
            ("what the results cost", "bwbench status results --spent"),
        ),
    ),
    "show": CommandHelp(
        LOOK,
        (
            ("by the beginning of its id", "bwbench show 3f2a"),
            ("by its folder", "bwbench show results/mine/ring-3f2a9c01de"),
        ),
    ),
    "compare": CommandHelp(
        LOOK,
        (
            ("how many times sooner than ddp", "bwbench compare results/mine --baseline ddp"),
            (
                "by number of nodes, at another target",
                "bwbench compare results/mine --baseline single --by nodes --target accuracy=0.8",
            ),
        ),
    ),
    "plot": CommandHelp(
        LOOK,
        (
            ("the figures that answer", "bwbench plot results/mine"),
            ("one, for a column of a paper", "bwbench plot results/mine --figure bandwidth --width column"),
        ),
    ),
    "watch": CommandHelp(
        LOOK,
        (
            ("an experiment that runs", "bwbench watch results/mine"),
            ("at any port that is free", "bwbench watch results --port 0"),
        ),
    ),
    "report": CommandHelp(
        LOOK,
        (
            ("a page to explore in the browser", "bwbench report results/mine"),
            ("a section for a paper", "bwbench report results/mine --format latex --out section.tex"),
        ),
    ),
    "link": CommandHelp(
        LINK,
        (
            ("a shell in a node of a slow network", "bwbench link run --nodes 1 --preset dsl -- bash"),
            ("does a link do what it is asked?", "bwbench link verify --bandwidth '10 Mbit/s' --latency '5 ms'"),
        ),
    ),
    "link verify": CommandHelp(
        LINK,
        (
            ("four nodes, all sending", "bwbench link verify --bandwidth '10 Mbit/s' --latency '2.5 ms'"),
            ("the link of an experiment", "bwbench link verify --link mine.yaml --nodes 8 --json"),
        ),
    ),
    "link run": CommandHelp(
        LINK,
        (
            ("a shell in one node", "bwbench link run --nodes 1 --preset dsl -- bash"),
            ("each node pings the first one", "bwbench link run --preset 4g --nodes 3 -- ping -c 3 {address:0}"),
            (
                "a server and its client",
                "bwbench link run --nodes 2 --bandwidth '10 Mbit/s' -- \\\n"
                "  sh -c 'if [ {rank} = 0 ]; then iperf3 -s -1;\n"
                "    else sleep 1; iperf3 -c {address:0}; fi'",
            ),
        ),
    ),
    "link set": CommandHelp(
        LINK,
        (
            ("while 'link run' goes on in another terminal", "bwbench link set --bandwidth '2 Mbit/s' --loss 0.01"),
            ("one of several", "bwbench link set --run 4711 --latency '80 ms'"),
        ),
    ),
    "link presets": CommandHelp(
        LINK,
        (
            ("all names", "bwbench link presets"),
            ("and where their figures come from", "bwbench link presets --sources"),
        ),
    ),
    "link show": CommandHelp(
        LINK,
        (
            ("what a known link is like", "bwbench link show --preset dsl"),
            ("with one node that differs", "bwbench link show --preset dsl --override '3:bandwidth=1 Mbit/s'"),
        ),
    ),
    "link record": CommandHelp(
        LINK,
        (
            ("on the other host", "bwbench link record --listen --token SECRET"),
            ("here: a minute up, a minute down", "bwbench link record --to HOST --token SECRET --out office.tsv"),
        ),
    ),
    "link apply": CommandHelp(
        LINK,
        (
            ("what would be done", "bwbench link apply --dev wlan0 --peer 10.0.0.2 --bandwidth '5 Mbit/s' --dry-run"),
            ("for an hour", "bwbench link apply --dev wlan0 --peer 10.0.0.2 --preset dsl --for '1 h'"),
        ),
    ),
    "link clear": CommandHelp(
        LINK,
        (
            ("one interface", "bwbench link clear --dev wlan0"),
            ("those of all hosts of an inventory", "bwbench link clear --hosts hosts.yaml"),
        ),
    ),
    "export": CommandHelp(
        SHARE,
        (
            ("a row a cell", "bwbench export results/mine --to csv --out cells.csv"),
            ("a row a training step", "bwbench export results/mine --to parquet --what steps"),
            ("runs for TensorBoard", "bwbench export results/mine --to tensorboard"),
        ),
    ),
    "publish": CommandHelp(
        SHARE,
        (
            ("one small file an experiment", "bwbench publish results/mine"),
            ("in another folder", "bwbench publish results --to published"),
        ),
    ),
    "merge": CommandHelp(
        SHARE,
        (
            ("results of two machines", "bwbench merge laptop/results server/results --into all"),
            ("one experiment, and say it as JSON", "bwbench merge server/results/mine --into results --json"),
        ),
    ),
    "verify": CommandHelp(
        SHARE,
        (
            ("everything in a folder", "bwbench verify results"),
            ("what somebody has sent", "bwbench verify their-results/mine --json"),
        ),
    ),
    "doctor": CommandHelp(
        MACHINE, (("can experiments run here?", "bwbench doctor"), ("for a program", "bwbench doctor --json"))
    ),
    "data": CommandHelp(
        MACHINE,
        (
            ("download a data set", "bwbench data fetch fashion-mnist"),
            ("where data sets are looked for", "bwbench data path"),
        ),
    ),
    "data path": CommandHelp(
        MACHINE, (("the folder", "bwbench data path"), ("another one", "BWBENCH_DATA=/srv/data bwbench data path"))
    ),
    "data fetch": CommandHelp(
        MACHINE,
        (
            ("two data sets", "bwbench data fetch fashion-mnist cifar10"),
            ("every one that is downloaded", "bwbench data fetch all"),
        ),
    ),
    "clean": CommandHelp(
        MACHINE,
        (
            ("only say what would go", "bwbench clean results --dry-run"),
            ("leftovers of the machine, and of a folder", "bwbench clean results"),
        ),
    ),
}
_FIT_FOR_PANELS = 78  # columns of text, in a terminal of 80
OF_ALL = CommandHelp(
    "",
    (
        ("a first look: an example with its answer", "bwbench demo"),
        ("a first experiment of your own", "bwbench init experiment mine && bwbench run mine.yaml"),
        ("options and examples of a command", "bwbench run --help"),
    ),
)


class Command(TyperCommand):
    """A command whose help ends with its examples."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.help = flowing(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, as they are shown."""
        return _without_idle_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of its usage line; newer versions of typer put those that are needed in braces."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print its help; what ``formatter`` gets comes after that."""
        _format_help(self, super().format_help, ctx, formatter)


class CommandGroup(TyperGroup):
    """Commands under one name, which by itself shows their help."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.help = flowing(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, as they are shown."""
        return _without_idle_types(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print its help; what ``formatter`` gets comes after that."""
        _format_help(self, super().format_help, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does; without a word it is a question, and no mistake."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class GroupedCommands(CommandGroup):
    """All commands: each in its group, and those in the order of ``COMMANDS``."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them by group, where no panels are drawn."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        for group in dict.fromkeys(command.rich_help_panel for _, command in named):
            with formatter.section(group or "Commands"):
                formatter.write_dl(
                    [
                        (name, (command.help or "").partition("\n")[0])
                        for name, command in named
                        if command.rich_help_panel == group
                    ]
                )

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names; what has no entry comes last."""
        order = {name: place for place, name in enumerate(COMMANDS)}
        return sorted(super().list_commands(ctx), key=lambda name: order.get(name, len(order)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None and cmd_name in COMMANDS:
            command.rich_help_panel = COMMANDS[cmd_name].group
        return command


def examples_text(command_path: str) -> str:
    """The examples of a command, ready for a shell: ``# what it does`` and the line; empty where there are none.

    Args:
        command_path: with the program before it, ``bwbench link run``.
    """
    name = command_path.partition(" ")[2]
    about = COMMANDS.get(name) if name else OF_ALL
    return "\n".join((" Examples:", *_lines(about), "")) if about is not None else ""


def _lines(about: CommandHelp) -> Iterator[str]:
    for what, line in about.examples:
        yield f"   # {what}"
        yield from (f"   {part}" for part in line.split("\n"))


# What typer says of a value is pydantic's in newer versions.
_PLAINER = (
    (r"Input should be a valid integer.*", "it takes a whole number"),
    (r"Input should be a valid number.*", "it takes a number"),
    (r"Input should be greater than or equal to (\S+)", r"it must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it must be \1 or less"),
    (r"Value error, ", ""),
)


def usage_error(text: str, command_path: str) -> str:
    """What is wrong with the words of a command, in one line, with an example where something is missing.

    Args:
        text: as typer says it.
        command_path: of the command, with the program before it.
    """
    text = " ".join(text.split())
    for found, said in _PLAINER:
        text = re.sub(found, said, text)
    about = COMMANDS.get(command_path.partition(" ")[2])
    if command_path == "bwbench run" and "unexpected extra argument" in text:
        return f"{text}; `bwbench sweep` takes several files (see '{command_path} --help')"
    if about is not None and (text.startswith("Missing ") or "unexpected extra argument" in text):
        return f"{text.rstrip('.')}; for example: {about.examples[0][1]} (see '{command_path} --help')"
    return f"{text} (see '{command_path} --help')"


def flowing(text: str | None) -> str | None:
    """Each paragraph in one line, for rich to break where the terminal ends; typer keeps the breaks of the source."""
    if text is None:
        return None
    paragraphs = (part if part.startswith("\b") else " ".join(part.split()) for part in text.split("\n\n"))
    return literal("\n\n".join(paragraphs))


def literal(text: str) -> str:
    """``text`` in which rich takes no bracket for a mark of its own."""
    return re.sub(r"(?<!\\)\[(?=[a-z#/@])", r"\\[", text)


def _format_help(
    command: TyperCommand | TyperGroup, as_typer_does: Callable[[Any, Any], None], ctx: Any, formatter: Any
) -> None:
    """Help as typer draws it, in panels; plain where the terminal is so narrow that those would cut words. Examples."""
    mode = command.rich_markup_mode
    if formatter.width < _FIT_FOR_PANELS:
        command.rich_markup_mode = None
    try:
        with _without_what_help_needs_not():
            as_typer_does(ctx, formatter)
    finally:
        command.rich_markup_mode = mode
    formatter.buffer[:] = [part.replace("\\[", "[") for part in formatter.buffer]
    formatter.write(("\n" if formatter.buffer else "") + examples_text(ctx.command_path))


def _without_idle_types(parameters: list[Any]) -> list[Any]:
    """Parameters beside which no type is shown that says nothing: ``<bool>`` of a flag, ``<path>`` of FILE."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        elif parameter.param_type_name == "argument" and hasattr(parameter, "display_type_rich"):
            parameter.display_type_rich = _nothing
    return parameters


def _nothing(**_: Any) -> str:
    return ""


@contextlib.contextmanager
def _without_what_help_needs_not() -> Iterator[None]:
    """Let typer's help do without rich's Markdown and tracebacks, which take as long to import as all the rest of it.

    Neither is ever shown: our helps are plain text, and errors are told in ``main.py``.
    """
    unneeded = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
    stubs = {name: types.ModuleType(name) for name in unneeded if name not in sys.modules}
    for name, stub in stubs.items():
        setattr(stub, unneeded[name], type(unneeded[name], (), {}))
    sys.modules.update(stubs)
    try:
        yield
    finally:
        for name in stubs:
            del sys.modules[name]
