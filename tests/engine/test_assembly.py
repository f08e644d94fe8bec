"""Assembled rows are what the tokenizer itself makes of the edited text, whatever the edits and wherever it is cut."""

import numpy as np
import pytest
from engine_toys import bert_tokenizer, roberta_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_strategies import new_words, texts

from isthmus.engine.assembly import Assembler
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, UNKNOWN, Score
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

TOKENIZERS = {"bert": bert_tokenizer(), "roberta": roberta_tokenizer()}
MAX_TOKENS = 24
ASSEMBLERS = {name: Assembler(tokenizer, Vocabulary(), MAX_TOKENS) for name, tokenizer in TOKENIZERS.items()}


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("pair", [False, True])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_equal_the_tokenizers_own(name: str, pair: bool, data: st.DataObject) -> None:
    tokenizer, vocabulary = TOKENIZERS[name], Vocabulary("[UNK]" if name == "bert" else "<unk>")
    assembler = ASSEMBLERS[name]
    assembler.splicer.clear(vocabulary)
    requests = [data.draw(request_for(pair, vocabulary)) for _ in range(data.draw(st.integers(1, 3)))]
    work = assembler.rows(requests)
    at = 0
    for request in requests:
        for candidate in range(request.count):
            edits = [tuple(edit[1:]) for edit in request.edits.tolist() if edit[0] == candidate]
            edited = request.base.apply(edits).texts
            # As a batch of one: given alone, an empty second text would count as none.
            columns = [[text] for text in edited.values()]
            expected = tokenizer(*columns, truncation=True, max_length=MAX_TOKENS, return_token_type_ids=True)
            row = work.batch(np.array([at]), 0)
            assert row.ids.tolist() == expected["input_ids"], edited
            if row.types is not None:
                assert row.types.tolist() == expected["token_type_ids"]
            elif name == "bert":
                assert not np.any(expected["token_type_ids"])
            at += 1


def request_for(pair: bool, vocabulary: Vocabulary) -> st.SearchStrategy[Score]:
    @st.composite
    def build(draw: st.DrawFn) -> Score:
        fields = {"premise": draw(texts), "hypothesis": draw(texts)} if pair else {"text": draw(texts)}
        draft = Draft.of(fields, vocabulary)
        if len(draft) and draw(st.booleans()):
            position = draw(st.integers(0, len(draft) - 1))
            draft = draft.replace(position, vocabulary.id(draw(new_words)))
        count = draw(st.integers(1, 4))
        edits = []
        for candidate in range(count):
            positions = (
                draw(st.lists(st.integers(0, max(0, len(draft) - 1)), max_size=3, unique=True)) if len(draft) else []
            )
            for position in sorted(positions):
                span = draw(st.sampled_from([REPLACE, REPLACE, REPLACE, INSERT, MERGE]))
                last = position + 1 >= len(draft) or draft.field_of(position) != draft.field_of(position + 1)
                if span == MERGE and (last or position + 1 in positions):
                    span = REPLACE
                word = vocabulary.id(draw(new_words))
                if span == REPLACE:
                    word = draw(st.sampled_from([word, word, DELETE, UNKNOWN]))
                edits.append((candidate, position, span, word))
        return Score(draft, np.array(edits, np.int32).reshape(-1, 4), count)

    return build()


def test_a_text_far_longer_than_the_model_reads_costs_only_what_it_sees() -> None:
    tokenizer, vocabulary = TOKENIZERS["bert"], Vocabulary()
    assembler = Assembler(tokenizer, vocabulary, MAX_TOKENS)
    draft = Draft.of({"text": "movie great plot " * 10_000}, vocabulary)
    edits = np.array([(0, 0, REPLACE, DELETE), (1, 29_999, REPLACE, UNKNOWN), (2, 3, REPLACE, UNKNOWN)], np.int32)
    work = assembler.rows([Score(draft, edits, 3)])
    assert work.total.tolist() == [MAX_TOKENS] * 3
    assert work.ids.size <= 3 * MAX_TOKENS
    for candidate in range(3):
        text = draft.apply([tuple(edits[candidate, 1:].tolist())]).texts["text"]
        expected = tokenizer(text, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        assert work.batch(np.array([candidate]), 0).ids[0].tolist() == expected


def test_keys_tell_rows_apart() -> None:
    tokenizer = TOKENIZERS["bert"]
    assembler = Assembler(tokenizer, Vocabulary(), 64)
    generator = np.random.default_rng(0)
    rows = np.unique(generator.integers(0, len(tokenizer), (200_000, 6)), axis=0)
    assert len(np.unique(assembler.keys(rows, None))) == len(rows)
    # Neighbouring ids in neighbouring places are the hard case for a sum of products.
    close = np.stack(np.meshgrid(*[np.arange(40, 56)] * 4), axis=-1).reshape(-1, 4)
    assert len(np.unique(assembler.keys(close, None))) == len(close)
    types = np.zeros_like(close)
    types[:, 2:] = 1
    assert not np.isin(assembler.keys(close, types), assembler.keys(close, None)).any()
