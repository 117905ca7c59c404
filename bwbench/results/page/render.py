"""One HTML file of the templates beside this module and a payload: scripts, styles and data inside, no request made."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from bwbench.base.errors import UnfitMachineError

_HERE = Path(__file__).parent
_PLOTLY = "plotly"  # whose Python package brings plotly.js; its own code is not imported
# In the order in which they need each other.
SCRIPTS = ("words.js", "student.js", "statistics.js", "isotonic.js", "arrivals.js", "state.js", "recommend.js",
           "answer.js", "look.js", "charts.js", "ledger.js", "table.js", "recommendation.js", "controls.js",
           "main.js")  # fmt: skip
WATCHED = "live.js"  # of a page that asks for newer records


def render_page(payload: Mapping[str, object], live: str | None = None) -> str:
    """The whole page. Text in ``payload`` is data, never markup.

    Args:
        live: version of the records, on a page that asks its server for newer ones; None asks nobody.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_HERE / "page.html").read_text(encoding="utf-8"))
    files = importlib.metadata.files(_PLOTLY) or []
    notices = [file for file in files if file.name.startswith("LICENSE") and ".dist-info" in str(file)]
    return template.render(
        title=str(payload["title"]),
        title_parts=re.split(r"(?<=[_/.])", str(payload["title"])),  # where a narrow screen may break it
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        vendor=Markup(plotly_js()),
        # It has to go along with the script.
        vendor_license=notices[0].read_text(encoding="utf-8")
        if notices
        else "plotly.js: Copyright Plotly, Inc. MIT licence.",
        script=Markup(_inside_script(scripts(SCRIPTS if live is None else (*SCRIPTS, WATCHED)))),
        live=live,
        payload=Markup(json_for_script(payload)),
    )


def scripts(names: tuple[str, ...] = SCRIPTS) -> str:
    """The page's own scripts, one after the other."""
    return "\n".join((_HERE / "js" / name).read_text(encoding="utf-8") for name in names)


def json_for_script(value: object) -> str:
    """JSON that may stand in a ``<script>``: no name in it can end the element or begin a comment.

    Raises ValueError for a number that is infinite or not a number: JSON has none, and the browser would refuse it.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def plotly_js() -> str:
    """plotly.js, as it may stand in a ``<script>``. Raises UnfitMachineError where its package is not installed."""
    spec = importlib.util.find_spec(_PLOTLY)
    if spec is None or not spec.submodule_search_locations:
        raise UnfitMachineError("the report needs plotly, which is not installed; 'pip install plotly' brings it")
    file = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return _inside_script(file.read_text(encoding="utf-8"))


def _inside_script(source: str) -> str:
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
