"""``bwbench link``: the link layer by itself. What a command does stands beside this file, loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bwbench.cli.command_help import Command
from bwbench.cli.link.link_options import LinkOptions, NodeRunOptions, RecordOptions, Shaping
from bwbench.cli.options import option, takes_options

app = typer.Typer()

_AsJson = Annotated[bool, option("Print JSON instead of a table.", "--json")]

APPLY_HELP = "\n\n".join(
    (
        "Shape what one real interface of this machine exchanges with the peers; everything else goes on as before.",
        "It is taken back after --for (10 min) by a process that is started before anything is changed and survives "
        "this one and the session; earlier by 'bwbench link clear'. With --hold it lasts until Ctrl-C, and ends when "
        "this process does, however that happens.",
        "The interface adds the whole latency, jitter and loss in each direction: apply it on one side, or ask for "
        "half on both. Only interfaces with the kernel's own qdiscs are touched, and never the connection by which you "
        "control this machine.",
        "With --hosts FILE the hosts of an inventory are shaped as one link among each other, each end with half of "
        "the latency, and ssh is left out.",
        "Needs root, and for latency, jitter or loss a kernel with netem. --dry-run prints the tc commands instead, "
        "for everybody.",
    )
)
RUN_HELP = "\n\n".join(
    (
        "Run a command in every node of a shaped network, as an ordinary user.",
        "The nodes are network namespaces that see only each other. In the command's words {rank} stands for the "
        "node's number (from 0), {nodes} for how many there are, {address} for its own address and {address:K} for "
        "that of node K. Doubled braces stand for single ones there: {{rank}} is the text {rank}. Other braces stay as "
        "they are: those of JSON, awk, ${HOME}. The environment has BWBENCH_RANK, BWBENCH_NODES and BWBENCH_ADDRESS, "
        "and the interface that gloo and NCCL ask for.",
        "Traces and outages begin when all commands have been started.",
        "With --dilation 8 rates are divided by 8 and times multiplied by 8, so that a busy machine carries a faster "
        "link; with 0.25 a slow link takes a quarter of the time. The commands keep the machine's clock: what they "
        "measure is to be converted. The verdict is printed in both times.",
        "Exit status: 0 if all commands end with 0, else the highest of those that failed by themselves (128 + n for "
        "signal n). When one fails, the others are ended. 3 where all went well but the emulator was late, or could "
        "not carry what was asked.",
        "Standard input goes to node 0, or to the node of --stdin; a terminal to a node that is alone or named, whose "
        "own it is then: link run --nodes 1 … -- bash.",
    )
)


@app.command(cls=Command)
@takes_options()
def verify(
    *,
    nodes: Annotated[int, option("How many nodes; each one sends to its neighbour.", metavar="N")] = 4,
    tolerance: Annotated[
        float, option("Relative error of goodput and round trip that is fine.", metavar="SHARE")
    ] = 0.05,
    dilation: Annotated[
        float, option("Slow motion: make the link so many times slower (8) or faster (0.25).", metavar="K")
    ] = 1.0,
    json_: _AsJson = False,
    options: LinkOptions,
) -> int:
    """Make a link in namespaces, measure it with all nodes sending, and print asked, applied, achieved and error.

    A link that changes over time is measured at its mean. Exit status 3 where the link does not do what was asked.
    """
    from bwbench.cli.link.measure import verify_link

    return verify_link(options, nodes, tolerance, dilation, as_json=json_)


@app.command(cls=Command, help=RUN_HELP, context_settings={"allow_interspersed_args": False})
@takes_options()
def run(
    *,
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="Program and arguments, for every node.")],
    how: NodeRunOptions,
    options: LinkOptions,
) -> int:
    """Run a command in every node; ``RUN_HELP`` is what users read."""
    from bwbench.cli.link.run_in_nodes import run_in_nodes

    return run_in_nodes(command, how, options)


@app.command(cls=Command, name="set")
def set_(
    *,
    run_: Annotated[
        int | None, option("Process id of the 'link run'; needed where several run.", "--run", metavar="PID")
    ] = None,
    bandwidth: Annotated[str | None, option("Of each node, up and down: '5 Mbit/s'.", metavar="RATE")] = None,
    up: Annotated[str | None, option("From a node, where that differs: '1 Mbit/s'.", metavar="RATE")] = None,
    down: Annotated[str | None, option("To a node, where that differs: '16 Mbit/s'.", metavar="RATE")] = None,
    latency: Annotated[str | None, option("One-way delay between two nodes: '20 ms'.", metavar="TIME")] = None,
    jitter: Annotated[str | None, option("Standard deviation of the delay: '1 ms'.", metavar="TIME")] = None,
    loss: Annotated[str | None, option("Share of the frames that are lost: 0.01.", metavar="SHARE")] = None,
) -> int:
    """Change the link of a 'bwbench link run' while its programs run. What is not named stays.

    What waits in queues goes on at the new rate. The verdict of the run, and its --json, say what was changed and when.
    """
    from bwbench.cli.link.change_socket import ask

    given = {"bandwidth": bandwidth, "up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    print(ask(run_, {key: value for key, value in given.items() if value is not None}))
    return 0


@app.command(cls=Command)
def presets(
    *,
    sources: Annotated[bool, option("Say where the figures of each come from.", "--sources")] = False,
    json_: _AsJson = False,
) -> int:
    """List the links that have a name: for --preset here, and 'link: {preset: NAME}' in an experiment.

    Keep your own in a YAML file of the same form, and name them '--preset path/to/file.yaml:NAME'.
    """
    from bwbench.cli.link.shown_link import print_presets

    return print_presets(sources=sources, as_json=json_)


@app.command(cls=Command)
@takes_options()
def show(
    *,
    nodes: Annotated[int, option("How many nodes.", metavar="N")] = 4,
    hosts: Annotated[Path | None, option("Instead: what is shaped on these hosts now, by ssh.", metavar="FILE")] = None,
    json_: Annotated[bool, option("Print JSON instead of tables.", "--json")] = False,
    options: LinkOptions,
) -> int:
    """Show a link node by node, what to expect of it, which back end would carry it, and the tc commands for the same.

    Nothing is set up. Traces count by their mean.
    """
    from bwbench.cli.link.shown_link import show_hosts_or_link

    return show_hosts_or_link(options, nodes, hosts, as_json=json_)


@app.command(cls=Command)
@takes_options()
def record(*, options: RecordOptions) -> int:
    """Measure a real network second by second into trace files, for --trace here and 'link: {trace: …}' in experiments.

    On the other host: 'bwbench link record --listen'. It loads the network as much as TCP can.
    """
    from bwbench.cli.link.measure import record_network

    return record_network(options)


@app.command(cls=Command, help=APPLY_HELP)
@takes_options()
def apply(*, shaping: Shaping, options: LinkOptions) -> int:
    """Shape an interface; ``APPLY_HELP`` is what users read."""
    from bwbench.cli.link.real_interface import apply_link

    return apply_link(shaping, options)


@app.command(cls=Command)
def clear(
    *,
    dev: Annotated[str | None, option("The interface: wlan0.", metavar="IFACE")] = None,
    hosts: Annotated[Path | None, option("On all these hosts instead, by ssh.", metavar="FILE")] = None,
    json_: Annotated[bool, option("Print JSON instead of text.", "--json")] = False,
) -> int:
    """Take off what 'bwbench link apply' has put on an interface, and nothing else; there may be nothing.

    Exit status 3 where its qdiscs are not what they were before, because somebody else has changed them.
    """
    from bwbench.cli.link.real_interface import clear_interface

    return clear_interface(dev, hosts, as_json=json_)
