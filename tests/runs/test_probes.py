"""A model without files is known by its scores on eight texts, and noise does not make it another one."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.errors import RunError, UsageError, VictimError
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset
from isthmus.models.victims import CallableVictim
from isthmus.runs.probes import Probed, Recognised, Stranger, ask, choose_probes, keep, read_probes, source_hash

Function = Callable[[list[str]], Any]


def texts(count: int = 40) -> Dataset:
    examples = tuple(Example(f"test:{n}", {"text": f"text number {n}"}, n % 2) for n in range(count))
    return Dataset("toy", "test", Classification(("a", "b"), ("text",)), examples)


def steady(move: float = 0.0) -> Function:
    """Second-class scores that lie exactly between two multiples of 1e-3, moved by so much."""

    def scores(asked: Sequence[str]) -> list[list[float]]:
        second = [0.1005 + 0.01 * int(text.split()[-1]) + move for text in asked]
        return [[1 - p, p] for p in second]

    return scores


def meet(path: Path, function: Function, **more: Any) -> Recognised:
    options = {"version": more["version"]} if "version" in more else {}
    victim = CallableVictim(function, ("a", "b"), timeout=more.pop("timeout", None))
    found = Stranger("toy:f", victim, {"labels": ["a", "b"], "victim": options}, **more).recognise(path, texts())
    keep(path, found.entry)
    return found


def test_the_probes_are_a_matter_of_the_texts_alone() -> None:
    data = texts()
    probes = choose_probes(data)
    assert len(probes) == 8
    labels = {example.texts["text"]: example.label for example in data}
    assert [labels[probe["text"]] for probe in probes] == [0, 1] * 4
    shuffled = list(data.examples)
    random.Random(1).shuffle(shuffled)
    moved = Dataset("other", "dev", data.task, tuple(shuffled))
    assert choose_probes(moved) == probes
    assert len(choose_probes(texts(5))) == 5
    twice = Dataset("toy", "test", data.task, data.examples[:2] * 4)
    assert len(choose_probes(twice)) == 2
    assert choose_probes(Dataset("toy", "test", data.task, ())) == ()


@pytest.mark.parametrize("noise", [0.0, 1e-7, -1e-7, 1e-4, -1e-4, 4.9e-4, -4.9e-4])
def test_noise_does_not_make_another_model(tmp_path: Path, noise: float) -> None:
    path = tmp_path / "probes.json"
    first = meet(path, steady())
    assert first.queries == 16
    again = meet(path, steady(noise))
    assert (again.queries, again.entry.fingerprint) == (8, first.entry.fingerprint)
    assert len(read_probes(path)) == 1


@pytest.mark.parametrize(("change", "largest"), [(2e-3, "00[23]"), (-2e-3, "00[23]"), (0.2, "20[01]")])
def test_a_change_is_refused_and_its_size_is_said(tmp_path: Path, change: float, largest: str) -> None:
    path = tmp_path / "probes.json"
    meet(path, steady())
    before = path.read_bytes()
    with pytest.raises(RunError, match=rf"toy:f is not the model .* on 8 of 8 .* by up to 0\.{largest}.*--out"):
        meet(path, steady(change))
    assert path.read_bytes() == before
    meet(path, steady())


def test_one_text_that_differs_is_enough(tmp_path: Path) -> None:
    meet(tmp_path / "probes.json", steady())
    (probe, *_) = choose_probes(texts())

    def other(asked: list[str]) -> list[list[float]]:
        return [[0.5, 0.5] if text == probe["text"] else row for text, row in zip(asked, steady()(asked), strict=True)]

    with pytest.raises(RunError, match="on 1 of 8 probe texts"):
        meet(tmp_path / "probes.json", other)


def test_a_module_that_was_edited_is_another_model(tmp_path: Path) -> None:
    meet(tmp_path / "probes.json", steady(), source=lambda: "00")
    with pytest.raises(RunError, match="source of its module"):
        meet(tmp_path / "probes.json", steady(), source=lambda: "01")
    meet(tmp_path / "other.json", steady(), source=lambda: "00", version="1")
    meet(tmp_path / "other.json", steady(), source=lambda: "01", version="1")


def test_the_source_is_the_module_and_what_it_imports_from_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "rules").mkdir()
    parts = [tmp_path / name for name in ("served.py", "rules/__init__.py", "rules/words.py")]
    for part, content in zip(parts, ("import rules.words, json", "", "GOOD = 1"), strict=True):
        part.write_text(content)
    (tmp_path / "unrelated.py").write_text("")

    def load() -> str | None:
        for name in ("served", "rules", "rules.words"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        importlib.import_module("served")
        return source_hash("served:classify")

    first = load()
    assert first == load()
    assert first is not None
    (tmp_path / "unrelated.py").write_text("changed")
    assert load() == first
    for part in parts:
        content = part.read_text()
        part.write_text(f"{content}\n# changed")
        assert load() != first, part
        part.write_text(content)
    assert source_hash("http://host/x") is None
    assert source_hash("some/model") is None


def test_a_model_that_answers_at_random_needs_a_version(tmp_path: Path) -> None:
    path, stream = tmp_path / "probes.json", random.Random(0)

    def drawn(asked: list[str]) -> list[list[float]]:
        return [[1 - p, p] for p in (stream.random() for _ in asked)]

    with pytest.raises(UsageError, match=r"random predictions: .*differ by up to 0\.\d+.*-V version=1"):
        meet(path, drawn)
    assert not path.exists()
    first = meet(path, drawn, version="1")
    assert meet(path, drawn, version="1").entry.fingerprint == first.entry.fingerprint
    assert meet(path, drawn, version="2").entry.fingerprint != first.entry.fingerprint
    with pytest.raises(UsageError, match="stochastic=true"):
        meet(path, steady(), is_random=True)


def test_a_model_that_became_random_is_not_called_changed(tmp_path: Path) -> None:
    path, stream = tmp_path / "probes.json", random.Random(0)
    meet(path, steady())
    with pytest.raises(UsageError, match="random predictions"):
        meet(path, lambda asked: [[1 - p, p] for p in (stream.random() for _ in asked)])


def test_a_version_that_was_not_changed_with_the_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    meet(path, steady(), version="1")
    with pytest.raises(RunError, match="another -V version"):
        meet(path, steady(0.1), version="1")
    meet(path, steady(0.1), version="2")
    assert len(read_probes(path)) == 2


def raising(bad: Callable[[str], bool], error: type[Exception] = ValueError) -> Function:
    def scores(asked: list[str]) -> list[list[float]]:
        if any(bad(text) for text in asked):
            raise error("it fell over")
        return steady()(asked)

    return scores


def test_a_model_that_is_down_is_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    meet(path, steady())
    for function in (raising(lambda text: True), lambda asked: [[np.nan, np.nan]] * len(asked)):
        with pytest.raises(VictimError, match=r"fell over|NaN"):
            meet(path, function)


def test_a_text_that_the_model_cannot_read_is_part_of_what_it_is_known_by(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    (probe, *_) = choose_probes(texts())
    unreadable = raising(lambda text: text == probe["text"])
    first = meet(path, unreadable)
    assert first.entry.scores[0] is None
    assert first.queries == 2 * (8 + 8)  # together, then one by one
    assert meet(path, unreadable).entry.fingerprint == first.entry.fingerprint
    with pytest.raises(RunError, match="on 1 of 8"):
        meet(path, steady())
    meet(tmp_path / "other.json", steady())
    with pytest.raises(RunError, match=r"1 of 8 probe texts had an answer and have none now .*fell over"):
        meet(tmp_path / "other.json", unreadable)


def test_a_text_that_hangs_does_not_stop_the_others() -> None:
    import time

    probes = choose_probes(texts())

    def slow(asked: list[str]) -> list[list[float]]:
        if probes[1]["text"] in asked:
            time.sleep(0.3)
        return steady()(asked)

    found = ask(CallableVictim(slow, ("a", "b"), timeout=0.1), probes)
    assert [row is None for row in found.scores] == [False, True, *[False] * 6]
    asked: list[int] = []

    def hanging(batch: list[str]) -> None:
        asked.append(len(batch))
        time.sleep(0.15)

    with pytest.raises(VictimError, match="did not answer"):
        ask(CallableVictim(hanging, ("a", "b"), timeout=0.05), probes)
    assert asked == [8, 1, 1, 1]


def test_of_two_that_begin_at_once_the_first_counts(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"

    def entry(score: float) -> Probed:
        return Probed({"labels": ["a"]}, ({"text": "x"},), ((score, round(1 - score, 3)),))

    one = keep(path, entry(0.123))
    assert keep(path, entry(0.124)) == one  # 0.1235 on both sides of its boundary
    with pytest.raises(RunError, match="another model"):
        keep(path, entry(0.2))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    for content in ("[]", '{"models": [{}]}', '{"models": 3}', "torn"):
        path.write_text(content)
        with pytest.raises(RunError, match=r"probes\.json"):
            read_probes(path)


def test_any_text_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "probes.json"
    odd = Probed({"labels": ["a"]}, ({"text": "a \ud800 \x00 ü 🙂"},), (None,))
    keep(path, odd)
    assert read_probes(path)[odd.key] == odd
