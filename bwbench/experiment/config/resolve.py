"""From a point of the matrix, or a method, as it was written, to its configuration: presets, ``auto``, checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from bwbench.base.component import Component
from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import Location, explain, nearest
from bwbench.base.plain_data import Json, JsonObject, whole_floats_as_int
from bwbench.base.registry import ALGORITHMS, COLLECTIVES
from bwbench.base.step_time import DeclaredStepTime
from bwbench.experiment.config.auto_collective import auto_collective
from bwbench.experiment.config.cell_config import (
    LEFT_OUT,
    METHOD_KEYS,
    CellConfig,
    ComputeConfig,
    from_easy_to_hard,
    hardest,
)
from bwbench.experiment.config.cell_dilation import AUTO, auto_dilation
from bwbench.experiment.config.combinations import Finding, MethodConfig, momentum_doubt, refusals, remarks
from bwbench.experiment.config.component_parsing import elsewhere, parse_chain, parse_component
from bwbench.experiment.config.method_names import PRESETS, Expanded, expand_preset
from bwbench.experiment.config.real_size import auto_shrink, steps_idly, with_shapes
from bwbench.experiment.config.step_trace import freeze_compute
from bwbench.experiment.config.tune_block import with_options
from bwbench.experiment.config.tuned import Reference, TunedRates, is_tuned, read_reference
from bwbench.network.link import UNSHAPED
from bwbench.network.link.link_checks import unknown_nodes
from bwbench.network.link.named_links import absolute_preset
from bwbench.network.link.site_network import sizes_of
from bwbench.network.link.trace_file import freeze_link, trace_notes, with_paths_read

Config = TypeVar("Config", bound=BaseModel)
_NEEDED = {
    "nodes": "'nodes' is missing: how many nodes train? For example 'nodes: 4'",
    "link": "'link' is missing: write 'link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}', or 'link: unshaped'",
    "model": "'model' is missing: write 'model: cnn'; 'bwbench list models' shows all",
}
_FORMS = {  # of keys whose value may be more than the type of the refused one says
    "link": "write 'link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}', or 'link: unshaped'",
    "dilation": "write a number above 0, such as 8, or 'auto'",
    "shrink": "write a number of 1 or more, such as 4, or 'auto'",
}


@dataclass(frozen=True)
class Resolved:
    """A point's configuration, or what is wrong with it.

    Attributes:
        config: None where something is wrong.
        findings: what is wrong and where in the configuration as written.
        idle: keys that were given and change nothing here.
        warnings: what may not have been meant.
        notes: what was decided for the user, and why.
        tuned: the table that the learning rate comes from, where one is named.
    """

    config: CellConfig | None
    findings: tuple[Finding, ...] = ()
    idle: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tuned: Path | None = None


def resolve(
    raw: JsonObject, plugins: tuple[str, ...], folder: Path, *, combine: bool = True, tuned: TunedRates | None = None
) -> Resolved:
    """The configuration of one point.

    Args:
        raw: cell keys as the user wrote them, without ``matrix``; not changed.
        plugins: absolute paths, loaded already.
        folder: that paths of traces and links are relative to.
        combine: check combinations of keys as well, not only each by itself.
        tuned: where learning rates come from that the experiment leaves to a table; None for no experiment's file.
    """
    tuned = tuned or TunedRates("FILE", folder)
    findings: list[Finding] = []
    reference: Reference | None = None
    if is_tuned(raw.get("optimizer")):
        reference, findings = read_reference(raw["optimizer"])
        raw = {**raw, "optimizer": reference.optimizer if reference is not None else None}
    expanded = expand_preset({key: value for key, value in raw.items() if key not in {f.loc[0] for f in findings}})
    content, idle = expanded.content, list(expanded.idle)
    if isinstance(link := content.get("link"), Mapping):
        content["link"] = absolute_preset(link, folder)
    findings += _unknown_name(expanded, raw.get("algorithm"))
    notes = _settle_collective(content, may_fail=bool(plugins))
    if content.get("targets") is None:
        content.pop("targets", None)
    elif "target" in content:
        text = "'target' and 'targets' stand both; keep one ('targets: null' drops a list)"
        findings.append(Finding(("targets",), text))
        del content["targets"]
    if not {"target", "targets"} & set(content):
        idle += ["stop"] if content.get("stop") == "target" else []
        content["stop"] = content["stop"] if content.get("stop", "target") != "target" else "limit"
    content = {**LEFT_OUT, **content, "plugins": list(plugins)}
    chooses_dilation, chooses_shrink = (content.get(key) == AUTO for key in ("dilation", "shrink"))
    content |= {key: 1.0 for key in ("dilation", "shrink") if content.get(key) == AUTO}
    config, errors = _validated(content, CellConfig, expanded, findings)
    findings += errors if reference is None else [_inside_reference(error) for error in errors]
    if config is not None and config.targets:
        config = config.model_copy(update={"target": hardest(config.targets)})
    if config is not None:
        config, found = _limit_in_samples(config, raw.get("limit"))
        findings += found
        config = _within_limit(config)
        config, found, said = _with_traces_read(config, folder)
        config = _at_its_sites(config)
        findings += found
        notes += said
        config, found, said = _with_real_size(config, raw, folder, chooses=chooses_shrink)
        findings += found
        notes += said
        if config.nodes == 1 and not config.link.shaped:  # one node by itself, beside others that share a link
            if config.compute.vector_speed != 1.0:
                notes.append(
                    "compute.vector_speed: one node alone takes the machine's time, so that its optimizer's step is as "
                    "fast as here, and the others' faster"
                )
            compute = config.compute.model_copy(update={"vector_speed": 1.0})
            config = config.model_copy(update={"dilation": 1.0, "compute": compute})
        elif chooses_dilation and not findings and not config.link.shaped:
            notes.append(
                "dilation: auto is 1: a link that is not shaped takes what it takes, and cannot be slowed down"
            )
        elif chooses_dilation and not findings and not unknown_nodes(config.link, config.nodes):  # else said below
            factor, said_of_it = auto_dilation(config)
            config = config.model_copy(update={"dilation": factor})
            notes.append(said_of_it)
        idle += _idle_settings(config)
        notes += _notes_of_schedules(config)
    if config is not None and reference is not None and not findings and combine:
        choice = tuned.choose(reference, config)
        findings += choice.findings
        notes += choice.notes
        if choice.optimizer is not None:
            config = with_options(config.model_copy(update={"optimizer": choice.optimizer}), choice.options)
    if config is not None and not findings and combine:
        findings += refusals(config)
        notes += [] if findings else remarks(config)
        config = config.model_copy(update={"targets": from_easy_to_hard(config.targets)})
    table = tuned.path(reference) if reference is not None else None
    return Resolved(None if findings else config, tuple(findings), tuple(idle), expanded.warnings, tuple(notes), table)


@dataclass(frozen=True)
class ResolvedMethod:
    """A point on the three axes.

    Attributes:
        config: its components, and as many nodes as asked, 1 for what trains alone.
        idle: keys that were given and change nothing here.
        warnings: what may not have been meant.
        notes: what was decided, and why.
    """

    config: MethodConfig
    idle: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def resolve_method(asked: Mapping[str, Json], num_nodes: int, optimizer: Component | None = None) -> ResolvedMethod:
    """The components that ``asked`` names, in the words of experiment files and with their messages. Imports no torch.

    Args:
        asked: ``algorithm``, ``collective`` and ``compression`` in any spelling; what is None or missing is chosen.
        optimizer: the one that is there, under the name and with the options that experiment files know. Without one
            combinations are not checked, each component alone is.

    Raises ConfigError with everything that is wrong: unknown names and options, combinations that make no sense, an
    optimizer that the method does not go with.
    """
    expanded = expand_preset({**asked, "nodes": num_nodes})
    content: JsonObject = {key: value for key, value in expanded.content.items() if key in ("nodes", *METHOD_KEYS)}
    findings = _unknown_name(expanded, asked.get("algorithm"))
    notes = _settle_collective(content, may_fail=False)
    config, errors = _validated(content, MethodConfig, expanded, findings)
    findings += errors
    if config is not None and not findings and optimizer is not None:
        config = config.model_copy(update={"optimizer": optimizer})
        findings += refusals(config)
        notes += [] if findings else remarks(config)
    if config is None or findings:
        raise ConfigError([Problem(finding.message) for finding in findings])
    doubt = momentum_doubt(config)
    warnings = expanded.warnings if doubt is None else (*expanded.warnings, doubt)
    return ResolvedMethod(config, expanded.idle, warnings, tuple(notes))


def _at_its_sites(config: CellConfig) -> CellConfig:
    """With what the collective makes of the link's sites; where those do not go with the nodes it is said elsewhere."""
    collective, link = config.collective, config.link
    if config.nodes < 2 or not link.sites or unknown_nodes(link, config.nodes):
        return config
    sizes = sizes_of(link.sites, config.nodes)
    options = COLLECTIVES.load(collective.name).at_sites(collective.options, sizes)
    return config.model_copy(update={"collective": Component(collective.name, options)})


