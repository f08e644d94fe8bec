"""Similarity by token rows equals similarity by texts, whatever is edited and wherever a text is cut."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine_toys import RoughVectors, TextVictim, TokenVectors, bert_tokenizer, roberta_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_strategies import new_words, texts

from isthmus.core.errors import VictimError
from isthmus.core.types import Pending, TokenBatch, TokenEncoder
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, Similarity, at_each, replacing
from isthmus.engine.scheduler import Engine
from isthmus.engine.similarity import TextSimilarities, TokenSimilarities
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

ENCODERS = {"bert": TokenVectors(bert_tokenizer()), "roberta": TokenVectors(roberta_tokenizer())}
SERVICES = {name: TokenSimilarities(encoder, Vocabulary(), lambda _: None) for name, encoder in ENCODERS.items()}


def request_for(pair: bool, vocabulary: Vocabulary) -> st.SearchStrategy[Similarity]:
    @st.composite
    def build(draw: st.DrawFn) -> Similarity:
        fields = {"premise": draw(texts), "hypothesis": draw(texts)} if pair else {"text": draw(texts)}
        original = Draft.of(fields, vocabulary)
        draft = original
        if len(draft) and draw(st.booleans()):
            position, word = draw(st.integers(0, len(draft) - 1)), vocabulary.id(draw(new_words))
            draft = draft.insert(position, word) if draw(st.booleans()) else draft.replace(position, word)
        count = draw(st.integers(1, 4))
        edits = []
        for candidate in range(count):
            places = st.lists(st.integers(0, max(0, len(draft) - 1)), max_size=2, unique=True)
            positions = draw(places) if len(draft) else []
            for position in positions:
                span = draw(st.sampled_from([REPLACE, REPLACE, INSERT, MERGE]))
                last = position + 1 >= len(draft) or draft.field_of(position) != draft.field_of(position + 1)
                if span == MERGE and (last or position + 1 in positions):
                    span = REPLACE
                word = vocabulary.id(draw(new_words))
                edits.append((candidate, position, span, DELETE if span == REPLACE and draw(st.booleans()) else word))
        size = draw(st.sampled_from([None, 1, 2, 3, 4, 5, 7, 15]))
        reference = draw(st.sampled_from([None, original]))
        return Similarity(draft, np.array(edits, np.int32).reshape(-1, 4), count, reference, size)

    return build()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("pair", [False, True])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_token_rows_equal_texts(name: str, pair: bool, data: st.DataObject) -> None:
    vocabulary, encoder, service = Vocabulary(), ENCODERS[name], SERVICES[name]
    assert isinstance(encoder, TokenEncoder)
    service.assembler.splicer.clear(vocabulary)
    requests = [data.draw(request_for(pair, vocabulary)) for _ in range(data.draw(st.integers(1, 3)))]
    by_tokens = service.start(requests)()
    by_texts = TextSimilarities(encoder, lambda _: None).start(requests)()
    for ours, expected, request in zip(by_tokens, by_texts, requests, strict=True):
        assert isinstance(ours, np.ndarray)
        assert np.allclose(ours, expected, atol=1e-5), (request.base.texts, request.edits.tolist(), request.window)
    again = service.start(requests)()  # the references are known now
    assert all(np.array_equal(one, other) for one, other in zip(by_tokens, again, strict=True))


TEXT = "a gorgeous , witty , seductive movie that isn't well-known , and no movement at all , not much of anything ."


def test_plain_texts_are_spliced_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above must not hold for want of spliced rows."""
    vocabulary, service = Vocabulary(), SERVICES["bert"]
    service.assembler.splicer.clear(vocabulary)
    draft = Draft.of({"text": TEXT}, vocabulary)
    everywhere = np.arange(len(draft) - 1, dtype=np.int32)
    monkeypatch.setattr(service.assembler.splicer.subwords, "encode", lambda texts: pytest.fail(f"tokenised {texts}"))
    for span in (REPLACE, INSERT, MERGE):
        edits = at_each(everywhere, vocabulary.id("film"), span)
        service.start([Similarity(draft, edits, len(edits), window=size) for size in (None, 5)])()


def test_a_reference_is_encoded_once_and_equal_rows_are_one() -> None:
    vocabulary, encoder = Vocabulary(), TokenVectors()
    service = TokenSimilarities(encoder, vocabulary, lambda _: None)
    draft = Draft.of({"text": TEXT}, vocabulary)
    first = Similarity(draft, replacing(3, vocabulary.ids(["film", "plot", "film"])), 3, window=7)
    second = Similarity(draft.replace(9, vocabulary.id("mess")), replacing(3, vocabulary.ids(["mess"])), 1, draft, 7)
    service.start([first, first])()
    assert len(encoder.rows) == 3  # two candidates and the reference
    service.start([second])()
    assert len(encoder.rows) == 4


def text_of(finished: Any) -> str:
    """The text of the program that ended."""
    return str(finished.program.text)


def test_cosines_do_not_depend_on_the_number_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXT, TEXT[:40], "great", "the plot is dull", "", "a b", TEXT * 3]

    class Compares:
        key, budget, label = 0, None, 0

        def __init__(self, text: str) -> None:
            self.text = text

        def start(self, vocabulary: Vocabulary) -> Any:
            draft = Draft.of({"text": self.text}, vocabulary)
            answers: list[Any] = []
            for position in range(len(draft)):
                words = vocabulary.ids(["film", "mess", "terribly", "x"][: 1 + position % 4])
                answers.append((yield Similarity(draft, replacing(position, words), len(words), window=5)))
            return np.concatenate([np.zeros(0, np.float32), *answers])

    reference = None
    for in_flight, at_once in ((1, 4096), (3, 4096), (64, 4096), (64, 2)):
        monkeypatch.setattr(Engine, "_rows_of", lambda engine, words, most=at_once: most)
        engine = Engine(TextVictim(lambda _: 0.5), encoder=TokenVectors(max_tokens=40))
        engine.in_flight = in_flight
        found = {text_of(item): item.value.tobytes() for item in engine.run([Compares(text) for text in texts])}
        reference = reference or found
        assert found == reference
        assert engine.statistics.service_s > 0


