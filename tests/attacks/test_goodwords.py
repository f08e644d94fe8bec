"""GoodWords adds what helps, in the order in which it helps, and touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_toys import TextVictim, examples

from isthmus.attacks.parts.limits import Limits
from isthmus.attacks.words.goodwords import GoodWords, read_words
from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import Example, Texts
from isthmus.lexicon.benign import benign_words

GAINS = {"thanks": 0.1, "lunch": 0.3, "garden": 0.2, "memo": -0.5}


def spam(text: Texts) -> float:
    """Every good word lowers the score by its gain, however often it is said."""
    return 0.95 - sum(gain for word, gain in GAINS.items() if word in " ".join(text.values()).split())


def test_the_best_words_come_first() -> None:
    (result,) = GoodWords()(TextVictim(spam), examples("buy now !"))
    assert result.outcome == "succeeded"
    assert result.perturbed["text"] == "buy now ! lunch garden"
    assert [(edit.kind, edit.replacement, edit.start, edit.position) for edit in result.edits] == [
        ("insert", "lunch", 9, 2),
        ("insert", "garden", 9, 2),
    ]
    ranking, steps = len(benign_words()), 1
    assert result.logical_queries == 1 + ranking + steps * 10


def test_words_in_front_stand_before_any_punctuation() -> None:
    (result,) = GoodWords(place="start")(TextVictim(spam), examples('"buy" now'))
    assert result.perturbed["text"] == 'garden lunch "buy" now'
    assert [(edit.replacement, edit.start, edit.new_start) for edit in result.edits] == [
        ("garden", 0, 0),
        ("lunch", 0, 7),
    ]


def test_a_limited_number() -> None:
    stubborn = TextVictim(lambda text: 0.99 - 0.01 * len(text["text"].split()))
    text = "buy now and save"
    for attack, most in (
        (GoodWords(max_words=3), 3),
        (GoodWords(max_share=0.5), 2),
        (GoodWords(max_share=0.3), 2),
        (GoodWords(), 20),
    ):
        (result,) = attack(stubborn, examples(text))
        assert (result.outcome, len(result.edits)) == ("failed", most)
    (result,) = GoodWords()(stubborn, examples(text), limits=Limits(max_share=0.5))
    assert len(result.edits) == 2


def test_what_does_not_help_is_laid_aside() -> None:
    words = ("memo", "form", "desk", "thanks", "garden", "lunch")
    (result,) = GoodWords(words=words, look=1, max_words=2)(
        TextVictim(lambda text: spam(text) + 0.2 * text["text"].count("lunch garden")), examples("buy now")
    )
    # After lunch, garden makes things worse: thanks is next.
    assert result.perturbed["text"] == "buy now lunch thanks"


def test_of_a_pair_the_text_that_may_be_edited() -> None:
    pair = [Example("test:0", {"question": "buy now", "answer": "save now"}, 1)]
    (result,) = GoodWords()(TextVictim(spam), pair)
    assert result.perturbed == {"question": "buy now", "answer": "save now lunch garden"}
    (result,) = GoodWords(place="start")(TextVictim(spam), pair)
    assert result.perturbed == {"question": "garden lunch buy now", "answer": "save now"}


def test_words_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# mine\nlunch\n\n garden \nlunch\n", encoding="utf-8")
    attack = GoodWords(source=str(path))
    (result,) = attack(TextVictim(spam), examples("buy now"))
    assert result.perturbed["text"] == "buy now lunch garden"
    assert attack.resources() == {"benign words": f"3 words, {path}"}
    path = tmp_path / "none.txt"
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no words"):
        read_words(str(path))
    path = tmp_path / "phrases.txt"
    path.write_text("good morning\n", encoding="utf-8")
    with pytest.raises(DataError, match="'good morning' is not one word"):
        read_words(str(path))
    with pytest.raises(DataError, match="cannot read words"):
        read_words(str(tmp_path / "missing.txt"))


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="max_words"):
        GoodWords(max_words=0)
    with pytest.raises(UsageError, match="max_share"):
        GoodWords(max_share=0.0)
    with pytest.raises(UsageError, match="place"):
        GoodWords(place="middle")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="not one word"):
        GoodWords(words=("good day",))
