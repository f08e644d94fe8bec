"""CLARE against a plain rewriting of its two algorithms with strings."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from attack_toys import LetterEncoder, masked_lm
from engine_toys import BertVictim, labelled_by

from isthmus.attacks.parts import merging
from isthmus.attacks.parts.blanks import has_letter, join_edits, propose_fills, writing
from isthmus.attacks.parts.merging import PAIRS, mergeable
from isthmus.attacks.result import AttackResult
from isthmus.attacks.words.clare import CLARE, _after
from isthmus.core.errors import UsageError
from isthmus.core.types import TokenBatch
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, Fill, Fills
from isthmus.engine.windows import window
from isthmus.lexicon import tags
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words

TEXTS = [
    "no movement , no yuks , not much of anything .",
    "The plot is dull, the acting terrible; yet the music was great!",
    "(a gorgeous , witty movie) that isn't well-known",
    "an unapologetic mess whose only saving grace is that it ends and ends and the plot is dull , the music great .",
]
LEAST = {REPLACE: 0.01, INSERT: 0.0, MERGE: 0.02}
Action = tuple[int, int, str]


def attack(**parameters: Any) -> CLARE:
    return CLARE(most=4, replace_confidence=0.01, merge_confidence=0.02, part_of_speech="none", **parameters)


def infilled(text: str, *, whole: bool) -> list[tuple[str, float]]:
    """What the model writes into the blank of a text: of the four likeliest words those that are likely enough."""
    model = masked_lm()
    ids = model.tokenizer(text)["input_ids"]
    if model.tokenizer.mask_token_id not in ids:
        return []
    place = ids.index(model.tokenizer.mask_token_id)
    tokens, chances = model.fill(TokenBatch(np.array([ids])), np.array([place]), len(model.tokenizer))
    found = []
    for token, chance in zip(tokens[0].tolist(), chances[0].tolist(), strict=True):
        piece: Any = model.tokenizer.convert_ids_to_tokens(token)
        word = piece.removeprefix("##")
        left_out = token in model.tokenizer.all_special_ids or (whole and piece.startswith("##"))
        if not left_out and Words.of(word).words == (word,):
            found.append((word, chance))
    return found[:4]


def inner(text: Words) -> Words:
    return Words(text.words, ("", *text.gaps[1:-1], ""))


def applied(text: Words, action: Action) -> Words:
    position, span, word = action
    if span == INSERT:
        return text.insert(position, word)
    return text.merge(position, word) if span == MERGE else text.replace({position: word})


def actions(text: Words, edited: set[int], *, paper: bool) -> list[Action]:
    """Every action there is."""
    places: dict[int, list[int]] = {
        REPLACE: [at for at, word in enumerate(text) if word not in stop_words() and at not in edited],
        INSERT: [at for at in range(1, len(text)) if paper or at not in edited],
        MERGE: list(range(len(text) - 1) if paper else range(1, len(text) - 2)),
    }
    found = []
    for span, positions in places.items():
        read = text if paper or span == REPLACE else inner(text)
        for at in positions:
            for word, chance in infilled(str(applied(read, (at, span, "[MASK]"))), whole=paper):
                if chance >= LEAST[span] and word != text[at] and re.search("[a-zA-Z]", word):
                    found.append((at, span, word))
    return found


def similar(text: Words, original: Words, position: int) -> bool:
    if len(text) < 15:
        return True
    left, right = LetterEncoder().encode([window(each, position, 15) for each in (text, original)])
    return float(left @ right) >= 0.7


def true_score(victim: BertVictim, text: Words, label: int) -> float:
    return float(victim.scores([{"text": str(text)}])[0, label])


def full_greedy(victim: BertVictim, text: Words, label: int) -> Words:
    original, edited = text, set[int]()
    while True:
        found = [each for each in actions(text, edited, paper=False) if similar(applied(text, each), original, each[0])]
        if not found:
            return text
        at, span, word = min(found, key=lambda each: true_score(victim, applied(text, each), label))
        text = applied(text, (at, span, word))
        shift = {INSERT: 1, MERGE: -1}.get(span, 0)
        edited = {place + shift * (place > at) for place in edited if not (span == MERGE and place == at + 1)} | {at}
        edited |= {at + 1} if span == INSERT else set()
        if true_score(victim, text, label) < 0.5:
            return text


@pytest.mark.parametrize("text", TEXTS)
def test_the_toolkits_search_is_full_greedy(text: str) -> None:
    victim = BertVictim()
    (example,) = labelled_by(victim, [{"text": text}])
    (result,) = attack()(victim, [example], encoder=LetterEncoder(), masked_lm=masked_lm())
    assert result.edits
    assert result.perturbed["text"] == str(full_greedy(victim, Words.of(text), int(example.label)))


def best_first(victim: BertVictim, text: Words, label: int, most: int | None) -> Words:
    """The paper's Algorithm 1: places keep the numbers of the original, and remember where they are now."""
    found = [each for each in actions(text, set(), paper=True) if similar(applied(text, each), text, each[0])]
    scored = {each: true_score(victim, applied(text, each), label) for each in found}
    best: dict[int, Action] = {}
    for each, score in scored.items():
        owner = each[0] - (each[1] == INSERT)
        if owner not in best or score < scored[best[owner]]:
            best[owner] = each
    now: list[int | None] = list(range(len(text)))  # where each original word is
    touched, original = set[int](), text
    for owner in sorted(best, key=lambda owner: scored[best[owner]])[:most]:
        _, span, word = best[owner]
        at = now[owner]
        needed = {REPLACE: {owner}, MERGE: {owner, owner + 1}, INSERT: set[int]()}[span]
        if at is None or needed & touched:
            continue
        place = at + (span == INSERT)
        candidate = applied(text, (place, span, word))
        if not similar(candidate, original, place):
            continue
        text, touched = candidate, touched | needed
        if span == INSERT:
            now = [each if each is None or each < place else each + 1 for each in now]
        if span == MERGE:
            now[owner + 1] = None
            now = [each if each is None or each <= place else each - 1 for each in now]
        if true_score(victim, text, label) < 0.5:
            break
    return text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("most", [None, 3])
