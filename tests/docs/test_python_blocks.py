"""Every block of Python on every page runs as it stands, on toy data and with tiny models (`workshop`).

The blocks of a page are run in order, and share their names as the cells of a notebook do. What a page takes for
granted is made before the block that needs it; what cannot run here is changed in one place, or named, with a reason.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import documented
import pytest
import training_toys as toys
import workshop
from documented import ROOT

from isthmus.verbs.label_check import LabelCheck

PAGES = ["README.md", *documented.pages("docs", "docs/guides")]


def blocks(page: str) -> list[str]:
    """The blocks of a page; those of an example in a list are indented with it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)]


def make_frames() -> dict[str, Any]:
    import pandas

    rows = [(f"a {'lovely' if number % 2 else 'dull'} film {number}", number % 2) for number in range(8)]
    return {name: pandas.DataFrame(rows, columns=["review", "stars"]) for name in ("frame", "other")}


def make_image_model() -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    images = torch.rand(8, 1, 4, 4)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()
    return {"model": model, "images": images, "labels": model(images).argmax(dim=1)}


def make_text_model() -> dict[str, Any]:
    import torch

    data = toys.dataset("test", 6, 0)
    texts = [example.texts for example in data]
    return {"model": toys.classifier().eval(), "texts": texts, "labels": torch.tensor(data.label_indices())}


@dataclass(frozen=True)
class Given:
    """Names that a block reads and no block makes."""

    page: str
    block: str
    """What stands in the block."""
    make: Callable[[], dict[str, Any]]


GIVEN = (
    Given("docs/gradient-attacks.md", ".run(model, images, labels)", make_image_model),
    Given("docs/gradient-attacks.md", "EmbeddingTarget(model, ", make_text_model),
    Given("docs/python.md", "frame", make_frames),
)


@dataclass(frozen=True)
class Change:
    """What is run in place of something on a page."""

    page: str
    old: str
    new: str
    reason: str


CHANGES = (
    Change(
        "docs/victims.md", ".serve_forever()", ".server_close()", "it would serve for ever; test_victims_page asks it"
    ),
    Change("docs/victims.md", "8000", "0", "somebody else may use the port"),
)

BODIES = {"docs/architecture.md": "order = yield from"}
"""Blocks that are the body of an attack's `search`: they are run as that of `deepwordbug`, whose they are."""
AROUND = """
from isthmus.attacks import DeepWordBug
from isthmus.attacks.parts.searches import by_importance, greedy
from isthmus.lexicon.stopwords import stop_words

class Excerpt(DeepWordBug):
    def search(self, trial):
{body}

def classify(texts):
    return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]

(result,) = Excerpt()(classify, [Example("test:0", {{"text": "a dull plot"}}, 0)])
assert result.outcome == "succeeded", result
"""

ELSEWHERE = {"textattack": "TextAttack has an environment of its own (benchmarks/setup_textattack.sh)"}
"""Libraries that tests do without: of blocks that import one, what they import of isthmus is imported, and no more."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Toys are hardly trained with what is usual for a real model: their labels look wrong.
    monkeypatch.setattr(LabelCheck, "is_suspicious", False)
    with workshop.opened(tmp_path) as folder:
        yield folder


def prepare(page: str, code: str, names: dict[str, Any]) -> None:
    """Runs and attacks that a block reads, and names that it takes for granted."""
    for name in re.findall(r"""["']runs/([\w-]+)["']""", code):
        if f'folder="runs/{name}"' not in code:
            workshop.make_run(name)
            for attack in re.findall(r"""attacks\[["'](\w+)["']\]""", code):
                workshop.attack_run(name, attack)
    for given in GIVEN:
        if given.page == page and given.block in code:
            names |= given.make()


def needs_elsewhere(code: str) -> bool:
    return any(re.search(rf"^(from|import) {name}\b", code, re.M) and not find_spec(name) for name in ELSEWHERE)


def change(page: str, code: str) -> str:
    for each in CHANGES:
        if each.page == page:
            code = code.replace(each.old, each.new)
    if page in BODIES and code.startswith(BODIES[page]):
        code = "from isthmus import Example\n" + AROUND.format(body=textwrap.indent(code, " " * 8))
    return code


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_the_blocks_of_a_page_run(page: str, place: Path) -> None:
    names: dict[str, Any] = {"__name__": "pasted"}
    for number, block in enumerate(blocks(page), start=1):
        code = change(page, block)
        program = compile(code, f"{page}, block {number}", "exec")
        if needs_elsewhere(code):
            own = "".join(re.findall(r"^(?:from|import) isthmus.*\n", code, re.MULTILINE))
            assert own
            exec(own, {"__name__": "pasted"})
            continue
        prepare(page, code, names)
        exec(program, names)


def test_what_is_given_and_changed_is_needed() -> None:
    for given in GIVEN:
        assert any(given.block in block for block in blocks(given.page)), given
    for each in CHANGES:
        assert any(each.old in block for block in blocks(each.page)), each
    for page, start in BODIES.items():
        assert any(block.startswith(start) for block in blocks(page)), page
    imported = "".join(block for page in PAGES for block in blocks(page))
    for library, reason in ELSEWHERE.items():
        assert f" {library} import" in imported, reason
