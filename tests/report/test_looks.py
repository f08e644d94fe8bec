"""Tables for every screen, colours that can be read, and what is folded on paper."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from isthmus.report.page import _TEMPLATES, render, write_report
from isthmus.report.tables import label_cells
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

CSS = (_TEMPLATES / "report.css").read_text(encoding="utf-8")


def test_cells_know_their_columns() -> None:
    table = "<table>\n<thead><tr><th>set</th><th>no can-<br>didates</th><th>cross-<br>entropy</th></tr></thead>\n"
    table += '<tbody>\n<tr class="all"><td>a<br>b</td><td>1</td><td class="words">2</td></tr>\n</tbody>\n</table>'
    found = label_cells(f"before {table} after")
    assert '<th scope="col">set</th>' in found
    assert '<tr class="all"><th scope="row">a<br>b</th>' in found
    assert '<td data-name="no candidates">1</td><td data-name="cross-entropy" class="words">2</td>' in found
    assert (found.startswith("before "), found.endswith(" after")) == (True, True)


def test_every_heading_has_a_scope_and_every_link_a_target(rich_run: RunFolder, detector: RunFolder) -> None:
    for folder in (rich_run, detector):
        page = render(read_run(folder))
        assert re.findall(r"<th(?! scope=)[^a-z]", page) == []
        assert page.count('scope="row"') > 3
        targets = re.findall(r'<a href="#([^"]+)"', page)
        assert {"attacks", "examples", "examples-1"} <= set(targets)
        assert [target for target in targets if f'id="{target}"' not in page] == []


TEXTS = (
    ("ink", "paper"), ("ink", "sheet"), ("ink", "soft"), ("muted", "paper"), ("muted", "sheet"), ("accent", "paper"),
    ("accent", "sheet"), ("warn-ink", "warn"), ("gone-ink", "gone"), ("new-ink", "new"), ("severe", "paper"),
    ("weak", "paper"), ("holds", "paper"), ("undecided", "paper"),
    *((f"series-{number}", "paper") for number in range(1, 7)),
)  # fmt: skip
"""Colours that texts have, and what is behind them; names beside curves have the colours of the series."""


GRAPHICS = ("clean", "severe", "weak", "holds", "undecided", *(f"series-{number}" for number in range(1, 7)))
"""Colours of lines and marks, for which the standard asks for 3:1."""


def palette(dress: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return colours if dress == "light" else colours | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


@pytest.mark.parametrize("dress", ["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), TEXTS)
def test_texts_can_be_read(dress: str, text: str, behind: str) -> None:
    colours = palette(dress)
    assert contrast(colours[text], colours[behind]) >= 4.5


@pytest.mark.parametrize("dress", ["light", "dark"])
@pytest.mark.parametrize("line", GRAPHICS)
def test_lines_can_be_seen(dress: str, line: str) -> None:
    colours = palette(dress)
    assert contrast(colours[line], colours["paper"]) >= 3


@pytest.mark.parametrize("name", ["severe", "weak", "holds", "undecided"])
def test_every_verdict_has_its_colour(name: str) -> None:
    """In the figure, in the sentence, in the bar and in its key; what has no verdict is grey."""
    for rule in (f".robust.{name} .figure-large", f".severity.{name}"):
        assert rule in CSS
    if name != "undecided":
        assert f".bar.{name} .to-robust, .key-robust.{name} {{ background: var(--{name}); }}" in CSS
    for dress in ("light", "dark"):
        assert palette(dress)["undecided"] == palette(dress)["muted"]


def test_no_text_is_made_fainter_than_its_colour() -> None:
    faint = re.findall(r"^([^\n{}]+)\{[^}]*opacity: [^}]*\}", CSS, re.MULTILINE)
    assert [rule.strip() for rule in faint] == [".bar .to-clean"]


# In a browser

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=2000",
)  # fmt: skip


def browse(folder: Path, *words: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'browser'}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def every_section(tmp_path: Path) -> RunFolder:
    """A run with evaluations, explanations, certificates, measures and training."""
    return RunFolder(shutil.copytree(Path(__file__).parents[1] / "fixtures" / "runs" / "texts", tmp_path / "texts"))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("name", ["rich_run", "detector", "every_section"])
def test_nothing_is_wider_than_a_narrow_screen(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The page in a frame of 400 pixels, which no window is narrow enough for, says how wide its tables want to be."""
    page = write_report(request.getfixturevalue(name)).read_text(encoding="utf-8")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', page)
    assert policy is not None
    probe = "<script>parent.document.title = [document.documentElement.scrollWidth, innerWidth, ...[...document."
    probe += "querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)].join(' ')</script>"
    bare = page.replace(policy[0], "").replace("</body>", f"{probe}</body>")
    frame = f'<iframe style="width:400px;height:900px;border:0" srcdoc="{html.escape(bare)}"></iframe>'
    (tmp_path / "page.html").write_text(f"<!doctype html><title></title>{frame}", encoding="utf-8")
    shown = browse(tmp_path, "--dump-dom", (tmp_path / "page.html").as_uri())
    width, window, *beyond = map(int, re.findall(r"<title>([^<]*)</title>", shown)[0].split())
    assert window == 400
    assert width <= window
    assert beyond
    assert max(beyond) <= 0


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_print_opens_what_is_folded(run_folder: RunFolder, tmp_path: Path) -> None:
    """Folded examples take paper: with them the printed page is much longer than without."""
    page = write_report(run_folder).read_text(encoding="utf-8")
    lengths = []
    for name, source in {
        "folded": page,
        "open": page.replace("<details>", "<details open>"),
        "without": re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL),
    }.items():
        (tmp_path / f"{name}.html").write_text(source, encoding="utf-8")
        paper = tmp_path / f"{name}.pdf"
        browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", (tmp_path / f"{name}.html").as_uri())
        lengths.append(len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())))
    assert lengths[0] == lengths[1] > lengths[2] + 2