class Broken(TokenVectors):
    def launch(self, batches: Sequence[TokenBatch]) -> Pending:
        bad = self.tokenizer.convert_tokens_to_ids("yuks")
        if self.how == "raises" and any((batch.ids == bad).any() for batch in batches):
            raise RuntimeError("I do not like yuks")
        wait = super().launch(batches)
        rows = np.concatenate([(batch.ids == bad).any(axis=1) for batch in batches])
        return lambda: np.where(rows[:, None], np.float32(np.nan), wait()).astype(np.float32)

    how = "nan"


@pytest.mark.parametrize("how", ["nan", "raises"])
def test_a_row_that_breaks_the_encoder_costs_only_its_own_attack(how: str) -> None:
    encoder, vocabulary = Broken(), Vocabulary()
    encoder.how = how
    service = TokenSimilarities(encoder, vocabulary, lambda _: None)
    requests = [
        Similarity(Draft.of({"text": text}, vocabulary), replacing(0, vocabulary.ids(["film", "x"])), 2)
        for text in ("no yuks", "a movie", "movie yuks")
    ]
    for _ in range(2):
        answers = service.start(requests)()
        assert isinstance(answers[0], VictimError)
        assert isinstance(answers[2], VictimError)
        assert ("NaN" in str(answers[0])) == (how == "nan")
        assert len(answers[1]) == 2
    known, new = Draft.of({"text": "a movie"}, vocabulary), Draft.of({"text": "no yuks"}, vocabulary)
    service.start([Similarity(known, replacing(0, vocabulary.ids(["film"])), 1)])()
    worst = [Similarity(draft, replacing(0, vocabulary.ids(["yuks"])), 1) for draft in (known, new)]
    assert all(isinstance(answer, VictimError) for answer in service.start(worst)())


def test_rough_answers_for_those_who_ask_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(encoder: TokenVectors, rough: bool) -> tuple[list[Any], list[Similarity]]:
        vocabulary = Vocabulary()
        service = TokenSimilarities(encoder, vocabulary, lambda _: None)
        draft = Draft.of({"text": TEXT}, vocabulary)
        edits = at_each(np.arange(len(draft), dtype=np.int32), vocabulary.id("film"))
        requests = [Similarity(draft, edits, len(edits), window=5, rough=rough and index != 1) for index in range(3)]
        return [service.start(requests)() for _ in range(2)][1], requests

    exact, requests = asked(RoughVectors(), rough=False)
    assert [request.error for request in requests] == [None] * 3
    for most in (1 << 15, 4):  # whole, and cut into parts
        monkeypatch.setattr("isthmus.engine.similarity._MOST_ROWS", most)
        encoder = RoughVectors()
        mixed, requests = asked(encoder, rough=True)
        assert [request.error for request in requests] == [encoder.rough_error, None, encoder.rough_error]
        assert encoder.roughly
        assert np.array_equal(mixed[1], exact[1])
        for index in (0, 2):
            assert 0 < np.abs(mixed[index] - exact[index]).max() <= encoder.rough_error
    same, requests = asked(TokenVectors(), rough=True)  # it has nothing faster
    assert [request.error for request in requests] == [None] * 3
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(same, exact, strict=True))


@pytest.mark.parametrize("how", ["overflows", "raises"])
def test_a_row_that_only_fast_arithmetic_cannot_read_is_nan(how: str) -> None:
    class Hasty(RoughVectors):
        def launch_roughly(self, batches: Sequence[TokenBatch]) -> Pending:
            bad = self.tokenizer.convert_tokens_to_ids("yuks")
            rows = np.concatenate([(batch.ids == bad).any(axis=1) for batch in batches])
            if how == "raises" and rows.any():
                raise RuntimeError("I do not like yuks in a hurry")
            wait = super().launch_roughly(batches)
            return lambda: np.where(rows[:, None], np.float32(np.inf), wait()).astype(np.float32)

    vocabulary = Vocabulary()
    service = TokenSimilarities(Hasty(), vocabulary, lambda _: None)
    draft = Draft.of({"text": "a dull movie"}, vocabulary)
    for words in (["yuks", "plot"], ["yuks"]):  # the second time the reference is known, and every row is bad
        request = Similarity(draft, replacing(2, vocabulary.ids(words)), len(words), rough=True)
        (answer,) = service.start([request])()
        assert isinstance(answer, np.ndarray)
        assert np.isnan(answer).tolist() == [word == "yuks" for word in words]


def test_huge_rounds_are_served_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, encoder = Vocabulary(), TokenVectors()
    service = TokenSimilarities(encoder, vocabulary, lambda _: None)
    draft = Draft.of({"text": TEXT}, vocabulary)
    everywhere = at_each(np.arange(len(draft), dtype=np.int32), vocabulary.id("film"))
    requests = [Similarity(draft, everywhere, len(everywhere), window=size) for size in (3, 5, None)]
    whole = service.start(requests)()
    monkeypatch.setattr("isthmus.engine.similarity._MOST_ROWS", 4)
    for ours, expected in zip(service.start(requests)(), whole, strict=True):
        assert np.array_equal(ours, expected)
