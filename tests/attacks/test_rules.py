"""Candidates, rules and limits, each beside the plainest program that does the same."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from attack_toys import LetterEncoder, synonyms, vectors_file
from engine_toys import (
    WORDS,
    BertVictim,
    RoughVectors,
    TextVictim,
    TinyMaskedLM,
    TokenVectors,
    bert_tokenizer,
    examples,
    labelled_by,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from trial_toys import LENGTH, NEW, TEXT, Plan, Steps, apply, changes, edits_of, run, situations, trial_of

from isthmus.attacks.parts.candidates import Candidates, find_allowed
from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.parts.limits import PRESETS, Limits, preset
from isthmus.attacks.parts.rules import (
    Fluency,
    MaxEdits,
    MaxShare,
    MostPerWord,
    PartOfSpeech,
    SentenceMeaning,
    WordMeaning,
    apply_metric,
)
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.words.pwws import PWWS
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import Floats
from isthmus.engine.requests import INSERT, MERGE, REPLACE, replacing
from isthmus.lexicon.by_name import load_neighbours
from isthmus.text.words import Words

# ---------------------------------------------------------------------- candidates


@settings(deadline=None)
@given(situations(), st.data())
def test_candidates_are_what_their_edits_say(situation: Any, data: st.DataObject) -> None:
    trial, base, model, chosen = situation
    candidates = Candidates(base, edits_of(trial, chosen), len(chosen))
    assert candidates.single == all(len(plan) == 1 for plan in chosen)
    texts = [[word for _, word in apply(model, plan)] for plan in chosen]
    assert [candidates.draft(index).words for index in range(len(chosen))] == texts
    assert candidates.lengths().tolist() == [len(text) for text in texts]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen))))
    candidates.similarity = np.arange(len(chosen), dtype=np.float32)
    kept = candidates.keep(mask)
    assert kept.count == mask.sum()
    assert [kept.draft(index).words for index in range(kept.count)] == [
        text for text, keep in zip(texts, mask, strict=True) if keep
    ]
    assert kept.similarity is not None
    assert kept.similarity.tolist() == np.flatnonzero(mask).tolist()


def test_rules_are_applied_one_after_the_other_and_counted() -> None:
    seen: list[int] = []

    class Odd:
        def holds(self, trial: Trial, candidates: Candidates) -> Any:
            seen.append(candidates.count)
            return np.arange(candidates.count) % 2 == 1

    class Asking:
        def ask(self, trial: Trial, candidates: Candidates) -> Generator[Any, Any, Any]:
            seen.append(-candidates.count)
            yield "question"
            return np.arange(candidates.count) < 1

    trial = trial_of(rules=[Asking(), Odd(), Odd()])
    steps = find_allowed(trial, Candidates(trial.original, replacing(0, trial.vocabulary.ids("abcdefgh"))))
    assert next(steps) == "question"
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    left = ended.value.value
    assert [left.draft(index).word(0) for index in range(left.count)] == ["d"]
    assert seen == [8, 4, -2]  # models see what the plain rules have left
    assert trial.candidates == 1


# ---------------------------------------------------------------------- rules without a model


@settings(deadline=None)
@given(situations(), st.sampled_from([0.01, 0.125, 0.2, 0.26, 0.5, 1.0]))
def test_the_share_of_changed_words(situation: Any, share: float) -> None:
    trial, base, model, chosen = situation
    held = MaxShare(share).holds(trial, Candidates(base, edits_of(trial, chosen), len(chosen)))
    most = math.ceil(share * LENGTH)
    assert held.tolist() == [changes(apply(model, plan)) <= most for plan in chosen]


@given(st.lists(st.tuples(st.integers(0, LENGTH - 1), NEW), max_size=5), st.integers(0, LENGTH - 1), st.integers(1, 8))
def test_the_share_of_changed_words_by_the_short_way(before: list[tuple[int, str]], at: int, eighths: int) -> None:
    trial = trial_of()
    draft, model = trial.original, list(enumerate(TEXT.split()))
    for position, word in before:
        draft = draft.replace(position, trial.vocabulary.id(word))
        model[position] = (position, word)
    new = ["x", "alpha", "bravo", TEXT.split()[at]]
    held = MaxShare(eighths / 8).holds(trial, Candidates(draft, replacing(at, trial.vocabulary.ids(new))))
    assert held.tolist() == [changes(apply(model, [(at, REPLACE, word)])) <= eighths for word in new]


@settings(deadline=None)
@given(situations(), st.integers(1, 12))
def test_the_edit_distance(situation: Any, limit: int) -> None:
    trial, base, _, chosen = situation
    candidates = Candidates(base, edits_of(trial, chosen), len(chosen))
    held = MaxEdits(limit).holds(trial, candidates)
    distances = [levenshtein(TEXT, candidates.draft(index).texts["text"]) for index in range(len(chosen))]
    assert held.tolist() == [distance <= limit for distance in distances]


@given(st.lists(st.integers(0, LENGTH - 1), min_size=1, max_size=7, unique=True), st.integers(1, 10))
def test_the_edit_distance_needs_no_counting_while_steps_are_few(order: list[int], limit: int) -> None:
    rng, trial = random.Random(0), trial_of()
    for position in order:
        word = trial.draft.word(position)
        new = trial.vocabulary.id(word[1] + word[0] + word[2:])  # a swap costs two
        candidates = Candidates(trial.draft, replacing(position, np.array([new], np.int32)))
        quick, slow = MaxEdits(limit, each=2).holds(trial, candidates), MaxEdits(limit).holds(trial, candidates)
        assert quick.tolist() == slow.tolist()
        if slow[0]:
            trial.accept(candidates.draft(0), trial.scores, rng.random())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([INSERT, REPLACE])), min_size=1), st.integers(1, 3))
def test_the_first_candidates_of_a_place(places: list[tuple[int, int]], most: int) -> None:
    trial = trial_of()
    chosen = [[(at, span, f"w{index}")] for index, (at, span) in enumerate(places)]
    held = MostPerWord(most).holds(trial, Candidates(trial.original, edits_of(trial, chosen)))
    assert held.tolist() == [places[:index].count(place) < most for index, place in enumerate(places)]


def test_candidates_of_several_edits_are_nobodys_first() -> None:
    trial = trial_of()
    chosen = [[(0, REPLACE, f"w{index}"), (1, REPLACE, "x")] for index in range(5)]
    held = MostPerWord(1).holds(trial, Candidates(trial.original, edits_of(trial, chosen)))
    assert held.all()


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["neat", "film", "boring", "qqq", "Awful"])), min_size=1),
    st.sampled_from([0.3, 0.8, 0.95]),
    st.sampled_from([None, 0.1, 0.4]),
)
def test_word_vectors_are_close(chosen: list[tuple[int, str]], least: float, most: float | None) -> None:
    near = load_neighbours(vectors_file())
    matrix = np.asarray(near.vectors.matrix, np.float64)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = dict(zip(near.vectors.words, matrix, strict=True))
    text = "great movie dull plot terrible unheard-of"
    trial = trial_of(text)
    # The word in the draft is another one already: what counts is the original.
    base = trial.original.replace(0, trial.vocabulary.id("plan"))
    edits = edits_of(trial, [[(at, REPLACE, word)] for at, word in chosen])

    def close(old: str, new: str) -> bool:
        if old.lower() not in vectors or new.lower() not in vectors:
            return True
        a, b = vectors[old.lower()], vectors[new.lower()]
        return bool(a @ b >= least) and (most is None or bool(((a - b) ** 2).sum() <= most))

    held = WordMeaning(near, least, most).holds(trial, Candidates(base, edits))
    assert held.tolist() == [close(text.split()[at], word) for at, word in chosen]
    held = WordMeaning(near, least, most, against="previous").holds(trial, Candidates(base, edits))
    assert held.tolist() == [close(base.word(at), word) for at, word in chosen]


class FirstLetterTagger:
    """Words fit in the place of words that are as long, unless they begin with the letter of the word before."""

    name = "letters"

    def fits(self, words: Sequence[str], index: int, new: str) -> bool:
        return len(new) == len(words[index]) and (index == 0 or new[0] != words[index - 1][0])

    def fitting(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> Any:
        return np.array([self.fits(words, index, new) for new in candidates], bool)


@settings(deadline=None)
@given(situations())
def test_parts_of_speech_are_told_in_the_original_text(situation: Any) -> None:
    trial, base, model, chosen = situation
    held = PartOfSpeech(FirstLetterTagger()).holds(trial, Candidates(base, edits_of(trial, chosen), len(chosen)))
    expected = []
    for plan in chosen:
        replaced = [(model[at][0], word) for at, span, word in plan if span == REPLACE and word and model[at][0] >= 0]
        expected.append(all(FirstLetterTagger().fits(TEXT.split(), at, word) for at, word in replaced))
    assert held.tolist() == expected


# ---------------------------------------------------------------------- rules that ask a model


def asked(rule: Any, text: str, plans: Sequence[Sequence[Plan]], **models: Any) -> tuple[Any, Candidates]:
    """What a rule says of candidates, and the candidates."""

    def steps(trial: Trial) -> Steps:
        candidates = Candidates(trial.original, edits_of(trial, plans), len(plans))
        return (yield from rule.ask(trial, candidates)), candidates

    answer, _ = run(steps, text, **models)
    return answer  # type: ignore[no-any-return]


CANDIDATES: list[list[Plan]] = [
    [(0, REPLACE, "alfa")],
    [(3, REPLACE, "zzzzzzzzzzzzzzz")],
    [(1, INSERT, "big")],
    [(2, MERGE, "charade")],
    [(7, REPLACE, "")],
    [(4, REPLACE, "oche"), (5, REPLACE, "qqqqqqqq")],
]


@pytest.mark.parametrize("metric", ["cosine", "angular"])
def test_sentences_mean_the_same(metric: Any) -> None:
    encoder = LetterEncoder()
    model = list(enumerate(TEXT.split()))
    texts = [" ".join(word for _, word in apply(model, plan)) for plan in CANDIDATES]
    cosines = encoder.encode(texts) @ encoder.encode([TEXT])[0]
    true = cosines if metric == "cosine" else 1 - np.arccos(cosines) / np.pi
    threshold = float(np.sort(true)[2:4].mean())
    held, candidates = asked(SentenceMeaning(threshold, metric), TEXT, CANDIDATES, encoder=encoder)
    assert held.tolist() == (true >= threshold).tolist()
    assert candidates.similarity == pytest.approx(true, abs=1e-6)
    assert 0 < held.sum() < len(held)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=3, max_size=9),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(WORDS)), min_size=1, max_size=12),
    st.sampled_from([None, 3, 5]),
    st.sampled_from(["cosine", "angular"]),
    st.floats(-0.5, 1),
)
def test_rough_cosines_decide_as_exact_ones(
    words: list[str], changed: list[tuple[int, str]], window: int | None, metric: Any, threshold: float
) -> None:
    text, chosen = " ".join(words), [[(at, REPLACE, word)] for at, word in changed]
    rule = SentenceMeaning(threshold, metric, window)
    exact, _ = asked(rule, text, chosen, encoder=TokenVectors())
    rough, candidates = asked(rule, text, chosen, encoder=RoughVectors())
    assert rough.tolist() == exact.tolist()
    short = window is not None and len(words) < window
    assert (candidates.measured_by is None) == short


def test_only_cosines_near_the_threshold_are_asked_for_again() -> None:
    text, new = " ".join(WORDS[:8]), WORDS[8:40]
    chosen: list[list[Plan]] = [[(3, REPLACE, word)] for word in new]
    _, candidates = asked(SentenceMeaning(-1), text, chosen, encoder=TokenVectors())
    cosines = np.sort(candidates.similarity)
    threshold = float(cosines[-1] + cosines[0]) / 2
    near = int((np.abs(cosines - threshold) <= RoughVectors.rough_error).sum())
    encoder = RoughVectors()
    asked(SentenceMeaning(threshold), text, chosen, encoder=encoder)
    again = len(encoder.rows) - encoder.roughly - 1  # The reference is encoded exactly, too.
    assert 0 < near < len(new)
    assert 0 < again < len(new)


def test_the_exact_similarity_can_be_asked_for() -> None:
    def steps(trial: Trial) -> Steps:
        plans: list[list[Plan]] = [[(1, REPLACE, word)] for word in WORDS[:5]]
        candidates = Candidates(trial.original, edits_of(trial, plans), len(plans))
        yield from SentenceMeaning(-1, "angular", 3).ask(trial, candidates)
        if candidates.measured_by is None:
            return candidates.similarity
        rough = candidates.similarity
        exact = yield from candidates.measured_by.measure(trial, candidates)
        assert np.abs(rough - exact).max() > 0
        return exact

    found = [run(steps, " ".join(WORDS[:8]), encoder=encoder)[0] for encoder in (TokenVectors(), RoughVectors())]
    assert found[0].tolist() == found[1].tolist()


def test_texts_shorter_than_the_window_pass_unseen() -> None:
    short: list[list[Plan]] = [[(0, REPLACE, "zzzzzzzzzz")], [(0, REPLACE, "zzzzzzzzzz"), (1, INSERT, "q")]]
    strict = SentenceMeaning(0.999, window=4)
    held, candidates = asked(strict, "one two three", short, encoder=LetterEncoder())
    assert held.tolist() == [True, False]  # the second has four words
    assert candidates.similarity[0] == 1
    held, _ = asked(dataclasses.replace(strict, skip_short=False), "one two three", short, encoder=LetterEncoder())
    assert held.tolist() == [False, False]
    # Nothing is asked where every text is short: no encoder is needed.
    held, candidates = asked(strict, "one two three", short[:1])
    assert (held.tolist(), candidates.similarity.tolist()) == ([True], [1.0])


def test_the_previous_text_or_the_original() -> None:
    def steps(trial: Trial) -> Steps:
        base = trial.original.replace(0, trial.vocabulary.id("zzzzzzzzzzzzzzzzzz"))
        candidates = Candidates(base, replacing(1, trial.vocabulary.ids(["bravo"])))
        far = yield from SentenceMeaning(0.99).ask(trial, candidates)
        near = yield from SentenceMeaning(0.99, against="previous").ask(trial, candidates)
        return far.tolist(), near.tolist()

    assert run(steps, TEXT, encoder=LetterEncoder())[0] == ([False], [True])


def test_angles() -> None:
    cosines = np.array([1, 0.5, 0, -1, 1.0000001], np.float32)
    assert apply_metric(cosines, "angular").tolist() == pytest.approx([1, 2 / 3, 0.5, 0, 1], abs=1e-3)


def test_fluency_compares_the_new_word_with_the_old_in_its_place() -> None:
    model = TinyMaskedLM()
    text = "the plot is dull and the music great"
    position, old, new = 3, "dull", [word for word in WORDS if word != "dull"]
    tokenizer = bert_tokenizer()
    ids = tokenizer(text)["input_ids"]
    place = 1 + position  # every word is one token
    ids[place] = tokenizer.mask_token_id
    with torch.inference_mode():
        logits = model.model(input_ids=torch.tensor([ids])).logits[0, place].double()
    logs = torch.log_softmax(logits, dim=-1)
    drop = logs[tokenizer.convert_tokens_to_ids(old)] - logs[tokenizer.convert_tokens_to_ids(new)]
    most = float(np.sort(drop.numpy())[len(new) // 2 : len(new) // 2 + 2].mean())
    plans: list[list[Plan]] = [[(position, REPLACE, word)] for word in new]
    held, _ = asked(Fluency(most), text, plans, masked_lm=model)
    assert held.tolist() == (drop <= most).tolist()


def test_fluency_has_nothing_to_say_of_what_replaces_nothing() -> None:
    plans: list[list[Plan]] = [[(0, INSERT, "zzxq")], [(7, REPLACE, "")], [(1, MERGE, "zzxq")]]
    held, _ = asked(Fluency(-100.0), "the plot is dull and the music great", plans, masked_lm=TinyMaskedLM())
    assert held.all()

    def steps(trial: Trial) -> Steps:
        base = trial.original.add(0, trial.vocabulary.id("great"))
        candidates = Candidates(base, replacing(len(base) - 1, trial.vocabulary.ids(["zzxq"])))
        return (yield from Fluency(-100.0).ask(trial, candidates)).tolist()

    assert run(steps, "the plot is", masked_lm=TinyMaskedLM())[0] == [True]


def test_rules_refuse_what_cannot_be() -> None:
    for wrong in (
        lambda: MaxShare(0),
        lambda: MaxShare(1.5),
        lambda: MaxEdits(0),
        lambda: SentenceMeaning(2),
        lambda: SentenceMeaning(0.5, window=0),
        lambda: MostPerWord(0),
    ):
        with pytest.raises(UsageError):
            wrong()


# ---------------------------------------------------------------------- limits on a whole attack

TEXTS = [
    "a great movie , with witty acting and a dull plot .",
    "The plot is TERRIBLE, the acting dull; yet the music was great!",
    "terrible terrible terrible",
]


def attacked(limits: Limits, **models: Any) -> list[Any]:
    victim = BertVictim()
    chosen = labelled_by(victim, [{"text": text} for text in TEXTS])
    return list(PWWS(synonyms=synonyms)(victim, chosen, limits=limits, **models))


def test_the_shared_surface_of_textdefender() -> None:
    limits = preset("textdefender-2021")
    encoder = LetterEncoder()
    results = attacked(limits, encoder=encoder)
    assert any(result.edits for result in results)
    for result in results:
        words = Words.of(result.original["text"])
        assert len(result.edits) <= math.ceil(0.3 * len(words))
        assert result.logical_queries <= 50 * len(result.original["text"].split())
        before, after = encoder.encode([result.original["text"], result.perturbed["text"]])
        assert 1 - np.arccos(min(1.0, float(before @ after))) / np.pi >= 0.84 - 1e-4
        assert result.similarity == (pytest.approx(float(before @ after), abs=1e-5) if result.edits else None)


def test_strict_limits() -> None:
    limits = dataclasses.replace(PRESETS["strict"], vectors=vectors_file(), part_of_speech=None)
    near = load_neighbours(vectors_file())
    for result in attacked(limits, encoder=LetterEncoder()):
        for edit in result.edits:
            assert (near.cosine(edit.original, edit.replacement) or 1) >= 0.9
    kinds = [type(rule) for rule in limits.rules()]
    assert kinds == [WordMeaning, SentenceMeaning]
    assert set(limits.resources()) == {"limits: word vectors", "limits: sentence encoder"}


def test_limits_become_rules() -> None:
    limits = Limits(max_share=0.2, max_edits=4, most_per_word=3, max_drop=2.0)
    assert {type(rule) for rule in limits.rules()} == {MostPerWord, MaxShare, MaxEdits, Fluency}
    assert Limits().rules() == ()
    assert limits.resources() == {"limits: masked language model": "minilm"}
    with pytest.raises(UnknownName, match="Did you mean 'strict'"):
        preset("strikt")


class BrokenEncoder(LetterEncoder):
    def encode(self, texts: Sequence[str]) -> Floats:
        return np.full((len(texts), 4), np.nan, np.float32)


class BrokenMaskedLM(TinyMaskedLM):
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("fill", "likelihood", "log_probabilities"):
            return found

        def broken(*arguments: Any, **options: Any) -> Any:
            answer = found(*arguments, **options)
            if isinstance(answer, tuple):
                return (*answer[:-1], np.full_like(answer[-1], np.nan))
            return np.full_like(answer, np.nan)

        return broken


def test_a_model_that_answers_nan_is_an_error_and_never_robust() -> None:
    for limits, models in (
        (Limits(similarity=0.5), {"encoder": BrokenEncoder()}),
        (Limits(max_drop=100.0), {"masked_lm": BrokenMaskedLM()}),
    ):
        for result in attacked(limits, **models):
            assert result.outcome == "error"
            assert "NaN" in result.reason


def test_no_candidates_is_told_from_robust() -> None:
    victim = TextVictim(lambda text: 0.9)
    (nothing,) = PWWS(synonyms=lambda word: ())(victim, examples("a great movie"))
    assert (nothing.outcome, nothing.candidates) == ("failed", 0)
    (something,) = PWWS(synonyms=synonyms)(victim, examples("a great movie"))
    assert something.outcome == "failed"
    assert something.candidates > 0
    (forbidden,) = PWWS(synonyms=synonyms)(victim, examples("a great movie"), limits=Limits(max_edits=1))
    assert forbidden.candidates == 0
    (empty,) = PWWS(synonyms=synonyms)(victim, examples("...!?"))
    assert (empty.outcome, empty.words, empty.candidates, empty.logical_queries) == ("failed", 0, 0, 1)