def test_the_papers_search_carries_out_the_best_action_of_each_place(text: str, most: int | None) -> None:
    victim = BertVictim()
    (example,) = labelled_by(victim, [{"text": text}])
    paper = attack(semantics="paper", max_actions=most)
    (result,) = paper(victim, [example], encoder=LetterEncoder(), masked_lm=masked_lm())
    assert result.edits
    assert result.perturbed["text"] == str(best_first(victim, Words.of(text), int(example.label), most))


def test_every_kind_of_action_is_taken_somewhere() -> None:
    victim = BertVictim()
    texts = [" ".join(text.split()[first:]) for text in TEXTS for first in range(4)]
    results = list(attack()(victim, labelled_by(victim, [{"text": text} for text in texts]), **models()))
    assert {kind_of_last(result) for result in results} >= {"replace", "insert"}
    assert any(edit.kind == "delete" for result in results for edit in result.edits)


def models() -> dict[str, Any]:
    return {"encoder": LetterEncoder(), "masked_lm": masked_lm()}


def kind_of_last(result: AttackResult) -> str:
    return result.edits[-1].kind


def test_edited_words_move_with_the_text() -> None:
    edited = np.array([False, True, False, False])
    assert _after(edited, 2, REPLACE, 9).tolist() == [False, True, True, False]
    assert _after(edited, 0, INSERT, 9).tolist() == [True, True, True, False, False]
    assert _after(edited, 3, INSERT, 9).tolist() == [False, True, False, True, True]
    assert _after(edited, 0, MERGE, 9).tolist() == [True, False, False]
    assert _after(edited, 2, MERGE, 9).tolist() == [False, True, True]
    assert edited.tolist() == [False, True, False, False]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="candidate"):
        CLARE(most=0)
    with pytest.raises(UsageError, match="action"):
        CLARE(max_actions=0)


# ---------------------------------------------------------------------- blanks


