"""One cell as a flat row, from cell.json and status.json, and the curve of a run that went on behind its target.

Values of its configuration are found by dotted keys as well, as written in YAML: ``link.bandwidth``.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeAlias

from pydantic import ValidationError

from bwbench.base.plain_data import JsonObject, list_at, mapping_at
from bwbench.base.step_time import AnyStepTime, SteadyStepTime, recorded_step_times
from bwbench.base.units import BANDWIDTH, DURATION, SAMPLES
from bwbench.experiment.kin import kin_key
from bwbench.methods.roles import METHOD, REFERENCE, ArmStanding, as_role, needs_no_link, standing_by_name
from bwbench.network.link import Link
from bwbench.records import CellFolder
from bwbench.records.schema import OUTCOMES, CellRecord, Status
from bwbench.results.analysis.arrived_alone import arrived_alone
from bwbench.results.analysis.cell_arrival import arrival_of_cell
from bwbench.results.analysis.replicas_apart import replicas_apart
from bwbench.results.analysis.targets import target_of
from bwbench.results.analysis.timing_variance import log_error

PLANNED = "missing"  # no attempt yet
UNFINISHED = "unfinished"  # an attempt without status.json: it runs at this moment, or its machine went down
RUNNING = "running"  # unfinished, and some process has its claim at this moment
DONE = "done"

_NAMED_NODES = 3  # that take longer or shorter than others: more are counted
_NAMES_IN_A_NOTE = 6  # a longer list helps nobody under a picture; `bwbench status` has them all

_SETTING = "setting"  # of what is made of a cell
_MOST = 10**300  # that a float can stand for; a configuration may hold any number
Row: TypeAlias = dict[str, object]  # of a table: a name and a value each column


@dataclass(frozen=True)
class Setting:
    """What a cell was about, in the words of tables and captions. Numbers in SI; None where it does not apply.

    Attributes:
        bandwidth_bps, rtt_s: of a link with sites that of the slowest way between two of them, and of the farthest two.
        num_sites: 0 where all nodes are at one place.
        step_time_s: declared, of a node that is as the others; the mean where it is drawn, None where it is a trace.
    """

    nodes: int
    model: str
    dataset: str
    batch_size: int
    accumulate: int
    algorithm: str
    collective: str
    compression: str
    seed: int
    bandwidth_bps: float | None
    rtt_s: float | None
    link: str
    medium: str | None
    num_sites: int
    step_time_s: float | None
    target_metric: str | None
    target_value: float | None
    evaluate_every_samples: float | None

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step over all nodes."""
        return self.batch_size * self.accumulate * self.nodes


def setting_of(config: JsonObject) -> Setting:
    """The setting in a cell's configuration, which is read leniently: no plugin and no component is imported."""
    asked = mapping_at(config, "link")
    bandwidth_bps, rtt_s, link = _link_facts(json.dumps(asked, sort_keys=True))
    target = target_of(config)
    everyones = recorded_step_times(mapping_at(config, "compute")).everyones
    return Setting(
        nodes=_whole(config, "nodes"),
        model=_model_words(config.get("model")),
        dataset=name_of(config.get("dataset")),
        batch_size=_whole(config, "batch_size"),
        accumulate=_whole(config, "accumulate", 1),
        algorithm=name_of(config.get("algorithm")),
        collective=name_of(config.get("collective")),
        compression="+".join(name_of(codec) for codec in list_at(config, "compression") or ["none"]),
        seed=_whole(config, "seed"),
        bandwidth_bps=bandwidth_bps,
        rtt_s=rtt_s,
        link=link,
        medium=str(asked.get("medium", "switched")) if _shaped(asked) else None,
        num_sites=len(list_at(asked, "sites")) if _shaped(asked) else 0,
        step_time_s=everyones.mean_s if isinstance(everyones, SteadyStepTime) else None,
        target_metric=target[0] if target else None,
        target_value=target[1] if target else None,
        evaluate_every_samples=_quantity(SAMPLES.parse, mapping_at(config, "evaluate").get("every")),
    )


def setting_of_cell(folder: CellFolder) -> Setting:
    """The setting of a cell, which is read once."""
    if _SETTING not in folder.made:
        folder.made[_SETTING] = setting_of(folder.cell.config)
    setting: Setting = folder.made[_SETTING]
    return setting


@lru_cache(maxsize=1024)
def _link_facts(link_json: str) -> tuple[float | None, float | None, str]:
    """Bandwidth, round trip, words of a link: thousands of cells share a few links, and parsing one takes a while.

    Between sites the rate of the slowest way from one to another, and the round trip of the farthest two.
    """
    link = json.loads(link_json)
    bandwidth_bps = rtt_s = None
    if _shaped(link):
        bandwidth_bps = _quantity(BANDWIDTH.parse, link.get("bandwidth"))
        latency_s = _quantity(DURATION.parse, link.get("latency"))
        rtt_s = None if latency_s is None else 2 * latency_s
        if link.get("sites"):
            with contextlib.suppress(ValidationError):
                asked = Link.recorded(link)
                bandwidth_bps, rtt_s = asked.bottleneck_bps, asked.farthest_rtt_s
        if bandwidth_bps is None:  # the slower direction of a link that gives both, or the mean of a trace
            with contextlib.suppress(ValidationError):
                bandwidth_bps = Link.recorded(link).bottleneck_bps
    return bandwidth_bps, rtt_s, describe_link(link)


