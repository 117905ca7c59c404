"""Sites as a link declares them: nodes that share a LAN inside and one line outside, and the paths between them.

Inside a site a node has what its link says. What it sends to another site crosses more lines, each with a rate and a
drop-tail queue of its own: the line up of its site, which all nodes there share, the path between both sites, and the
line down of the other site. Either a site's line or ``paths`` may be missing, not both. ``site_network.py`` is what
they come to among a number of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails

from bwbench.base.errors import ConfigError
from bwbench.base.explain import explain, nearest, problem, refused, show
from bwbench.base.units import BANDWIDTH, DURATION, LinkDelay, LinkRate
from bwbench.network.link.data_file import absolute_path, file_version, text_of
from bwbench.network.link.dilation import dilated_queue
from bwbench.network.link.node_link import QueueSize
from bwbench.network.link.path_matrix import PATHS, read_matrix

PUBLISHED_REGIONS = Path(__file__).with_name("regions.csv")
_EXAMPLE = "'100 Mbit/s 20 ms'"
_KEYS_OF_PATHS = ("file", "between")
_SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"


class Site(BaseModel):
    """Nodes at one place: their numbers follow on those of the site before.

    Attributes:
        name: of the site, as ``paths`` has it.
        nodes: how many are there; None in all sites deals the nodes out evenly, the first sites having one more.
        bandwidth_bps: rate of the line that all nodes of the site share on their way out, and of the one in.
        up_bps, down_bps: where the two differ.
        latency_s: one-way delay to another site, on top of what is between two nodes of a site; half of it belongs to
            each of both sites.
        queue: before each of its lines; None is the link's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=_SITE_NAME)
    nodes: int | None = Field(None, ge=1)
    bandwidth_bps: LinkRate | None = Field(None, alias="bandwidth")
    up_bps: LinkRate | None = Field(None, alias="up")
    down_bps: LinkRate | None = Field(None, alias="down")
    latency_s: LinkDelay = Field(0.0, alias="latency")
    queue: QueueSize | None = None

    @field_validator("name")
    @classmethod
    def _is_no_key(cls, name: str) -> str:
        if name in _KEYS_OF_PATHS:
            raise refused(f"a site cannot be called {name!r}, which is a key of 'paths'; take another name")
        return name

    @property
    def rates_bps(self) -> tuple[float | None, float | None]:
        """Of its lines, up and down; None where it has none of its own."""
        return self.up_bps or self.bandwidth_bps, self.down_bps or self.bandwidth_bps

    def dilated(self, factor: float) -> Site:
        """The same in the machine's time, where emulated time runs ``factor`` times slower, as far as its keys go."""
        given = {name: getattr(self, name) for name in ("bandwidth_bps", "up_bps", "down_bps")}
        rates = {name: rate and rate / factor for name, rate in given.items()}
        queue = dilated_queue(self.queue, factor)
        return self.model_copy(update={**rates, "latency_s": self.latency_s * factor, "queue": queue})


def _named(value: Any) -> Any:
    """``{office: {…}, home: {…}}`` and ``[office, home]`` as a list of sites; a mistake stands at its site's name."""
    if isinstance(value, Mapping):
        made, wrong = list[Site](), list[InitErrorDetails]()
        for name, content in value.items():
            if content is not None and not isinstance(content, Mapping):
                text = f"{show(content)} is no site; write '{name}: {{nodes: 2, bandwidth: 100 Mbit/s}}'"
                wrong.append(problem(text, (str(name),)))
                continue
            try:
                made.append(Site.model_validate({"name": str(name), **(content or {})}))
            except ValidationError as error:
                wrong += [problem(message, (str(name), *loc)) for loc, message in explain(error, Site)]
        if wrong:
            raise ValidationError.from_exception_data("sites", wrong)
        return tuple(made)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple({"name": one} if isinstance(one, str) else one for one in value)
    return value


Sites = Annotated[tuple[Site, ...], BeforeValidator(_named)]