def answered(proposal: Generator[Any, Any, Any], fills: Fills) -> tuple[Fill, Any]:
    request = next(proposal)
    with pytest.raises(StopIteration) as ended:
        proposal.send(fills)
    return request, ended.value.value


def test_fills_become_edits() -> None:
    vocabulary = Vocabulary()
    draft = Draft.of({"text": "a fine film"}, vocabulary)
    positions = np.array([1, 2], np.int32)
    words = np.array([vocabulary.ids(["good", "fine", "2", "bad"]), [vocabulary.id("movie"), DELETE, DELETE, DELETE]])
    chances = np.array([[0.5, 0.3, 0.1, 0.05], [0.001, 0, 0, 0]], np.float32)
    fills = Fills(words.astype(np.int32), chances)
    request, edits = answered(propose_fills(draft, positions, most=4, strip=True), fills)
    assert (request.k, request.span, request.strip) == (4, REPLACE, True)
    spelled = [(*row[:3], vocabulary.strings[row[3]]) for row in edits.tolist()]
    # Neither the word that is there, nor one without a letter, nor what is not there.
    assert spelled == [(0, 1, 1, "good"), (1, 1, 1, "bad"), (2, 2, 1, "movie")]
    _, likely = answered(propose_fills(draft, positions, span=INSERT, min_confidence=0.05), fills)
    assert likely[:, 1:3].tolist() == [[1, 0], [1, 0]]
    nothing = propose_fills(draft, np.zeros(0, np.int32))
    with pytest.raises(StopIteration):
        next(nothing)


def test_proposals_are_joined_and_numbered_anew() -> None:
    one = writing(np.array([3, 4], np.int32), np.array([7, 8], np.int32))
    two = writing(np.array([5], np.int32), np.array([9], np.int32), MERGE)
    assert join_edits(one, two).tolist() == [[0, 3, 1, 7], [1, 4, 1, 8], [2, 5, 2, 9]]
    assert one[0, 0] == 0


def test_words_without_a_letter_are_known_as_the_vocabulary_grows() -> None:
    vocabulary = Vocabulary()
    first = vocabulary.ids(["1999", "b2b", "\u4e2d"])
    assert has_letter(vocabulary, first).tolist() == [False, True, False]
    second = vocabulary.ids(["x", "7"])
    assert has_letter(vocabulary, np.concatenate([first, second])).tolist() == [False, True, False, True, False]


# ---------------------------------------------------------------------- merging


class Table(tags.WordTagger):
    name = "table"

    def __init__(self, **known: str) -> None:
        self.known = known

    def tags(self, word: str) -> frozenset[str]:
        return frozenset(self.known.get(word, "other").split("_"))


def test_words_merge_by_their_parts_of_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [*PAIRS, "other"]
    monkeypatch.setattr(tags, "load_tagger", lambda name: Table(**{kind: kind for kind in kinds}))
    for first in kinds:
        found = [bool(mergeable([first, second], "spacy")[0]) for second in kinds]
        assert found == [second in PAIRS.get(first, ()) for second in kinds]
    ambiguous = Table(run="noun_verb", fast="adj_adv", the="det")
    monkeypatch.setattr(tags, "load_tagger", lambda name: ambiguous)
    assert mergeable(["the", "run", "fast", "x"], "spacy").tolist() == [True, True, False]
    assert mergeable(["the"], "spacy").tolist() == mergeable([], "none").tolist() == []
    assert mergeable(["x", "y", "z"], "none").all()


def test_function_words_are_not_what_wordnet_takes_them_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nouns:
        def parts_of_speech(self, word: str) -> frozenset[str]:
            return frozenset({"noun"})

    monkeypatch.setattr(tags, "load_tagger", lambda name: tags.WordNetTagger(Nouns()))  # type: ignore[arg-type]
    assert mergeable(["a", "film", "at", "Night"], "wordnet").tolist() == [True, False, False]
    assert mergeable(["3", "films"], "wordnet").tolist() == [True]
    assert mergeable(["In", "films"], "wordnet").tolist() == [False]
    assert set(merging._FUNCTION_WORDS.values()) <= {frozenset({tag}) for tag in (*PAIRS, "other")}
