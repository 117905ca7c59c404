"""What links are called in a picture: as their preset where they are one, else by the words that tell them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from bwbench.base.plain_data import JsonObject, list_at, mapping_at
from bwbench.network.link import Link
from bwbench.network.link.named_links import named_links
from bwbench.results.analysis.cells import describe_link, keys_of, value_at

_NO_PART_OF_A_PRESET = ("overrides", "wired", "tcp", "seed", "backend")  # said beside its name where it matters
_LONG_VALUE = 24  # letters, above which a setting's value is no label (a whole trace)

Asked = JsonObject  # a link as it stands in cell.json


@dataclass(frozen=True)
class LinkName:
    """How one link is called.

    Attributes:
        name: its preset with what is different at some nodes (``wifi-802.11n-good, node 3: 6.5 Mbit/s``); without a
            preset the words that it does not share with all other links.
        about: of a preset its rate and round trip; empty where ``name`` says it all.
    """

    name: str
    about: str


def name_links(links: Sequence[Asked]) -> list[LinkName]:
    """A name for each of ``links``, no two of them alike."""
    shared = common_words(links)
    names = []
    for link in links:
        preset = _preset_of(link)
        if preset is None:
            words = [word for word in _words(link) if word not in shared]
            names.append(LinkName(", ".join(words) or describe_link(link), ""))
        else:
            rate = [word for word in _rate_words(link) if word not in shared]
            names.append(LinkName(", ".join([preset, *_words_on_nodes(link)]), ", ".join(rate)))
    return _numbered(_told_apart(names, links))


def common_words(links: Sequence[Asked]) -> list[str]:
    """What all ``links`` have in common, for the caption: ``20 Mbit/s``, ``RTT 5 ms``."""
    return [word for word in _words(links[0]) if all(word in _words(link) for link in links)] if links else []


def _words(link: Asked) -> list[str]:
    return [*describe_link({**link, "overrides": {}}).split(", "), *_words_on_nodes(link)]


def _rate_words(link: Asked) -> list[str]:
    """The first words on a link, up to its round trip; none where it has none."""
    words = _words(link)
    return words[: next((place + 1 for place, word in enumerate(words) if word.startswith("RTT ")), 0)]


def _words_on_nodes(link: Asked) -> list[str]:
    """Nodes on a wire, and those with a link of their own: ``node 3: 6.5 Mbit/s``."""
    wired, overrides = list_at(link, "wired"), mapping_at(link, "overrides")
    alike: dict[str, list[Any]] = {}
    for node in sorted(overrides, key=int):
        given = [
            key if isinstance(value, Mapping) else str(value) if key == "bandwidth" else f"{key} {value}"
            for key, value in mapping_at(overrides, node).items()
            if value is not None
        ]
        alike.setdefault(", ".join(given), []).append(node)
    return [*([f"{_nodes(wired)} wired"] if wired else []), *(f"{_nodes(who)}: {own}" for own, who in alike.items())]


def _nodes(numbers: Sequence[Any]) -> str:
    return f"{'node' if len(numbers) == 1 else 'nodes'} {' and '.join(map(str, numbers))}"


def _preset_of(link: Asked) -> str | None:
    """The built-in preset that a link is, nodes that differ set aside: cells hold what a preset stands for."""
    try:
        asked = Link.model_validate({key: value for key, value in link.items() if key not in _NO_PART_OF_A_PRESET})
    except ValidationError:
        return None
    return next((name for name, preset in _presets().items() if preset == asked), None)


@lru_cache(maxsize=1)
def _presets() -> dict[str, Link]:
    return {name: Link.model_validate({"preset": name}) for name in named_links(Link)}


def _told_apart(names: Sequence[LinkName], links: Sequence[Asked]) -> list[LinkName]:
    """Names that are alike get the settings in which their links differ: ``tcp congestion control bbr``."""
    found = []
    for name, link in zip(names, links, strict=True):
        alike = [other for one, other in zip(names, links, strict=True) if one.name == name.name]
        own = [
            f"{key.replace('.', ' ').replace('_', ' ')} {value_at(link, key)}"
            for key in keys_of(link)
            if len({str(value_at(other, key)) for other in alike}) > 1 and _is_short(value_at(link, key))
        ]
        found.append(replace(name, name=", ".join([name.name, *own])))
    return found


def _is_short(value: Any) -> bool:
    return value not in (None, []) and not isinstance(value, Mapping) and len(str(value)) <= _LONG_VALUE


def _numbered(names: Sequence[LinkName]) -> list[LinkName]:
    """What is still alike (two traces of one mean) is numbered."""
    times = Counter(name.name for name in names)
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name.name] += 1
        found.append(replace(name, name=f"{name.name} ({seen[name.name]})") if times[name.name] > 1 else name)
    return found
