"""Blanks: what a masked language model would put there, and how likely it finds a given word."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from engine_toys import LaunchedMaskedLM, TextVictim, TinyMaskedLM, bert_tokenizer, roberta_tokenizer

from isthmus.engine.blanks import Blanks
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, Fill, Fills, Likelihood
from isthmus.engine.scheduler import Engine
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words

TEXT = "the plot, (unapologetic) mess isn't great ; oil prices"
TOKENIZERS = {"wordpiece": bert_tokenizer(), "bpe": roberta_tokenizer()}


class Asks:
    """Yields whatever requests it is made with and returns the answers."""

    key, budget, label = 0, None, 0

    def __init__(self, text: str, *make: Any) -> None:
        self.text, self.make = text, make

    def start(self, vocabulary: Vocabulary) -> Generator[Any, Any, list[Any]]:
        draft = Draft.of({"text": self.text}, vocabulary)
        answers = []
        for make in self.make:
            answer = yield make(draft, vocabulary)
            answers.append(answer)
        return answers


@pytest.fixture(params=[(kind, name) for kind in (TinyMaskedLM, LaunchedMaskedLM) for name in TOKENIZERS], ids=str)
def model(request: pytest.FixtureRequest) -> TinyMaskedLM:
    kind, name = request.param
    return kind(TOKENIZERS[name])


def asked(model: Any, text: str, *make: Any) -> tuple[list[Any], list[str]]:
    engine = Engine(TextVictim(lambda _: 0.5), masked_lm=model)
    (finished,) = engine.run([Asks(text, *make)])
    assert finished.error is None, finished.error
    return finished.value, engine.vocabulary.strings


def everywhere(text: str = TEXT) -> np.ndarray:
    return np.arange(len(Words.of(text)), dtype=np.int32)


def blanked(text: str, position: int, span: int, mask: str) -> str:
    words = Words.of(text)
    if span == INSERT:
        return str(words.insert(position, mask))
    return str(words.merge(position, mask) if span == MERGE else words.replace({position: mask}))


def pieces_of(tokenizer: Any) -> list[tuple[str, bool]]:
    """What each token spells, and whether it starts a word."""
    marked = "Ġthe" in tokenizer.get_vocab()
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if marked:
        return [(piece.lstrip("Ġ"), piece.startswith("Ġ")) for piece in pieces]
    return [(piece.removeprefix("##"), not piece.startswith("##")) for piece in pieces]


@pytest.mark.parametrize("strip", [False, True])
@pytest.mark.parametrize("span", [REPLACE, INSERT, MERGE])
def test_the_best_words_come_back_in_order(model: TinyMaskedLM, span: int, strip: bool) -> None:
    tokenizer, k = model.tokenizer, 7
    positions = everywhere()[: -1 if span == MERGE else None]
    (fills,), strings = asked(model, TEXT, lambda d, v: Fill(d, positions, k, span, strip=strip))
    pieces = pieces_of(tokenizer)
    special = set(tokenizer.all_special_ids)
    for row, position in enumerate(positions.tolist()):
        ids = np.array([tokenizer(blanked(TEXT, position, span, tokenizer.mask_token))["input_ids"]])
        place = np.flatnonzero(ids[0] == tokenizer.mask_token_id)[:1]
        chances = model.probabilities(ids, place)[0]
        expected: list[str] = []
        taken = 0
        for token in np.argsort(-chances, kind="stable").tolist():
            word, starts = pieces[token]
            is_word = token not in special and (starts or strip) and Words.of(word).words == (word,)
            taken += len(Words.of(word)) == 1 if strip else is_word
            if is_word and word not in expected:
                expected.append(word)
            if taken == k:
                break
        assert [strings[word] for word in fills.words[row] if word != DELETE] == expected
        assert (np.diff(fills.probabilities[row]) <= 0).all()
        first = [index for index, (word, _) in enumerate(pieces) if word == expected[0]]
        assert fills.probabilities[row, 0] == pytest.approx(max(chances[first]), rel=1e-4)


def test_with_keep_every_sub_word_has_its_own_answer(model: TinyMaskedLM) -> None:
    tokenizer, k = model.tokenizer, 5
    (fills,), strings = asked(model, TEXT, lambda d, v: Fill(d, everywhere(), k, keep=True))
    encoding = tokenizer(TEXT, return_offsets_mapping=True)
    ids = np.array([encoding["input_ids"]])
    pieces = pieces_of(tokenizer)
    assert fills.pieces is not None
    for position, (start, end) in enumerate(Words.of(TEXT).offsets()):
        own = [at for at, (left, right) in enumerate(encoding["offset_mapping"]) if left < end and right > start]
        tokens, chances = fills.pieces[position]
        assert tokens.shape == chances.shape == (len(own), k)
        for row, place in enumerate(own):
            expected = model.probabilities(ids, np.array([place]))[0]
            assert tokens[row].tolist() == np.argsort(-expected, kind="stable")[:k].tolist()
            assert np.allclose(chances[row], expected[tokens[row]], atol=1e-6)
        got = [strings[word] for word in fills.words[position] if word != DELETE]
        if len(own) == 1:
            whole = [pieces[token] for token in tokens[0].tolist()]
            assert got == [word for word, starts in whole if starts and Words.of(word).words == (word,)]
        else:
            assert got == []


def test_sub_words_are_joined_to_words(model: TinyMaskedLM) -> None:
    (fills,), strings = asked(model, TEXT, lambda d, v: Fill(d, everywhere(), 2, keep=True))
    assert isinstance(fills, Fills)
    if "##s" in model.tokenizer.get_vocab():
        rows, expected = [["movie", "##s"], ["is", "##ing"], ["movie", "."]], ["movies", "ising", ""]
    else:
        rows, expected = [["\u0120movie", "s"], ["\u0120is", "n"], ["\u0120movie", "."]], ["movies", "isn", ""]
    ids = np.array([model.tokenizer.convert_tokens_to_ids(row) for row in rows])
    assert [strings[word] for word in fills.words_of(ids)] == expected
    assert [strings[word] for word in fills.words_of(ids[:, :1])] == ["movie", "is", "movie"]


def test_a_text_that_does_not_fit_is_read_around_the_blank(model: TinyMaskedLM) -> None:
    long = "the plot is dull and the acting terrible " * 40
    positions = np.array([0, 3, 150, 317, 318], np.int32)
    model.model = type(model.model)(
        type(model.model.config)(**{**model.model.config.to_dict(), "max_position_embeddings": 160})
    ).eval()
    model.rows.clear()
    asked(model, long, lambda d, v: Fill(d, positions, 3), lambda d, v: Fill(d, positions, 3, INSERT))
    mask = model.tokenizer.mask_token_id
    context = min(128, getattr(model, "max_tokens", 128))
    assert {len(row) for row in model.rows} == {context}
    assert all(row.count(mask) == 1 for row in model.rows)
    places = sorted(row.index(mask) for row in model.rows)
    assert len(places) == 10
    assert sum(abs(place - context // 2) <= 2 for place in places) == 2  # the blanks in the middle of the text


def test_likelihood_is_the_mean_over_as_many_blanks_as_sub_words(model: TinyMaskedLM) -> None:
    tokenizer = model.tokenizer
    places = [(0, "an"), (1, "movie"), (1, "antics"), (1, "movie"), (5, "great"), (7, "supply")]
    (got,), _ = asked(
        model,
        TEXT,
        lambda d, v: Likelihood(d, np.array([at for at, _ in places], np.int32), v.ids([word for _, word in places])),
    )
    words = Words.of(TEXT)
    for value, (position, word) in zip(got, places, strict=True):
        replaced = words.replace({position: word})
        start, end = replaced.offsets()[position]
        encoding = tokenizer(str(replaced), return_offsets_mapping=True)
        ids = np.array(encoding["input_ids"])
        own = [at for at, (left, right) in enumerate(encoding["offset_mapping"]) if left < end and right > start]
        blank = ids.copy()
        blank[own] = tokenizer.mask_token_id
        chances = model.probabilities(np.repeat(blank[None], len(own), axis=0), np.array(own))
        expected = np.log(chances[np.arange(len(own)), ids[own]]).mean()
        assert value == pytest.approx(expected, rel=1e-3), word


def text_of(finished: Any) -> str:
    """The text of the program that ended."""
    return str(finished.program.text)


def test_a_masked_language_model_that_gives_nan_is_an_error() -> None:
    class Broken(TinyMaskedLM):
        def probabilities(self, ids: Any, places: Any) -> Any:
            return super().probabilities(ids, places) * np.nan

    engine = Engine(TextVictim(lambda _: 0.5), masked_lm=Broken())
    for make in (
        lambda d, v: Fill(d, everywhere(), 3),
        lambda d, v: Likelihood(d, everywhere()[:1], v.ids(["movie"])),
    ):
        (finished,) = engine.run([Asks(TEXT, make)])
        assert finished.error is not None
        assert "NaN" in finished.error


SENTENCES = [
    TEXT,
    "great",
    "a b c",
    "the plot is dull , été !",
    "no movement , no yuks , not much of anything .",
    "x 😀y z",
]


def mixed(draft: Draft, vocabulary: Vocabulary, turn: int) -> Any:
    positions = np.arange(turn % 2, len(draft), dtype=np.int32)
    if turn % 4 == 3:
        return Likelihood(
            draft, positions, np.full(len(positions), vocabulary.id(("mess", "anyhow")[turn % 2]), np.int32)
        )
    return Fill(
        draft, positions, 3 + turn % 2, span=(REPLACE, INSERT)[turn % 2], keep=turn % 4 == 2, strip=turn % 3 == 0
    )


def flat(answers: list[Any]) -> bytes:
    arrays = []
    for answer in answers:
        if isinstance(answer, Fills):
            arrays += [answer.probabilities, *(piece for pair in answer.pieces or () for piece in pair)]
        else:
            arrays.append(answer)
    return b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("kind", [TinyMaskedLM, LaunchedMaskedLM])
def test_answers_do_not_depend_on_the_number_in_flight(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = None
    for in_flight, most in ((1, 4096), (3, 4096), (64, 4096), (64, 5)):
        monkeypatch.setattr("isthmus.engine.blanks._MOST_ROWS", most)
        engine = Engine(TextVictim(lambda _: 0.5), masked_lm=kind())
        engine.in_flight = in_flight
        turns = [lambda d, v, t=turn: mixed(d, v, t) for turn in range(8)]
        finished = list(engine.run([Asks(text, *turns) for text in SENTENCES]))
        assert [item.error for item in finished] == [None] * len(SENTENCES)
        found = {text_of(item): flat(item.value) for item in finished}
        reference = reference or found
        assert found == reference


def test_equal_rows_are_filled_once() -> None:
    model = LaunchedMaskedLM()
    text = "the plot is dull"
    asked(model, text, lambda d, v: Fill(d, everywhere(text), 3, keep=True))
    assert len(model.rows) == 1  # one row, all its words
    model.rows.clear()
    words = ["movie", "mess", "oil", "an"]
    asked(model, text, lambda d, v: Likelihood(d, np.full(4, 1, np.int32), v.ids(words)))
    assert len(model.rows) == 1  # one blank, four words


def test_only_the_field_of_a_position_is_read() -> None:
    model, vocabulary = LaunchedMaskedLM(), Vocabulary()
    draft = Draft.of({"premise": "oil prices", "hypothesis": "the plot is dull"}, vocabulary)
    service = Blanks(model, vocabulary, lambda _: None)
    service.fill([Fill(draft, np.array([1, 3], np.int32), 2)])()
    read = {" ".join(model.tokenizer.convert_ids_to_tokens(row)) for row in model.rows}
    assert read == {"[CLS] oil [MASK] [SEP]", "[CLS] the [MASK] is dull [SEP]"}
