"""Bad characters are not seen, whatever is put together of them; leet is read."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest
from engine_toys import BertVictim, TextVictim, examples, labelled_by
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.parts.disguise import DisguiseKind, Mark, disguise, marks_of
from isthmus.attacks.words.badchars import BadChars
from isthmus.attacks.words.leet import Leet
from isthmus.core.errors import UnknownName, UsageError
from isthmus.lexicon.confusables import DELETION, DIRECTION_MARKS, INVISIBLE, LEET, skeleton

KINDS = get_args(DisguiseKind)
WORDS = st.text("abcdefgXYZ09'-", min_size=1, max_size=12) | st.text(
    "aé\u0301ñяЯω中हिन्دشש\u200d", min_size=1, max_size=8
)


@given(WORDS, st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(KINDS)), max_size=6), st.integers())
def test_no_disguise_is_seen(word: str, picks: list[tuple[int, DisguiseKind]], seed: int) -> None:
    rng, marks = random.Random(seed), list[Mark]()
    for number, kind in picks:
        options = list(marks_of(word, [kind], rng))
        marks += options[number % len(options) : number % len(options) + 1] if options else []
    shown = disguise(word, marks)
    assert skeleton(shown) == skeleton(word)
    if len(marks) == 1:
        assert shown != word or skeleton(word) != word or word.count(word[0]) == len(word)


def test_every_kind_says_what_it_does() -> None:
    rng = random.Random(0)
    for kind, check in {
        "invisible": lambda new: any(mark in new for mark in INVISIBLE) and len(new) == 6,
        "homoglyph": lambda new: not new.isascii() and len(new) == 5,
        "reorder": lambda new: any(mark in new for mark in DIRECTION_MARKS) and new != "great",
        "delete": lambda new: DELETION in new and len(new) == 7,
    }.items():
        made = [disguise("great", [mark]) for mark in marks_of("great", [kind], rng)]  # type: ignore[list-item]
        assert made
        assert all(map(check, made))
    assert {mark.text for mark in marks_of("great", ["invisible"], rng)} == set(INVISIBLE)


@pytest.mark.parametrize("word", ["سلام", "हिन्दी", "ไทย", "שלום", "中文"])
def test_letters_that_join_or_cluster_are_left_alone(word: str) -> None:
    assert list(marks_of(word, KINDS, random.Random(0))) == []


def test_accents_stay_with_their_letters() -> None:
    word = "e\u0301te\u0301s"
    places = {mark.at for mark in marks_of(word, KINDS, random.Random(0))}
    assert places <= {2, 5}
    for mark in marks_of(word, ["reorder"], random.Random(0)):
        pytest.fail(f"a letter and an accent would be swapped: {mark}")


def test_marks_that_meet_do_not_undo_each_other() -> None:
    swap, again, between = Mark("reorder", 1), Mark("reorder", 2), Mark("invisible", 2, INVISIBLE[0])
    assert disguise("great", [swap, again]) == disguise("great", [swap])
    assert disguise("great", [swap, between]) == disguise("great", [swap])
    assert disguise("great", [between, swap]) == disguise("great", [between])
    look = Mark("homoglyph", 1, "\u0433")
    assert disguise("great", [look, swap]) == disguise("great", [swap, look]) != disguise("great", [swap])


# ---------------------------------------------------------------------- the attack


def letters(text: Any) -> float:
    """Falls with every word out of a list that is not there letter by letter."""
    return 0.95 - 0.1 * sum(word not in text["text"] for word in ("great", "movie", "witty", "acting", "dull", "plot"))


TEXT = "a great movie , with witty acting and a dull plot ."


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_breaks_a_reader_of_letters(kind: DisguiseKind) -> None:
    attack = BadChars(kinds=(kind,))
    (result,) = attack(TextVictim(letters), examples(TEXT))
    assert (result.outcome, len(result.edits)) == ("succeeded", 5)
    assert skeleton(result.perturbed["text"]) == TEXT
    assert kind in attack.resources()["bad characters"]


def test_the_number_of_disturbances() -> None:
    for most in (1, 2, 4):
        for strategy in ("greedy", "evolution"):
            attack = BadChars(max_edits=most, strategy=strategy, kinds=("invisible",))  # type: ignore[arg-type]
            (result,) = attack(TextVictim(letters), examples(TEXT))
            assert result.outcome == "failed"
            added = len(result.perturbed["text"]) - len(TEXT)
            assert added <= most
            if strategy == "greedy":
                assert (added, len(result.edits)) == (most, most)


def test_a_word_is_disturbed_again_if_that_helps() -> None:
    victim = TextVictim(lambda text: 0.9 - 0.15 * (len(text["text"]) - len("a plot")))
    (result,) = BadChars(kinds=("invisible",))(victim, examples("a plot"))
    assert result.outcome == "succeeded"
    assert len(result.perturbed["text"]) == len("a plot") + 3
    assert skeleton(result.perturbed["text"]) == "a plot"


def test_a_generation_is_one_request() -> None:
    victim = TextVictim(lambda text: 0.9)
    (result,) = BadChars(strategy="evolution", population=10, generations=6)(victim, examples(TEXT))
    assert result.logical_queries == 1 + 7 * 10
    assert result.candidates == 70


def test_evolution_gets_better() -> None:
    victim = TextVictim(lambda text: 0.95 - 0.1 * sum(letter not in text["text"].split()[-2] for letter in "plot"))
    after = []
    for generations in (1, 40):
        attack = BadChars(strategy="evolution", kinds=("homoglyph",), max_edits=4, generations=generations)
        (result,) = attack(victim, examples(TEXT))
        after.append(result.score_after[1])
    assert after[1] < after[0] < 0.95


def test_a_tokenizer_that_drops_invisible_characters_is_not_fooled_by_them() -> None:
    victim = BertVictim()
    for result in BadChars(kinds=("invisible",))(victim, labelled_by(victim, [{"text": TEXT}])):
        assert (result.outcome, result.edits) == ("failed", ())
        assert result.candidates > 0


def test_a_text_that_directs_its_writing_is_not_reordered() -> None:
    attack = BadChars(kinds=("reorder",))
    (result,) = attack(TextVictim(letters), examples(f"\u202e{TEXT}"))
    assert (result.outcome, result.candidates) == ("failed", 0)


def test_what_cannot_be() -> None:
    with pytest.raises(UnknownName, match="homoglyph"):
        BadChars(kinds=("homoglyphs",))  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="greedy"):
        BadChars(strategy="gready")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="kinds"):
        BadChars(kinds=())
    with pytest.raises(UsageError, match="share"):
        Leet(max_letters=0.0)
    with pytest.raises(UsageError, match="letters or digits"):
        Leet(separators=".x")


# ---------------------------------------------------------------------- leet


def test_spellings() -> None:
    assert list(dict.fromkeys(Leet().spellings("free"))) == ["fr3e", "fre3", "fr33"]
    assert "Fr33" in Leet().spellings("Free")
    assert "f.r.e.e" in Leet(separators=".").spellings("free")
    assert "f r e e" in Leet(separators=" ").spellings("free")
    assert list(Leet(separators=".").spellings("up")) == []
    assert "311t3" not in Leet().spellings("elite")
    assert "311t3" in Leet(max_letters=0.8).spellings("elite")


@given(st.text("abcdeiosTELmnXYZ", min_size=1, max_size=12), st.sampled_from([0.3, 0.6, 1.0]))
def test_leet_keeps_most_letters(word: str, share: float) -> None:
    for new in Leet(max_letters=share).spellings(word):
        changed = [(letter, sign) for letter, sign in zip(word, new, strict=True) if letter != sign]
        assert 0 < len(changed) <= share * len(word)
        assert all(sign in LEET[letter.lower()] for letter, sign in changed)
