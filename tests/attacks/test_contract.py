"""What every word attack must keep to. A new attack is tested by adding one row to a table of cases."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from attack_toys import Case
from engine_toys import BertVictim, TextVictim, examples, labelled_by

from isthmus.attacks.parts.goals import Evasion, Targeted
from isthmus.attacks.parts.protection import Protection
from isthmus.attacks.result import AttackResult, Edit
from isthmus.attacks.words.deepwordbug import DeepWordBug
from isthmus.core import catalog
from isthmus.core.types import Example, Floats, Ints, Texts, TokenBatch
from isthmus.engine.scheduler import EngineSettings
from isthmus.text.words import Words

CASES = {
    name: case
    for rows in ("cases_characters", "cases_greedy", "cases_population", "cases_evaders")
    for name, case in importlib.import_module(rows).CASES.items()
}

TEXTS = [
    "a great movie , with witty acting and a dull plot .",
    "The plot is TERRIBLE, the acting dull; yet the music was great!",
    "no movement , no yuks , not much of anything",
    "terrible terrible terrible",
    "an unapologetic mess whose only saving grace is that it ends",
]
ODD_TEXTS = [
    "",
    " ",
    "great",
    "...!?",
    "😀😀 😀",
    "שלום עולם great",
    "a",
    "\u200b",
    "x" * 300,
    "great\x00movie",
    "हिन्दी great",
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_every_attack_has_a_row() -> None:
    assert {name.split("-")[0] for name in CASES} == {
        entry.name for entry in catalog.entries("attacks") if ".words." in entry.module
    }


@functools.cache
def bert_examples() -> tuple[BertVictim, list[Example]]:
    victim = BertVictim()
    return victim, labelled_by(victim, [{"text": text} for text in TEXTS * 2])


def rows(run: Iterable[AttackResult]) -> list[dict[str, Any]]:
    return sorted((result.to_row() for result in run), key=lambda row: row["id"])


def found(case: Case, seed: int = 0) -> tuple[AttackResult, ...]:
    """What it finds on `bert_examples`, computed once for the tests that only look at it."""
    if (id(case), seed) not in _FOUND:
        _FOUND[id(case), seed] = tuple(case(*bert_examples(), seed=seed))
    return _FOUND[id(case), seed]


_FOUND: dict[tuple[int, int], tuple[AttackResult, ...]] = {}


def test_results_satisfy_every_constraint(case: Case) -> None:
    results = found(case)
    assert len(results) == len(bert_examples()[1])
    for result in results:
        assert result.outcome in ("succeeded", "failed")
        for check in case.checks:
            check(result)
        positions = [(edit.field, edit.position) for edit in result.edits if edit.kind != "insert"]
        assert len(set(positions)) == len(positions)  # no word is edited twice


def test_a_success_is_a_success(case: Case) -> None:
    victim, _ = bert_examples()
    outcomes = set()
    for result in found(case):
        prediction = int(victim.scores([result.perturbed]).argmax())
        assert prediction == result.prediction_after
        assert (result.outcome == "succeeded") == (prediction != result.label)
        outcomes.add(result.outcome)
    assert case.may_fail or "succeeded" in outcomes


def test_edits_lead_from_one_text_to_the_other(case: Case) -> None:
    for result in found(case):
        for name, original in result.original.items():
            own = [edit for edit in result.edits if edit.field == name]
            check_edits(original, result.perturbed[name], own)
            assert result.words_changed == pytest.approx(len(result.edits) / len(Words.of(original)))


def check_edits(before: str, after: str, edits: list[Edit]) -> None:
    """Between the edits the texts are the same, but for spaces that come and go with a word."""
    spaces = any(edit.kind != "replace" for edit in edits)
    old = new = 0
    for edit in edits:
        assert before[edit.start : edit.end] == edit.original
        assert after[edit.new_start : edit.new_end] == edit.replacement
        same(before[old : edit.start], after[new : edit.new_start], spaces)
        old, new = edit.end, edit.new_end
    same(before[old:], after[new:], spaces)


def same(before: str, after: str, spaces: bool) -> None:
    assert ("".join(before.split()) == "".join(after.split())) if spaces else before == after


def test_queries_counted_are_queries_made(case: Case) -> None:
    for text in TEXTS:
        asked: list[Texts] = []
        victim = TextVictim(lambda text, asked=asked: asked.append(text) or 0.6)  # type: ignore[func-returns-value,misc]
        engine = EngineSettings(cache_megabytes=0)
        (result,) = case(victim, examples(text), engine=engine)
        assert result.physical_queries == len({text["text"] for text in asked})
        assert result.logical_queries >= len(asked)
        victim.stochastic = True  # Nothing may be answered from memory now.
        asked.clear()
        (result,) = case(victim, examples(text), engine=engine)
        assert result.clean is not None  # draws that judge are the evaluation's, not the attack's
        judging = result.clean.draws + (result.fresh.draws if result.fresh else 0)
        assert result.logical_queries + judging == len(asked)


def test_a_constant_classifier_is_never_fooled(case: Case) -> None:
    victim = TextVictim(lambda text: 0.9)
    for result in case(victim, examples(*TEXTS)):
        assert result.outcome == "failed"


def test_a_keyword_classifier_is_broken_in_one_edit(case: Case) -> None:
    victim = TextVictim(lambda text: 0.9 if "great" in text["text"] else 0.2)
    (result,) = case(victim, examples("the movie was great , they said"))
    if case.only_adds:
        assert result.outcome == "failed"
        return
    assert result.outcome == "succeeded"
    assert any(edit.original == "great" for edit in result.edits)
    if case.one_edit:
        assert len(result.edits) == 1
        assert result.words_changed == pytest.approx(1 / 6)


def test_a_seed_reproduces_at_any_number_in_flight(case: Case) -> None:
    victim, chosen = bert_examples()
    reference = rows(found(case, seed=3))
    for in_flight in (1, 4):
        engine = EngineSettings(in_flight=in_flight)
        assert rows(case(victim, chosen, seed=3, engine=engine)) == reference
    assert rows(case(victim, list(reversed(chosen)), seed=3)) == reference
    assert json.loads(json.dumps(reference)) == reference


class Steady(BertVictim):
    """Claims to be randomised, and answers a text always alike."""

    stochastic = True

    def embedding_gradients(
        self, batch: TokenBatch, labels: Ints, *, draws: int = 1, as_scored: bool = False
    ) -> Floats:
        assert as_scored
        return super().embedding_gradients(batch, labels, draws=draws)


def test_draws_that_all_agree_lead_an_attack_where_a_deterministic_victim_does(case: Case) -> None:
    _, chosen = bert_examples()
    alone = {result.id: result for result in found(case, seed=3)}
    for result in case(Steady(), chosen, seed=3, search_draws=3):
        expected = alone[result.id]
        assert (result.outcome, result.perturbed) == (expected.outcome, expected.perturbed)
        assert result.score_after == expected.score_after
        assert result.logical_queries == 1 + 3 * expected.logical_queries
        assert result.physical_queries == expected.physical_queries


def test_what_the_victim_gets_wrong_is_skipped_after_one_query(case: Case) -> None:
    victim = TextVictim(lambda text: 0.1)
    for result in case(victim, examples(*TEXTS)):
        assert (result.outcome, result.logical_queries, result.edits) == ("skipped", 1, ())


def test_odd_texts_get_a_result(case: Case) -> None:
    for victim in (BertVictim(), TextVictim(lambda text: 0.9)):
        chosen = labelled_by(victim, [{"text": text} for text in ODD_TEXTS])
        results = {result.id: result for result in case(victim, chosen)}
        assert len(results) == len(ODD_TEXTS)
        for example in chosen:
            result = results[example.id]
            assert result.outcome in ("succeeded", "failed"), result.reason
            assert result.original == example.fields


def test_a_text_that_no_tokenizer_reads_is_an_error_of_its_own() -> None:
    victim = BertVictim()
    (whole,) = labelled_by(victim, [{"text": TEXTS[0]}])
    broken = Example("broken", {"text": "half of a pair: \ud83d"}, 0)
    for order in ([broken, whole], [whole, broken]):
        results = {result.id: result for result in DeepWordBug()(victim, order)}
        assert results["broken"].outcome == "error"
        assert "surrogate" in str(results["broken"].reason)
        assert results[whole.id].outcome in ("succeeded", "failed")


def test_a_pair_is_edited_where_the_attack_or_the_user_says(case: Case) -> None:
    texts = [{"premise": text, "hypothesis": other} for text, other in zip(TEXTS, reversed(TEXTS), strict=True)]
    victim = BertVictim()
    chosen = [
        Example(f"test:{index}", text, int(np.argmax(score)))
        for index, (text, score) in enumerate(zip(texts, _pair_scores(victim, texts), strict=True))
    ]
    everything = {"premise", "hypothesis"}
    assert edited(case, victim, chosen, Protection()) <= everything - set(case.attack.frozen_columns())
    assert edited(case, victim, chosen, Protection(columns=("premise",))) == {"hypothesis"}
    assert edited(case, victim, chosen, Protection(columns=("hypothesis",))) == {"premise"}


def edited(case: Case, victim: BertVictim, chosen: list[Example], protection: Protection) -> set[str]:
    """The columns that an attack edits."""
    found: set[str] = set()
    for result in case(victim, chosen, protection=protection):
        found |= {edit.field for edit in result.edits}
        unchanged = {name for name, text in result.perturbed.items() if text == result.original[name]}
        assert not unchanged & {edit.field for edit in result.edits}
    return found


def _pair_scores(victim: BertVictim, texts: list[dict[str, str]]) -> list[Any]:
    from isthmus.engine.requests import Score
    from isthmus.engine.scoring import AskedScore
    from isthmus.engine.token_scoring import TokenScorer
    from isthmus.text.draft import Draft
    from isthmus.text.vocabulary import Vocabulary

    vocabulary = Vocabulary()
    scorer = TokenScorer(victim, vocabulary, None)
    return [scorer.start([AskedScore(Score(Draft.of(text, vocabulary)))])()[0][0] for text in texts]


def test_spans_that_match_a_pattern_survive(case: Case) -> None:
    text = "great movie , visit http://great.example/movie now , terrible plot"
    victim = TextVictim(lambda text: 0.9 - 0.1 * ("great movie" not in text["text"]))
    (result,) = case(victim, examples(text), protection=Protection(pattern=r"https?://\S+"))
    assert "http://great.example/movie" in result.perturbed["text"]
    assert result.edits or case.only_adds or case.label_only
    (everything,) = case(victim, examples(text), protection=Protection(pattern=r".+"))
    assert (everything.outcome, everything.edits) == ("failed", ())


def test_budgets_hold(case: Case) -> None:
    victim, chosen = bert_examples()
    for result in case(victim, chosen, budget=7):
        assert result.logical_queries <= 7
    for result in case(victim, chosen, budget_per_word=1):
        assert result.logical_queries <= len(result.original["text"].split())


def test_targeted_and_evading(case: Case) -> None:
    keyword = lambda text: 0.9 if "great" in text["text"] else 0.62  # noqa: E731
    victim = TextVictim(keyword)
    (targeted,) = case(victim, examples("a great plot"), goal=Targeted(1))
    assert targeted.outcome == "skipped"  # it is of that class already
    (evading,) = case(victim, examples("a great plot"), goal=Evasion(1, threshold=0.8))
    assert evading.outcome == ("failed" if case.only_adds else "succeeded")
    assert evading.prediction_after == 1  # still the likeliest class, yet under the threshold
    (undetected,) = case(victim, examples("a plot"), goal=Evasion(1, threshold=0.8))
    assert undetected.outcome == "skipped"


def test_rows_can_be_read_back(case: Case) -> None:
    for result in found(case):
        assert AttackResult.from_row(json.loads(json.dumps(result.to_row()))) == result