def _limit_in_samples(config: CellConfig, limit: object) -> tuple[CellConfig, list[Finding]]:
    """The configuration with its limit in samples, and what is wrong where that stands in steps as well.

    Args:
        limit: as it was written.
    """
    if config.limit.steps is None:
        return config, []
    findings = []
    if isinstance(limit, Mapping) and "samples" in limit:
        text = "limit.steps and limit.samples both say when training ends; keep one"
        findings.append(Finding(("limit", "steps"), text))
    counted = {"samples": config.limit.steps * config.global_batch, "steps": None}
    return config.model_copy(update={"limit": config.limit.model_copy(update=counted)}), findings


def _within_limit(config: CellConfig) -> CellConfig:
    """With options that depend on how long training lasts: parts of a cell with other limits (timing runs) keep them.

    Training to a target may end before; what is planned is the whole of it.
    """
    budget_samples = float(config.limit.samples)
    return config.model_copy(
        update={key: getattr(config, key).within(budget_samples) for key in ("optimizer", "weight_average")}
    )


def _notes_of_schedules(config: CellConfig) -> list[str]:
    """What is to be known of a rate that decays where training may end before it is down."""
    over = getattr(config.optimizer.options, "decay_over", None)
    if over is None or config.limit.time_s is None:
        return []
    return [f"the learning rate decays over {over:g} samples, and limit.time may end training before"]


