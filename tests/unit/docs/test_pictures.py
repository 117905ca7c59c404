"""Pictures of the docs: each is there, is shown by a page, says in words what it shows, and is what draw.py draws."""

from __future__ import annotations

import re
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "pictures"))
from canvas import MOST_LABELS, WIDTH, Canvas, Scale
from draw import draw

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = DOCS / "pictures"

IMAGE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)")
SHOWN = [
    (page, words, page.parent / file)
    for page in sorted(DOCS.glob("**/*.md"))
    for words, file in IMAGE.findall(page.read_text(encoding="utf-8"))
    if file.endswith(".svg")
]
FILES = sorted(PICTURES.glob("*.svg"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    draw(folder)
    return folder


@pytest.mark.parametrize(("page", "words", "file"), SHOWN, ids=lambda part: getattr(part, "name", ""))
def test_a_picture_is_there_and_said_in_words(page: Path, words: str, file: Path) -> None:
    assert file.is_file()
    assert len(words.split()) >= 8 and words.endswith("."), "a sentence for whoever does not see it"


def test_every_picture_is_shown() -> None:
    shown = {file.resolve() for _, _, file in SHOWN}
    assert [file.name for file in FILES if file.resolve() not in shown] == []


def test_the_program_draws_all_of_them(drawn: Path) -> None:
    assert [file.name for file in sorted(drawn.iterdir())] == [file.name for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_picture_is_drawn_the_same_byte_for_byte(file: Path, drawn: Path) -> None:
    """No library draws them, so that no version of one can change them."""
    assert (drawn / file.name).read_bytes() == file.read_bytes(), "run: python docs/pictures/draw.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_everything_lies_inside_the_picture(file: Path) -> None:
    picture = ElementTree.parse(file).getroot()
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for part in picture.iter():
        across = [part.attrib.get(name) for name in ("x", "cx")]
        down = [part.attrib.get(name) for name in ("y", "cy")]
        pairs = [pair.split(",") for pair in part.attrib.get("points", "").split()]
        assert all(0 <= float(x) <= width for x in (*across, *(x for x, _ in pairs)) if x is not None)
        assert all(0 <= float(y) <= height for y in (*down, *(y for _, y in pairs)) if y is not None)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_words_fit_into_the_picture_and_do_not_overlap(file: Path) -> None:
    """By DejaVu Sans, the widest of the fonts that are asked for."""
    places = [box_of(text) for text in ElementTree.parse(file).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert [words for words, left, right, _, _ in places if left < 0 or right > WIDTH] == []
    for (one, left, right, top, foot), (other, other_left, other_right, other_top, other_foot) in combinations(
        places, 2
    ):
        apart = right <= other_left or other_right <= left or foot <= other_top or other_foot <= top
        assert apart, f"{one!r} lies on {other!r}"


def box_of(text: ElementTree.Element) -> tuple[str, float, float, float, float]:
    """Its words, and where they begin and end, from left to right and from top to foot."""
    words, size, foot = text.text or "", float(text.attrib["font-size"]), float(text.attrib["y"])
    font = FontProperties(family="DejaVu Sans", weight=text.get("font-weight", "normal"))
    width = TextPath((0, 0), words, size=size, prop=font).get_extents().width
    left = float(text.attrib["x"]) - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]] * width
    return words, left, left + width, foot - 0.75 * size, foot


def test_a_picture_of_too_many_words_is_refused() -> None:
    canvas = Canvas()
    for number in range(MOST_LABELS + 1):
        canvas.label(20, 20 * number, "word")
    with pytest.raises(ValueError, match="at most"):
        canvas.svg()


@pytest.mark.parametrize("log", [False, True])
def test_a_scale_goes_from_its_begin_to_its_end(log: bool) -> None:
    scale = Scale(1, 100, 20, 600, log)
    assert (scale(1), scale(100)) == (pytest.approx(20), pytest.approx(600))
    assert scale(10) == pytest.approx(310 if log else 20 + 580 * 9 / 99)
