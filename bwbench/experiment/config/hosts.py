"""``hosts:`` the machines of ``launcher: ssh``, in the experiment's file or in an inventory of their own.

Whatever is written here ends up in a connection or, quoted, in a command on another machine: so the forms are narrow,
and what does not fit them is refused before anything is opened.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.errors import ConfigError, Problem
from bwbench.base.explain import explain, problem
from bwbench.base.plain_data import Json, JsonObject
from bwbench.base.yaml_document import MAX_BYTES, Place, parse_yaml, read_text_file
from bwbench.experiment.config.component_parsing import refused

MOST_HOSTS = 250
MOST_WORKERS = 64  # on one of them
_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_SHORT = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<address>\[[^\]]*:[^\]]*\]|[^:@\[\]]*)(?::(?P<port>[^:]*))?", re.DOTALL)
_FORM = "write it like anna@192.168.1.10, anna@laptop.local:2222, or as a mapping with 'address'"


def _shown(value: object) -> str:
    """A value in a message: what could fool a terminal, or a reader, is spelled out."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _wrong(value: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("config", "{message}", {"message": f"{_shown(value)} {text}"})


def _address(value: str) -> str:
    if _NAME.fullmatch(value):
        return value
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        text = "is no host name and no IP address: letters, digits, '-' and '.', beginning with a letter or digit"
        raise _wrong(value, text) from None


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise _wrong(value, "is no user name: letters, digits, '.', '_' and '-', beginning with a letter")
    return value


def _interface(value: str) -> str:
    if not _INTERFACE.fullmatch(value):
        raise _wrong(value, "is no network interface, such as wlan0 ('ip link' lists them)")
    return value


def _path(value: str) -> str:
    if not value or value.startswith("-") or any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise _wrong(value, "is no path: it is empty, begins with '-', or has control characters")
    return value


class Host(BaseModel):
    """A machine that ssh reaches.

    Attributes:
        address: host name, alias of ``~/.ssh/config``, or IP address.
        user, port: None leaves them to ssh's configuration.
        network: address that the other hosts reach it by, where that is another one than ssh's.
        interface: that the training uses; None takes the one that leads to the first host.
        workers: ranks on this host.
        python: interpreter there, with bwbench.
        data: folder of data sets there (BWBENCH_DATA); None is bwbench's own choice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: Annotated[str, AfterValidator(_address)]
    user: Annotated[str, AfterValidator(_user)] | None = None
    port: int | None = Field(None, ge=1, le=65535)
    network: Annotated[str, AfterValidator(_address)] | None = None
    interface: Annotated[str, AfterValidator(_interface)] | None = None
    workers: int = Field(1, ge=1, le=MOST_WORKERS)
    python: Annotated[str, AfterValidator(_path)] = "python3"
    data: Annotated[str, AfterValidator(_path)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            found = _SHORT.fullmatch(value)
            if found is None or not found["address"]:
                raise refused([problem(f"{_shown(value)} is no host; {_FORM}")])
            content: JsonObject = {"address": found["address"].strip("[]")}
            if found["user"] is not None:
                content["user"] = found["user"]
            if (port := found["port"]) is not None:
                if not re.fullmatch(r"[0-9]{1,5}", port):
                    raise refused([problem(f"{_shown(value)}: {_shown(port)} is no port; {_FORM}")])
                content["port"] = int(port)
            return content
        if not isinstance(value, (Mapping, Host)):
            raise refused([problem(f"{_shown(value)} is no host; {_FORM}")])
        if isinstance(value, Mapping) and "password" in value:
            raise refused([problem("a password does not belong into a file; ssh's keys or its agent open the way")])
        return value

    @property
    def name(self) -> str:
        """``user@address:port``, as far as given."""
        user = f"{self.user}@" if self.user else ""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{user}{address}" + (f":{self.port}" if self.port else "")


def read_hosts(value: Json, place: Place, folder: Path, problems: list[Problem], workers: int = 1) -> tuple[Host, ...]:
    """The hosts that stand under ``hosts``, or in the file that it names; what is wrong is added to ``problems``.

    Args:
        value: as the user wrote it.
        place: of it.
        folder: that the name of an inventory is relative to.
        workers: ranks on a host that does not say how many.
    """
    if isinstance(value, str):
        try:
            document = parse_yaml(read_text_file(folder / value, MAX_BYTES), value)
        except ConfigError as error:
            problems += [place.problem(f"hosts: {found}") for found in error.problems]
            return ()
        problems += document.problems
        value, place = document.data, Place(document)
        if isinstance(value, Mapping) and set(value) == {"hosts"}:
            value, place = value["hosts"], place.inside("hosts")
    if not isinstance(value, list) or not value:
        problems.append(place.problem(f"hosts: {_shown(value)} is no list of hosts, nor a file with one; {_FORM}"))
        return ()
    if len(value) > MOST_HOSTS:
        problems.append(place.problem(f"hosts: {len(value)} of them; at most {MOST_HOSTS}"))
        return ()
    hosts: list[Host] = []
    for index, item in enumerate(value):
        try:
            host = Host.model_validate(item, strict=True)
        except ValidationError as error:
            for loc, text in explain(error, Host):
                where = ".".join(map(str, ("hosts", index, *loc)))
                problems.append(place.inside(index, *loc).problem(f"{where}: {text}"))
            continue
        if "workers" not in host.model_fields_set:
            host = host.model_copy(update={"workers": workers})
        twin = next((other for other in hosts if (other.address, other.port) == (host.address, host.port)), None)
        if twin is not None:
            text = f"hosts.{index}: {host.name} is there twice; 'workers: 2' starts two ranks on one host"
            problems.append(place.inside(index).problem(text))
        hosts.append(host)
    return tuple(hosts)


def inventory(file: Path) -> tuple[Host, ...]:
    """The hosts of an inventory file. Raises ConfigError with everything that is wrong in it."""
    problems: list[Problem] = []
    document = parse_yaml(read_text_file(file, MAX_BYTES), str(file))
    data, place = document.data, Place(document)
    problems += document.problems
    if isinstance(data, Mapping) and "hosts" in data:  # an experiment's file has them, too
        data, place = data["hosts"], place.inside("hosts")
    hosts = read_hosts(data, place, file.parent, problems) if not problems else ()
    if problems:
        raise ConfigError(problems)
    return hosts