def _with_traces_read(config: CellConfig, folder: Path) -> tuple[CellConfig, list[Finding], list[str]]:
    """The configuration with what is to be known of its traces, what is wrong with them, and how they were read."""
    link, compute, findings = config.link, config.compute, list[Finding]()
    try:
        link = with_paths_read(link, folder)
    except ConfigError as error:
        findings += [Finding(("link", "paths"), f"link.paths: {problem}") for problem in error.problems]
        link = UNSHAPED  # of which all else can be said
    try:
        link = freeze_link(link, folder)
    except ConfigError as error:
        findings += [Finding(("link", "trace"), f"link.trace: {problem}") for problem in error.problems]
    try:
        compute = freeze_compute(compute, folder)
    except ConfigError:
        findings += _broken_step_traces(compute, folder)
    frozen = config.model_copy(update={"link": link, "compute": compute})
    return frozen, findings, [] if findings else trace_notes(link)


def _with_real_size(
    config: CellConfig, raw: JsonObject, folder: Path, *, chooses: bool
) -> tuple[CellConfig, list[Finding], list[str]]:
    """The configuration with all that follows from a model of shapes, what is wrong with it, and by how much it was
    shrunk where that was to be found.
    """
    findings = list[Finding]()
    try:
        made = with_shapes(config, folder)
        model = made.shapes
    except ConfigError as error:
        return config, [Finding(("model",), str(one)) for one in error.problems], []
    if model is None:
        return made, findings, []
    if raw.get("dataset") is not None and config.dataset.source.name != made.dataset.source.name:
        text = f"model {config.model.name!r} learns nothing, so that no data set is read; leave 'dataset' out"
        findings.append(Finding(("dataset",), text))
    said = []
    if "evaluate" in raw:
        said.append(f"'evaluate' has no effect: model {config.model.name!r} learns nothing that could be looked at")
    if config.nodes == 1 and not config.link.shaped:  # one node by itself, beside others that share a link
        made = made.model_copy(update={"shrink": 1.0})
    elif chooses and not findings:
        factor, why = auto_shrink(made, model)
        made, said = made.model_copy(update={"shrink": factor}), [*said, why]
    return made, findings, said


def _broken_step_traces(compute: ComputeConfig, folder: Path) -> Iterator[Finding]:
    """What is wrong with traces of step times, each where it is written: of all nodes, or of one that differs."""
    places: list[tuple[tuple[str, ...], DeclaredStepTime | None]] = [(("step_time",), compute.step_time)]
    places += [(("overrides", str(node), "step_time"), own.step_time) for node, own in compute.overrides.items()]
    for place, declared in places:
        loc = ("compute", *place)
        try:
            freeze_compute(ComputeConfig(step_time=declared), folder)
        except ConfigError as error:
            yield from (Finding(loc, f"{'.'.join(loc)}: {one}") for one in error.problems)