def standing_of(cell: CellRecord) -> ArmStanding:
    """Role and kinship of a cell's arm as recorded; of an older cell as its components declare them by now."""
    if cell.role is not None and cell.kinship is not None:
        return ArmStanding(as_role(cell.role), cell.kinship)
    codecs = [name_of(codec) for codec in list_at(cell.config, "compression") or ["none"]]
    found = standing_by_name(name_of(cell.config.get("algorithm")), name_of(cell.config.get("collective")), codecs)
    return ArmStanding(found.role, found.kinship or cell.arm)


def is_reference(cell: CellRecord) -> bool:
    """One node, no network: the reference that belongs to every number of nodes and every link."""
    return standing_of(cell).role == REFERENCE


def dilation_of(config: JsonObject) -> float:
    """Seconds of the machine to one of the training clock; 1 where a record holds what no cell can have."""
    factor = config.get("dilation")
    return float(factor) if isinstance(factor, (int, float)) and 0 < factor < _MOST else 1.0


def shrink_of(config: JsonObject) -> float:
    """Payload and rates are divided by it; 1 where a record holds what no cell can have."""
    factor = config.get("shrink")
    return float(factor) if isinstance(factor, (int, float)) and 1 <= factor < _MOST else 1.0


def vector_speed_of(config: JsonObject) -> float:
    """How many times as fast as on this machine encoding and adding are; 1 where a record holds what no cell can."""
    speed = mapping_at(config, "compute").get("vector_speed")
    return float(speed) if isinstance(speed, (int, float)) and 1 <= speed < _MOST else 1.0


def time_words(configs: Iterable[JsonObject]) -> list[str]:
    """What is unusual about the time of these cells: ``dilation 4``, and ``step 60 ms, node 2: 120 ms`` where nodes
    differ or their steps vary; nothing where all nodes take equally long in the machine's time."""
    cells = list(configs)
    words = []
    if any(dilation_of(config) != 1 for config in cells):
        words.append(f"dilation {' or '.join(f'{one:g}' for one in sorted({dilation_of(config) for config in cells}))}")
    if shrunk := sorted({one for config in cells if (one := shrink_of(config)) != 1}):
        words.append(f"shrink {' or '.join(f'{one:g}' for one in shrunk)} (bytes divided by it)")
    if speeds := sorted({one for config in cells if (one := vector_speed_of(config)) != 1}):
        words.append(f"vectors {' or '.join(f'{one:g}' for one in speeds)} times as fast as this machine's")
    times = {recorded_step_times(mapping_at(config, "compute")) for config in cells}
    unlike = sorted(str(one) for one in times if one.own or not _is_steady(one.everyones))
    if len(unlike) > 1:
        words.append(f"{len(unlike)} kinds of nodes that differ")
    elif unlike:
        (of_nodes,) = (one for one in times if str(one) == unlike[0])
        few = len(of_nodes.own) <= _NAMED_NODES
        words.append(f"step {unlike[0] if few else f'{of_nodes.everyones}, {len(of_nodes.own)} nodes differ'}")
    return words


def _is_steady(declared: AnyStepTime | None) -> bool:
    return declared is None or (isinstance(declared, SteadyStepTime) and not declared.is_drawn)


def concerns_no_link(cell: CellRecord) -> bool:
    """Whether a cell belongs beside every link: see ``methods.roles.needs_no_link``."""
    role = standing_of(cell).role
    return role != METHOD and needs_no_link(role, shaped=setting_of(cell.config).bandwidth_bps is not None)


def _model_words(model: object) -> str:
    """Its name; of a model of which only the shapes are real with whose they are, such as ``shapes of vgg16``."""
    name = name_of(model)
    whose = model.get("of") if isinstance(model, Mapping) and name == "shapes" else None
    return f"{name} of {PurePath(whose).stem}" if isinstance(whose, str) else name


def name_of(component: object) -> str:
    """Name of a component as it stands in cell.json; empty where there is none."""
    if isinstance(component, Mapping):
        return str(component.get("name", ""))
    return "" if component is None else str(component)


def describe_link(link: JsonObject) -> str:
    """A link in a few words for captions, with the round trip: ``10 Mbit/s, RTT 5 ms, shared air``."""
    if not _shaped(link):
        return "unshaped link"
    try:
        asked = Link.recorded(link)
    except ValidationError:  # a kind of link that this version does not know
        return ", ".join(f"{key} {value}" for key, value in link.items() if value not in (None, True))
    return asked.describe(short=True)


def state_of(folder: CellFolder) -> str:
    """Status of a cell; ``missing`` or ``unfinished`` where there is no status.json."""
    if folder.status is not None:
        return folder.status.status
    return UNFINISHED if folder.attempts else PLANNED


