"""Several attacks in one command: which run, with which models and limits, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus import assets
from isthmus.attacks.parts.shared_draws import SEARCH_DRAWS
from isthmus.core import catalog
from isthmus.core.errors import AssetError
from isthmus.verbs.attack.auxiliary_models import Companions


def attack(isthmus: Any, *more: object) -> Any:
    return isthmus("attack", "toy:classify", "--data", "reviews.csv", "--out", "run", "--json", "--n", 20, *more)


def header(place: Path, key: str) -> dict[str, Any]:
    value = json.loads((place / "run/attacks" / f"{key}.json").read_text())
    assert isinstance(value, dict)
    return value


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the catalogue hold these attacks only."""
    every = catalog._find_files

    def only(*names: str) -> None:
        def files(family: str) -> dict[str, Path]:
            found = every(family)
            return {name: found[name] for name in names} if family == "attacks" else found

        monkeypatch.setattr(catalog, "_find_files", files)

    return only


@pytest.fixture
def no_wordnet(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> Path:
        raise AssetError(f"cannot get {name}. Put its files into $ISTHMUS_ASSETS/{name}.")

    monkeypatch.setattr(assets, "path", missing)
    from isthmus.attacks.parts import synonyms
    from isthmus.lexicon import wordnet

    for function in (synonyms.wordnet_synonyms, getattr(wordnet, "load_wordnet", None)):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


class Letters:
    """A sentence encoder that counts letters."""

    name = "letters"

    def encode(self, texts: list[str]) -> Any:
        counts = np.array([[text.count(letter) + 1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


def test_a_named_attack_that_cannot_run_is_an_error_before_anything_runs(
    isthmus: Any, place: Path, no_wordnet: None
) -> None:
    ended = attack(isthmus, "--attack", "deepwordbug,pwws")
    assert ended.code == 2
    assert "pwws cannot run: cannot get wordnet" in ended.err
    assert "ISTHMUS_ASSETS" in ended.err
    assert not list((place / "run/attacks").glob("*.jsonl")) if (place / "run/attacks").exists() else True


def test_all_leaves_out_what_cannot_run_and_says_so_everywhere(
    isthmus: Any, place: Path, no_wordnet: None, attacks: Any
) -> None:
    attacks("deepwordbug", "pwws")
    ended = attack(isthmus, "--attack", "all")
    assert ended.code == 0, ended.err
    assert list(ended.json["attacks"]) == ["deepwordbug"]
    assert "cannot get wordnet" in ended.json["left_out"]["pwws"]
    assert "pwws is left out: cannot get wordnet" in ended.err
    assert "pwws was left out" in ended.err
    assert "cannot get wordnet" in header(place, "deepwordbug")["suite"]["left_out"]["pwws"]
    assert isthmus("report", "run").code == 0
    assert "pwws was left out: cannot get wordnet" in (place / "run/report.html").read_text()


def test_gradients_are_asked_only_of_victims_that_have_them(isthmus: Any, place: Path, attacks: Any) -> None:
    attacks("deepwordbug", "hotflip")
    named = attack(isthmus, "--attack", "hotflip")
    assert named.code == 2
    assert "gradient" in named.err
    ended = attack(isthmus, "--attack", "all")
    assert ended.code == 0, ended.err
    assert list(ended.json["attacks"]) == ["deepwordbug"]
    assert "gradient" in ended.json["left_out"]["hotflip"]


def test_all_searches_a_randomised_model_in_both_ways(isthmus: Any, place: Path, attacks: Any) -> None:
    attacks("deepwordbug")
    drawn = ("-V", "stochastic=true", "-V", "version=1", "--budget", 90)
    ended = attack(isthmus, "--attack", "all", *drawn)
    assert ended.code == 0, ended.err
    strong, single = ended.json["attacks"]
    assert strong == "deepwordbug"
    assert header(place, strong)["settings"]["randomised"] == {"fresh": 20, "search_draws": SEARCH_DRAWS}
    assert "randomised" not in header(place, single)["settings"]
    assert ended.json["together"] == [strong, single]
    rows = [
        {row["id"]: row["outcome"] for row in map(json.loads, (place / f"run/attacks/{key}.jsonl").open())}
        for key in (strong, single)
    ]
    fooled = sum("succeeded" in (each[key] for each in rows) for key in rows[0])
    assert ended.json["outcomes"]["succeeded"] == fooled > 0
    table = ended.err[ended.err.index("accuracy") :]
    assert table.index("all together") < table.index("deepwordbug")
    assert f"search over {SEARCH_DRAWS} shared draws" in " ".join(ended.err.split())
    for more, count in (((), 2), (("--search-draws", 0), 1), (("--search-draws", SEARCH_DRAWS), 1)):
        again = attack(isthmus, "--attack", "all", *drawn, *more)
        assert (again.json["attacked_now"], len(again.json["attacks"])) == (0, count)
    named = attack(isthmus, "--attack", "deepwordbug", *drawn)
    assert (named.json["attacked_now"], list(named.json["attacks"])) == (0, [strong])


def test_a_deterministic_model_is_searched_once(isthmus: Any, place: Path, attacks: Any) -> None:
    attacks("deepwordbug")
    ended = attack(isthmus, "--attack", "all")
    assert list(ended.json["attacks"]) == ["deepwordbug"]
    assert "randomised" not in header(place, "deepwordbug")["settings"]
    refused = attack(isthmus, "--attack", "deepwordbug", "--search-draws", 4)
    assert refused.code == 2
    assert "draws nothing" in refused.err


def test_when_nothing_can_run_that_is_an_error(isthmus: Any, place: Path, no_wordnet: None, attacks: Any) -> None:
    attacks("pwws")
    ended = attack(isthmus, "--attack", "all")
    assert ended.code == 2
    assert "no attack can run; pwws: cannot get wordnet" in ended.err


def test_the_union_names_its_attacks(isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.attacks.words import pwws

    monkeypatch.setattr(pwws, "wordnet_synonyms", lambda folder: lambda word: ("odd",) if word == "film" else ())
    ended = attack(isthmus, "--attack", "pwws,deepwordbug")
    assert ended.code == 0, ended.err
    assert ended.json["together"] == ["pwws", "deepwordbug"]
    assert "All together: pwws, deepwordbug." in ended.err
    assert ended.json["racc"] == ended.json["attacks"]["deepwordbug"]["racc"] < ended.json["attacks"]["pwws"]["racc"]


def test_an_encoder_measures_similarity_where_the_attack_has_none(
    isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def encoder(self: Companions, name: str) -> Letters:
        asked.append(name)
        return Letters()

    monkeypatch.setattr(Companions, "encoder", encoder)
    without = attack(isthmus, "--attack", "deepwordbug")
    assert asked == []
    assert without.json["similarity"] is None
    ended = attack(isthmus, "--attack", "deepwordbug", "--encoder", "letters")
    assert ended.code == 0, ended.err
    assert set(asked) == {"letters"}
    assert 0 < ended.json["similarity"] < 1
    assert ended.json["resources"]["similarity"] == "letters"
    # Rows with another measure are other rows.
    assert len(list((place / "run/attacks").glob("*.jsonl"))) == 2


def test_a_masked_language_model_that_nobody_uses_is_refused(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--attack", "deepwordbug", "--masked-lm", "minilm")
    assert ended.code == 2
    assert "fills blanks" in ended.err


def test_a_preset_limits_the_attack_and_is_part_of_its_settings(
    isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Companions, "encoder", lambda self, name: Letters())
    free = attack(isthmus, "--attack", "deepwordbug")
    ended = attack(isthmus, "--attack", "deepwordbug", "--preset", "textdefender-2021")
    assert ended.code == 0, ended.err
    assert ended.json["preset"] == "textdefender-2021"
    assert ended.json["racc"] >= free.json["racc"]
    (key,) = ended.json["attacks"]
    assert key.startswith("deepwordbug@")
    head = header(place, key)
    assert head["settings"]["preset"] == "textdefender-2021"
    assert head["settings"]["preset_limits"]["max_share"] == 0.3
    assert "no_antonyms" not in head["settings"]["preset_limits"]  # what it does not ask for
    rows = [json.loads(line) for line in (place / "run/attacks" / f"{key}.jsonl").read_text().splitlines()]
    assert all(row["words_changed"] <= 0.5 for row in rows)  # ceil(0.3 * 5) = 2 of 5 words
    assert isthmus("report", "run").code == 0
    assert "limits textdefender-2021" in (place / "run/report.html").read_text()
    wrong = attack(isthmus, "--preset", "strikt")
    assert wrong.code == 2
    assert "Did you mean 'strict'?" in wrong.err


def test_a_text_whose_words_no_list_knows_is_not_called_robust_in_silence(
    isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isthmus.attacks.words import pwws

    monkeypatch.setattr(pwws, "wordnet_synonyms", lambda folder: lambda word: ())
    ended = attack(isthmus, "--attack", "pwws")
    assert ended.code == 0, ended.err
    assert ended.json["racc"] == 1.0
    assert ended.json["no_candidates"] == 20
    assert "20 of 20 attacked texts had no candidates" in " ".join(ended.err.split())
    judged = attack(isthmus, "--attack", "pwws", "--fail-under", "racc=0.5")
    assert judged.code == 3
    assert "without candidates" in judged.err


def test_a_text_without_a_word_is_counted_apart(isthmus: Any, place: Path) -> None:
    lines = [{"text": "?!... !!", "label": "positive"}] * 4 + [{"text": "a bad film", "label": "negative"}] * 8
    (place / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = isthmus(
        "attack", "toy:classify", "--data", "odd.jsonl", "--attack", "deepwordbug", "--out", "odd", "--json", "--n", 0
    )
    assert ended.code == 0, ended.err
    assert (ended.json["no_candidates"], ended.json["no_words"]) == (4, 4)
    assert "4 texts: no word may be edited" in " ".join(ended.err.split())


# ---------------------------------------------------------------------- the trace


def traced(place: Path, key: str = "deepwordbug") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "run/attacks" / f"{key}.trace.jsonl").read_text().splitlines()]


def rows(place: Path, key: str = "deepwordbug") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "run/attacks" / f"{key}.jsonl").read_text().splitlines()]


def test_every_query_is_written_down_in_order(isthmus: Any, place: Path) -> None:
    import toy

    ended = attack(isthmus, "--attack", "deepwordbug", "--trace")
    assert ended.code == 0, ended.err
    lines = traced(place)
    assert len(lines) == ended.json["queries"]
    for row in rows(place):
        own = [line for line in lines if line["id"] == row["id"]]
        assert [line["query"] for line in own] == list(range(1, row["logical_queries"] + 1))
        assert own[0]["texts"] == row["original"]
        assert [line["scores"] for line in own] == [
            pytest.approx(scores, abs=1e-6) for scores in toy.classify([line["texts"]["text"] for line in own])
        ]
        if row["outcome"] == "succeeded":
            assert row["perturbed"] in [line["texts"] for line in own]
    assert list(dict.fromkeys(line["id"] for line in lines)) == [row["id"] for row in rows(place)]


def test_a_trace_that_was_cut_is_completed_to_the_same_file(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--attack", "deepwordbug", "--trace")
    trace, journal = (place / "run/attacks" / f"deepwordbug{end}" for end in (".trace.jsonl", ".jsonl"))
    whole, whole_rows = trace.read_bytes(), journal.read_bytes()
    # As a kill leaves it: lines of an example without a row, the last one torn.
    journal.write_bytes(b"".join(whole_rows.splitlines(keepends=True)[:7]))
    trace.write_bytes(whole[: len(whole) // 2])
    again = attack(isthmus, "--attack", "deepwordbug", "--trace", "--in-flight", 3)
    assert again.json["attacked_now"] >= 13
    assert trace.read_bytes() == whole
    assert journal.read_bytes() == whole_rows


def test_rows_without_their_trace_are_attacked_again(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--attack", "deepwordbug")
    before = (place / "run/attacks/deepwordbug.jsonl").read_bytes()
    ended = attack(isthmus, "--attack", "deepwordbug", "--trace")
    assert ended.json["attacked_now"] == 20
    assert (place / "run/attacks/deepwordbug.jsonl").read_bytes() == before
    assert len(traced(place)) == ended.json["queries"]
    assert attack(isthmus, "--attack", "deepwordbug", "--trace").json["attacked_now"] == 0
    assert isthmus("report", "run").code == 0


def test_an_attack_whose_rows_are_damaged_is_not_left_out(isthmus: Any, place: Path, attacks: Any) -> None:
    attacks("deepwordbug", "leet")
    assert attack(isthmus, "--attack", "all").code == 0
    rows = place / "run/attacks/leet.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b'"outcome"', b'"out_come"', 1))
    ended = attack(isthmus, "--attack", "all", "--fail-under", "racc=0")
    assert ended.code == 2
    assert "leet.jsonl line 1 does not match its checksum" in ended.err
    assert "left out" not in ended.err  # Found before anything was attacked.


def test_attacks_on_tensors_are_no_attacks_on_texts(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--attack", "deepwordbug,fgsm")
    assert ended.code == 2
    assert "has no accessible embeddings" in " ".join(ended.err.split())
    assert not list(place.glob("run/attacks/*.jsonl"))