def _idle_settings(config: CellConfig) -> list[str]:
    """Settings that another one makes void."""
    optimizer = config.optimizer.options
    idle = []
    if "lr_scaling" in optimizer.model_fields_set and getattr(optimizer, "base_batch", 1) is None:
        idle.append("lr_scaling")
    if config.evaluate.every_samples > config.limit.samples:
        idle.append("evaluate")
    if optimizer.model_fields_set and config.learns_nothing and steps_idly(config.algorithm.build(ALGORITHMS)):
        idle.append("optimizer")
    return idle


def _settle_collective(content: JsonObject, *, may_fail: bool) -> list[str]:
    """Replace ``collective: auto`` in a configuration without presets; returns what there is to say of it.

    Where algorithm or codecs are no known ones it becomes ``ring``, for the check of each key to say so.

    Args:
        may_fail: a codec of a plugin may lack something, which the check of combinations says.
    """
    if content.get("collective") != "auto":
        return []
    content["collective"] = "ring"
    try:
        nodes = content.get("nodes")
        content["collective"], reason = auto_collective(
            parse_component(content["algorithm"], ALGORITHMS),
            parse_chain(content["compression"]),
            nodes if isinstance(nodes, int) and nodes > 0 else 2,
        )
        return [reason]
    except Exception as error:
        if not (may_fail or isinstance(error, ValidationError)):
            raise
        return []


def _unknown_name(expanded: Expanded, algorithm: object) -> list[Finding]:
    """That ``algorithm:`` names neither a preset nor an algorithm, where it does not and is a spelling of one."""
    is_spelled = isinstance(algorithm, str) or (
        isinstance(algorithm, Mapping) and ("name" in algorithm or len(algorithm) == 1)
    )
    if expanded.preset in PRESETS or expanded.preset in ALGORITHMS or not is_spelled:
        return []
    name, names = expanded.preset, dict.fromkeys([*PRESETS, *ALGORITHMS.names()])
    hint = elsewhere(name, ALGORITHMS) or nearest(name, names)
    text = f"unknown algorithm {name!r}.{hint} Known: {', '.join(names)}."
    return [Finding(("algorithm",), text)]


def _validated(
    content: JsonObject, model: type[Config], expanded: Expanded, known: Sequence[Finding]
) -> tuple[Config | None, list[Finding]]:
    """Check types strictly: JSON mode takes a list for a tuple, and neither text nor true for a number.

    Args:
        known: what is wrong already; nothing more is said of these keys.
    """
    text, refused = json.dumps(whole_floats_as_int(content)), {finding.loc[0] for finding in known}
    try:
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False), []
    except ValidationError as error:
        found = [(loc, message) for loc, message in explain(error, model) if not refused & set(loc[:1])]
        return None, [_where_written(Finding(loc, _with_key(loc, message)), expanded) for loc, message in found]


def _with_key(loc: Location, message: str) -> str:
    if len(loc) == 1 and message.endswith("is missing"):
        return _NEEDED.get(str(loc[0]), message)
    if message.startswith("unknown key"):
        inside = ".".join(map(str, loc[:-1]))
        return message.replace("unknown key", f"{inside}: unknown key", 1) if inside else message
    if message.startswith("unknown ") or " has no option " in message:
        return message
    form = _FORMS.get(str(loc[0])) if len(loc) == 1 else None
    return f"{'.'.join(map(str, loc))}: {message}{f'; {form}' if form else ''}"


def _inside_reference(error: Finding) -> Finding:
    """The finding with its location in the user's words: an optimizer that is to be tuned stands beside its table."""
    if error.loc[:1] != ("optimizer",):
        return error
    return Finding(("optimizer", "tuned", "optimizer", *error.loc[1:]), f"optimizer.tuned.{error.message}")


def _where_written(error: Finding, expanded: Expanded) -> Finding:
    """The finding with its location in the user's words: under the preset's name, not the algorithm's."""
    preset = PRESETS.get(expanded.preset)
    if preset is not None and error.loc[:2] == ("algorithm", preset.algorithm):
        message = error.message.replace(f"algorithm.{preset.algorithm}", f"algorithm.{preset.name}")
        return Finding(("algorithm", preset.name, *error.loc[2:]), message)
    if error.loc[:1] == ("collective",) and error.message.startswith("unknown collective"):
        return Finding(error.loc, error.message.replace("Known: ", "Known: auto, "))
    return error
