"""Plots of measures: every kind draws, in the page's colours and as files."""

import builtins
import itertools
import xml.etree.ElementTree as ElementTree

import pytest

from isthmus.core.errors import MissingExtra
from isthmus.measures.base import Panel, Plot, Series
from isthmus.report.measure import figure as plots

KINDS = {
    "line": Plot("a", "t", "x", "y", (Series("train", (1, 2), (3, 4), y_bounds=((2, 4), (3, 5))),)),
    "path": Plot("a", "t", "x", "y", (Series("train", (1, 2), (3, 4), labels=("1", "2")),) * 2, kind="path",
                 order_label="epoch"),
    "points": Plot("a", "t", "x", "y", (Series("vib", (0.9, 0.8), (0.2, 0.5), ((0.8, 1.0),) * 2, ((0.1, 0.6),) * 2,
                                               ("0.1", "<b>$5")),), kind="points", percent="xy"),
    "bars": Plot("a", "t", "", "y", (Series("one", (0, 1), (0.2, -0.1), y_bounds=((0.1, 0.3), (-0.2, 0.0))),) * 2,
                 kind="bars", ticks=("benign", "adversarial"), diagonal=True),
    "scatter": Plot("a", "t", "x", "y", (Series("one", (1, 20), (-3, 400), labels=("a", "b")),
                                         Series("two", (0, 9), (1, 1), reference=True)), kind="scatter", log="xy"),
    "images": Plot("a", "t", "", "", (), kind="images",
                   panels=((Panel("<b>3, 0.9", (((0,), (255,)), ((128,), (128,)))), Panel("red", (((255, 0, 0),),))),)),
    "one point": Plot("a", "t", "x", "y", (Series("train", (1,), (3,), labels=("1",)),), kind="path"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_draws_in_the_page_and_to_files(kind, tmp_path):
    inline = plots.inline(KINDS[kind], "scope")
    assert "var(--ink)" in inline
    assert "#01020" not in inline  # no stand-in is left
    assert "<image" not in inline  # the page's policy would not show it
    paths = plots.save(KINDS[kind], tmp_path / "figures" / "a.b@1")
    assert [path.name for path in paths] == ["a.b@1.svg", "a.b@1.png"]
    svg = paths[0].read_text()
    ElementTree.fromstring(svg)
    assert "var(--" not in svg
    assert paths[1].read_bytes()[1:4] == b"PNG"
    assert plots.inline(KINDS[kind], "scope") == inline  # the same page for the same run


def test_long_names_of_ticks_leave_room_for_their_neighbours():
    from matplotlib.figure import Figure

    names = ("standard", "freelb", "infobert", "safer", "advaug", "rsmi, nothing masked", "rsmi, average", "rsmi, vote")
    series = Series("left", tuple(map(float, range(8))), (0.5,) * 8)
    plot = Plot("a", "t", "", "y", (series,), kind="bars", ticks=names)
    figure = Figure(figsize=(9.2, plots.height(plot)), layout="constrained")
    plots.draw(figure, plot, plots.Palette())
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    assert [" ".join(label.get_text().split()) for label in labels] == list(names)
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))


def test_the_light_colours_are_those_of_the_page():
    colours = plots.light()
    assert len(colours) == 5 + 6
    assert all(colour.startswith("#") for colour in colours.values())


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtra, match=r"figure files needs matplotlib: pip install 'isthmus\[report\]'"):
        plots.save(KINDS["line"], tmp_path / "a")


def test_an_image_is_drawn_as_boxes_of_its_colours():
    svg = plots.inline(KINDS["images"])
    tree = ElementTree.fromstring(svg)
    shapes = [(path.get("fill"), path.get("d")) for path in tree.iter("{http://www.w3.org/2000/svg}path")]
    # The two grey pixels of a line are one box; 128 is nearest to the shade 136.
    assert shapes == [
        ("#000000", "M0 0h1v1h-1z"),
        ("#ffffff", "M1 0h1v1h-1z"),
        ("#888888", "M0 1h2v1h-2z"),
        ("#ff0000", "M0 0h1v1h-1z"),
    ]