def cell_row(folder: CellFolder) -> Row:
    """Flat row of one cell: who it is, its setting, what status.json says of it, and when it arrived."""
    key = f"row {folder.asked_target}"
    if key not in folder.made:  # every figure asks
        folder.made[key] = _row_of(folder)
    return dict(folder.made[key])


def _row_of(folder: CellFolder) -> Row:
    cell, status = folder.cell, folder.status
    row: Row = {"id": cell.id, "slug": cell.slug, "experiment": cell.experiment, "arm": cell.arm, "repeat": cell.repeat}
    row["of_pilot"] = cell.pilot is None or cell.repeat < cell.pilot
    setting = setting_of_cell(folder)
    row |= {**vars(setting), "global_batch": setting.global_batch, **vars(standing_of(cell))}
    row |= {"status": state_of(folder), "reason": None if status is None else status.reason}
    row |= {key: None if status is None else getattr(status, key) for key in OUTCOMES}
    if row["steps_clock_s"] is None:  # of methods that wait for what they send
        row["steps_clock_s"] = row["training_clock_s"]
    row["shrink"] = shrink_of(cell.config)
    row["replicas_apart"] = replicas_apart(row, cell.replicas_equal)
    row |= vars(arrival_of_cell(folder))
    row["arrived_alone"] = arrived_alone(row)
    if folder.asked_target is not None:
        row["target_metric"], row["target_value"] = folder.asked_target
    row |= {"composed": is_composed(folder), "timing_share": 0.0 if status is None else _timing_share(status)}
    row["kin"] = _learns_as(cell.config)
    composed = status.composed if status is not None else None
    row["timing_runs"] = None if composed is None else composed.num_timing_runs  # whole, each repeat is a run by itself
    row["between_share"] = None if composed is None else composed.between_share
    row["timing_pilot"] = None if composed is None else composed.timing_pilot
    return row


def _learns_as(config: JsonObject) -> str:
    """Equal for cells that learn alike, seed by seed: kin at equal learning rates."""
    rate = mapping_at(config, "optimizer").get("lr")
    return f"{zlib.crc32(f'{kin_key(config)} {rate}'.encode()):08x}"


def is_composed(folder: CellFolder) -> bool:
    """Whether the cell's time is put together from a convergence run and a timing run, and not measured whole."""
    return folder.status is not None and folder.status.composed is not None


def is_virtual(folder: CellFolder) -> bool:
    """Whether all nodes of a cell shared a process: what they learn is right, and their times say nothing."""
    return folder.environment is not None and folder.environment.virtual


def left_out_notes(folders: Iterable[CellFolder]) -> list[str]:
    """One note that counts and names the cells which are not drawn; none where all are."""
    by_state: dict[str, list[str]] = {}
    for folder in folders:
        if state_of(folder) != DONE:
            name = f"{folder.cell.arm} #{folder.cell.repeat}"
            by_state.setdefault(state_of(folder), []).append(name)
    if not by_state:
        return []
    parts = []
    for state, names in sorted(by_state.items()):
        counted = Counter(names)
        named = [name if times == 1 else f"{name} ({times}x)" for name, times in sorted(counted.items())]
        more = f" and {len(named) - _NAMES_IN_A_NOTE} more" if len(named) > _NAMES_IN_A_NOTE else ""
        words = {PLANNED: "not run yet", UNFINISHED: "unfinished"}.get(state, state)
        parts.append(f"{len(names)} {words} ({', '.join(named[:_NAMES_IN_A_NOTE])}{more})")
    return [f"Not drawn: {'; '.join(parts)}."]


def value_at(config: JsonObject, key: str) -> Any:
    """The value under a dotted key; None where it is not there.

    Of a component the name, of a chain of them the names joined by ``+``. In a chain of codecs the option of the first
    one that has it is found: ``compression.ratio``.
    """
    value: Any = config
    for part in key.split("."):
        if isinstance(value, list):
            value = next((item for item in value if isinstance(item, Mapping) and part in item), None)
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping) and "name" in value:
        return str(value["name"])
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        return "+".join(str(item["name"]) for item in value)
    return value


def keys_of(config: JsonObject, prefix: str = "") -> Iterator[str]:
    """Every dotted key that ``value_at`` finds a value for."""
    for name, value in config.items():
        key = f"{prefix}{name}"
        yield key
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping):
                yield from keys_of(part, f"{key}.")


def _timing_share(status: Status) -> float:
    """Standard error that the chance in the timed steps leaves in a composed time, as a share of it; 0 where the cell
    ran whole or nothing is known of it. What timing runs differ by is ``between_share``."""
    if status.composed is None:
        return 0.0
    if status.composed.within_share is not None:
        return status.composed.within_share
    return log_error(status.composed.interval_s, status.time_to_target_s)


def _shaped(link: JsonObject) -> bool:
    """Whether it asks for anything: a rate may be given as one, as two, or by a trace."""
    rates = ("bandwidth", "up", "down", "trace")
    return bool(link.get("shaped", True)) and any(link.get(name) for name in rates)


def _whole(config: JsonObject, key: str, default: int = 0) -> int:
    found = config.get(key)
    return found if isinstance(found, int) else default


def _quantity(parse: Callable[[Any], float], text: object) -> float | None:
    return None if text is None else float(parse(text))
