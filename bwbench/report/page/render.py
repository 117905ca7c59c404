"""One HTML file of the templates beside this module and a payload: scripts, styles and data inside, no request made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

_HERE = Path(__file__).parent
VENDOR = ("plotly-basic.min.js",)
# In the order in which they need each other.
SCRIPTS = ("words.js", "statistics.js", "arrivals.js", "state.js", "recommend.js", "look.js", "charts.js",
           "ledger.js", "table.js", "recommendation.js", "controls.js", "main.js")  # fmt: skip


def render_page(payload: Mapping[str, Any]) -> str:
    """The whole page. Text in ``payload`` is data, never markup."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((_HERE / "page.html").read_text())
    return template.render(
        title=str(payload["title"]),
        style=Markup((_HERE / "page.css").read_text()),
        vendor=Markup("\n".join(_inside_script((_HERE / "vendor" / name).read_text()) for name in VENDOR)),
        vendor_license=(_HERE / "vendor" / "plotly-LICENSE.txt").read_text(),
        script=Markup(_inside_script(scripts())),
        payload=Markup(json_for_script(payload)),
    )


def scripts(names: tuple[str, ...] = SCRIPTS) -> str:
    """The page's own scripts, one after the other."""
    return "\n".join((_HERE / "js" / name).read_text() for name in names)


def json_for_script(value: Any) -> str:
    """JSON that may stand in a ``<script>``: no name in it can end the element or begin a comment.

    Raises ValueError for a number that is infinite or not a number: JSON has none, and the browser would refuse it.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _inside_script(source: str) -> str:
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")