class SitePath(BaseModel):
    """From one site to another: ``100 Mbit/s 20 ms``.

    Attributes:
        bandwidth_bps: of the way, which all nodes of both sites share; the other direction has its own.
        latency_s: one way, on top of what is between two nodes of a site.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, json_schema_extra={"short_form": [{"type": "string"}]}
    )

    bandwidth_bps: LinkRate = Field(alias="bandwidth")
    latency_s: LinkDelay = Field(alias="latency")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return path_of(value)
        except ValueError as error:
            raise refused(str(error)) from None


def path_of(text: str) -> dict[str, str]:
    """Rate and latency of ``100 Mbit/s 20 ms``; raises ValueError that shows the right form, also for a unit."""
    words = [word for word in re.split(r"[\s,]+", re.sub(r"(\d)([A-Za-z])", r"\1 \2", text.strip())) if word]
    is_number = [re.fullmatch(r"[\d.]+", word) is not None for word in words]
    if is_number in ([True, True], [True, False, True], [True, True, False]):
        lacks = "the rate" if is_number[1] else "the latency"
        raise ValueError(f"{text!r}: {lacks} has no unit; write a path like {_EXAMPLE}")
    if is_number != [True, False, True, False]:
        raise ValueError(f"{text!r} is no path; write its rate and its one-way latency, like {_EXAMPLE}")
    rate, latency = " ".join(words[:2]), " ".join(words[2:])
    try:
        BANDWIDTH.parse(rate)
        DURATION.parse(latency)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return {"bandwidth": rate, "latency": latency}


class Paths(BaseModel):
    """Paths between sites, of each pair one; where only one direction is given the other is the same.

    Attributes:
        file: a matrix of them (``path_matrix.py``); None once it has been read.
        between: ``{oregon: {tokyo: 523 Mbit/s 48 ms}}``: from the first to the second. Both directions stand in it,
            whichever were given: one link is written down in one way.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra={"short_form": [{"type": "string"}, {"type": "object"}]}
    )

    file: str | None = Field(None, min_length=1)
    between: dict[str, dict[str, SitePath]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"file": value}
        if not isinstance(value, Mapping) or set(_KEYS_OF_PATHS) & set(value):
            if isinstance(value, Mapping) and all(value.get(key) for key in _KEYS_OF_PATHS):
                raise refused("'file' and 'between' both say what the paths are; leave one of them out")
            return value
        made, wrong = dict[str, dict[str, SitePath]](), list[InitErrorDetails]()
        for src, row in value.items():
            if not isinstance(row, Mapping):
                wrong.append(
                    problem(f"{show(row)} is no row of paths; write '{src}: {{OTHER: {_EXAMPLE[1:-1]}}}'", (src,))
                )
                continue
            for dst, path in row.items():
                try:
                    made.setdefault(str(src), {})[str(dst)] = SitePath.model_validate(path)
                except ValidationError as error:
                    wrong += [problem(message, (src, dst, *loc)) for loc, message in explain(error, SitePath)]
        if wrong:
            raise ValidationError.from_exception_data("paths", wrong)
        return {"between": made}

    @field_validator("between")
    @classmethod
    def _both_ways(cls, given: dict[str, dict[str, SitePath]]) -> dict[str, dict[str, SitePath]]:
        made = {src: dict(row) for src, row in given.items()}
        for src, row in given.items():
            for dst, path in row.items():
                made.setdefault(dst, {}).setdefault(src, path)
        return made

    def path(self, src: str, dst: str) -> SitePath | None:
        """From ``src`` to ``dst``; None where there is none."""
        return self.between.get(src, {}).get(dst)

    def dilated(self, factor: float) -> Paths:
        """The same in the machine's time."""

        def slower(path: SitePath) -> SitePath:
            update = {"bandwidth_bps": path.bandwidth_bps / factor, "latency_s": path.latency_s * factor}
            return path.model_copy(update=update)

        rows = {src: {dst: slower(path) for dst, path in row.items()} for src, row in self.between.items()}
        return self.model_copy(update={"between": rows})


def expand_regions(link: Mapping[str, object]) -> dict[str, object]:
    """The sites and paths that ``regions`` stands for; without it the keys come back as they are.

    Raises ValidationError where they are no published regions, at the place in the link.
    """
    content = dict(link)
    if (asked := content.pop("regions", None)) is None:
        return content
    clash = [key for key in ("sites", "paths") if content.get(key)]
    counts, wrong = _counts_of(asked)
    if clash:
        wrong = [problem(f"stands for sites and the paths between them; leave {' and '.join(clash)} out", ("regions",))]
    if wrong:
        raise ValidationError.from_exception_data("link", wrong)
    known = published_regions()
    between: dict[str, dict[str, SitePath]] = {}
    for src, dst in combinations(counts, 2):
        path = known[src].get(dst) or known[dst][src]
        between.setdefault(src, {})[dst] = path
    content["sites"] = [{"name": name, "nodes": number} for name, number in counts.items()]
    content["paths"] = {"between": between}
    return content


def _counts_of(asked: object) -> tuple[dict[str, object], list[InitErrorDetails]]:
    """How many nodes each region has, None where they are to be dealt out; and what is wrong with that."""
    written = list(asked) if isinstance(asked, (list, tuple, Mapping)) else []
    names = [name for name in written if isinstance(name, str)]
    if not isinstance(asked, (list, tuple, Mapping)) or len(names) < len(written):
        text = f"{show(asked)} is no list of names; write [oregon, virginia], or {{oregon: 2, tokyo: 4}}"
        return {}, [problem(text, ("regions",))]
    counts: dict[str, object] = {name: asked[name] if isinstance(asked, Mapping) else None for name in names}
    wrong, known = list[InitErrorDetails](), published_regions()
    for name, number in counts.items():
        if name not in known:
            text = f"there is no {show(name)}.{nearest(name, known)} Known: {', '.join(known)}"
            wrong.append(problem(text, ("regions", name)))
        elif number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            text = f"{show(number)} is no number of nodes; write 1 or more, like '{name}: 2'"
            wrong.append(problem(text, ("regions", name)))
    silent = [name for name, number in counts.items() if number is None]
    if len(counts) < len(names):
        text = f"{show(names)} names one twice; say how many nodes it has: {{oregon: 4, tokyo: 2}}"
        wrong.append(problem(text, ("regions",)))
    elif len(counts) < 2:
        text = f"{show(asked)}: paths lead from one region to another; name two or more, like [oregon, virginia]"
        wrong.append(problem(text, ("regions",)))
    elif 0 < len(silent) < len(counts):
        text = f"{', '.join(silent)} without a number of nodes, and others with; give it for each, or for none"
        wrong.append(problem(text, ("regions",)))
    return counts, wrong


def published_regions() -> Mapping[str, Mapping[str, SitePath]]:
    """Regions of a cloud that others have measured, ``[from][to]``; each pair stands in one of both rows."""
    return paths_in(str(PUBLISHED_REGIONS), PUBLISHED_REGIONS.name)


def paths_in(file: str, shown: str) -> Mapping[str, Mapping[str, SitePath]]:
    """The paths of a matrix file, ``[from][to]``; raises ConfigError with file and line."""
    return _paths_in(file, file_version(file, shown, PATHS), shown)


@lru_cache(maxsize=8)  # every cell of an experiment asks for the same file
def _paths_in(file: str, version: tuple[int, ...], shown: str) -> Mapping[str, Mapping[str, SitePath]]:
    return read_matrix(text_of(file, shown, PATHS)[0], shown, _cell)


def _cell(text: str) -> SitePath:
    """The path in a cell; raises ValueError, in words for the user."""
    try:
        return SitePath.model_validate(path_of(text))
    except ValidationError as error:
        raise ValueError("; ".join(message for _, message in explain(error, SitePath))) from None


def wrong_sites(
    sites: Sequence[Site], paths: Paths | None, *, is_shared: bool, frame_bytes: int
) -> Iterator[InitErrorDetails]:
    """What is wrong with the sites of a link and their paths, each at its place within the link."""
    if not sites:
        if paths is not None:
            yield problem(
                "'paths' lead from site to site; name these: 'sites: {office: {nodes: 2}, home: …}'", ("paths",)
            )
        return
    names = [site.name for site in sites]
    if is_shared:
        yield problem("'sites' have a switched LAN each; leave 'medium: shared' out, or the sites", ("sites",))
    if len(sites) < 2:
        yield problem(
            f"one site has no other to send to; name another beside {names[0]}, or leave 'sites' out", ("sites",)
        )
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield problem(f"two sites are called {name!r}; give each a name of its own", ("sites",))
    if len({site.nodes is None for site in sites}) > 1:
        silent = [site.name for site in sites if site.nodes is None]
        yield problem(
            f"{', '.join(silent)} without 'nodes', and others with: say of each site how many it has, or of none, "
            "so that they are dealt out evenly",
            ("sites",),
        )
    for site in sites:
        if paths is None and None in site.rates_bps:
            text = "needs a line: 'bandwidth: 100 Mbit/s', or 'up' and 'down'; or give 'paths' between the sites"
            yield problem(f"site {site.name!r} {text}", ("sites", site.name))
        if paths is not None and site.latency_s:
            text = f"site {site.name!r}: 'paths' say how far sites are from one another; leave its latency out"
            yield problem(text, ("sites", site.name, "latency"))
        if site.queue is not None and site.queue.unit == "B" and site.queue.amount < frame_bytes:
            text = f"a queue of {site.queue.amount:g} B is too small: it has to hold one frame ({frame_bytes} B)"
            yield problem(text, ("sites", site.name, "queue"))
    if paths is not None and paths.file is None:
        yield from _wrong_paths(names, paths)


def _wrong_paths(names: Sequence[str], paths: Paths) -> Iterator[InitErrorDetails]:
    known = set(names)
    for src, row in paths.between.items():  # those that were given come first
        for name in (src, *row):
            if name not in known:
                known.add(name)  # said once, though both directions have it
                text = f"there is no site {name!r}.{nearest(name, names)} Sites: {', '.join(names)}"
                yield problem(text, ("paths", src))
        if src in row:
            text = (
                f"{src!r} has no path to itself: inside a site the link's own bandwidth and latency hold; leave it out"
            )
            yield problem(text, ("paths", src, src))
    for src, dst in combinations(dict.fromkeys(names), 2):
        if paths.path(src, dst) is None:
            text = f"no path between {src!r} and {dst!r}; add '{src}: {{{dst}: {_EXAMPLE[1:-1]}}}'"
            yield problem(text, ("paths",))


def freeze_paths(paths: Paths, sites: Sequence[Site], folder: Path) -> Paths:
    """With the matrix of its file read, as far as these sites go; without a file as it is.

    Raises ConfigError where the file cannot be read, is malformed, or lacks a path.
    """
    if paths.file is None:
        return paths
    found = paths_in(absolute_path(paths.file, folder), paths.file)
    names = [site.name for site in sites]
    for name in names:
        if name not in found:
            known = f"{nearest(name, found)} It has: {', '.join(found)}"
            raise ConfigError(f"{paths.file}: there is no row for site {name!r}.{known}")
    wanted = {src: {dst: path for dst, path in found[src].items() if dst in names} for src in names}
    return Paths(between={src: row for src, row in wanted.items() if row})
