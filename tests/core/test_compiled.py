"""The compiled part: the same as Python, bit for bit, and nothing read or written outside an array."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.attacks.parts import characters
from isthmus.attacks.parts.candidates import Candidates
from isthmus.attacks.parts.goals import Untargeted
from isthmus.attacks.parts.trial import Trial
from isthmus.core import compiled
from isthmus.engine import assembly
from isthmus.engine.requests import INSERT, MERGE, REPLACE, Score, replacing, replacing_by
from isthmus.engine.rows import TokenRows
from isthmus.text import subwords
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import split

ROOT = Path(__file__).parents[2]
WORDS = ("a", "film", "unbelievable", "Zzq7", "great", "x", "don't", "é", "", "[UNK]", "réussi", "q" * 300)
TEXT = "the movie, which isn't well-known, was (almost) great!"


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module, compiled here and now from the source, so that what is tested is what the source says."""
    if os.name != "posix" or shutil.which("cc") is None:
        pytest.skip("no C compiler")
    root = tmp_path_factory.mktemp("compiled")
    (root / "src/isthmus/core").mkdir(parents=True)
    shutil.copy(ROOT / "src/isthmus/core/_compiled.c", root / "src/isthmus/core")
    hook = _module("hatch_build", ROOT / "hatch_build.py")
    made = hook.compile_extension(root)
    if made is None:
        pytest.skip("no headers of this Python")
    return _module("_compiled", made)


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_made_from_another_source_is_not_used(part: ModuleType, tmp_path: Path) -> None:
    source = ROOT / "src/isthmus/core/_compiled.c"
    assert compiled.is_current(part, source)
    older = tmp_path / "_compiled.c"
    older.write_bytes(source.read_bytes() + b"\n")
    assert not compiled.is_current(part, older)
    assert not compiled.is_current(ModuleType("_compiled"), source), "a file of before there was a digest"
    assert compiled.is_current(part, tmp_path / "none.c"), "a wheel without the source"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"!,.()'-?", *letters, *(f"##{each}" for each in letters)]
    pieces += ["the", "movie", "great", "film", "un", "##believ", "##able", "known", "well", "which", "##sn", "almo"]
    backend = Tokenizer(WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]"
    )


edit = st.tuples(st.integers(0, 5), st.integers(0, 7), st.sampled_from([INSERT, REPLACE, MERGE]), st.integers(0, 11))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.lists(edit, max_size=6)), min_size=1, max_size=4), st.integers(3, 40))
def test_rows_are_those_of_array_operations(
    part: ModuleType, tokenizer: Any, asked: list[tuple[int, list[tuple[int, int, int, int]]]], limit: int
) -> None:
    vocabulary = Vocabulary()
    numbers = vocabulary.ids(WORDS)
    requests = []
    for text, (count, edits) in zip([TEXT, "great film", TEXT.upper(), "x " * 60], asked, strict=False):
        draft = Draft.of({"text": text}, vocabulary)
        own = sorted((at, place % (len(draft) - 1), span, int(numbers[word])) for at, place, span, word in edits)
        # A merger changes where the words behind it stand: it comes alone.
        merged = {at for at, _, span, _ in own if span == MERGE}
        own = [each for at, each in enumerate(own) if each[0] not in merged or each[0] not in {o[0] for o in own[:at]}]
        array = np.array([each for each in own if each[0] < count], np.int32).reshape(-1, 4)
        requests.append(Score(draft, array, count))
    assembler = assembly.Assembler(tokenizer, vocabulary, limit)
    expected = assembler.splice_rows(requests)
    before, compiled.part = compiled.part, part
    try:
        found = assembler._splice_compiled(requests)
    finally:
        compiled.part = before
    if found is None:  # Mergers, and edits of one place, are left to the other way.
        assert any(MERGE in request.edits[:, 2] or _touches_twice(request.edits) for request in requests)
        return
    assert found.keys is not None
    assert np.array_equal(found.total, expected.total)
    assert np.array_equal(found.keys, assembler.row_keys(expected))
    assert found.types is None
    for row in range(len(found)):
        chosen = np.array([row])
        assert np.array_equal(found.batch(chosen, 0).ids, expected.batch(chosen, 0).ids)
    assert found.ids.dtype == expected.ids.dtype
    assert found.ids.flags.writeable


def _touches_twice(edits: Any) -> bool:
    return len({(candidate, place) for candidate, place, *_ in edits.tolist()}) < len(edits)


def test_ordinary_edits_take_the_compiled_way(part: ModuleType, tokenizer: Any, monkeypatch: Any) -> None:
    vocabulary = Vocabulary()
    assembler = assembly.Assembler(tokenizer, vocabulary, 64)
    draft = Draft.of({"text": TEXT}, vocabulary)
    edits = np.array([[0, 1, REPLACE, 5], [1, 0, INSERT, 6], [1, 4, REPLACE, 0], [2, 2, REPLACE, 1]], np.int32)
    monkeypatch.setattr(compiled, "part", part)
    vocabulary.ids(WORDS)
    assert assembler._splice_compiled([Score(draft, edits, 4)]) is not None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_numbers_lead_outside_the_arrays(part: ModuleType, data: st.DataObject) -> None:
    """Arrays of any numbers: an error, None, or rows whose lengths and tokens are possible ones."""
    small = st.integers(-3, 9)

    def array(kind: Any, most: int = 12) -> Any:
        numbers = data.draw(st.lists(small | st.integers(-(2**31), 2**31 - 1), max_size=most))
        return np.array(numbers, np.int64).astype(kind)

    arrays = [array(np.int32), array(np.int64, 3), array(np.int32), array(np.int64, 3), array(np.int32, 16)]
    arrays += [array(np.int64, 3), array(np.int64, 3), array(np.int64), array(np.int64), array(np.int32)]
    arrays += [array(np.int64, 2), array(np.int64, 2), array(np.uint64), array(np.uint64)]
    if data.draw(st.booleans()):  # Mostly the sizes would not add up, and nothing else would be looked at.
        for of, sizes, width in ((0, 1, 1), (2, 3, 1), (4, 5, 4)):
            arrays[of] = arrays[of][: len(arrays[of]) // width * width]
            arrays[sizes] = np.array([len(arrays[of]) // width], np.int64)
        arrays[6] = np.array([data.draw(st.integers(0, 5))], np.int64)
        arrays[8] = np.resize(arrays[8], len(arrays[7])) if len(arrays[8]) else np.zeros(len(arrays[7]), np.int64)
    try:
        found = part.rows(*arrays, data.draw(st.integers(-2, 20)))
    except (ValueError, MemoryError):
        return
    if found is not None:
        total, begins, ids = (np.frombuffer(each, np.int64) for each in found[:3])
        assert (begins >= 0).all()
        assert (begins + total <= len(ids)).all()
        # Rows that look the same share their tokens; where an empty row begins, another one may begin, too.
        own = dict(sorted(zip(begins.tolist(), total.tolist(), strict=True)))
        assert sum(own.values()) == len(ids)
        assert set(ids) <= {*arrays[9].tolist(), *arrays[10].tolist(), *arrays[11].tolist()}


def test_arrays_of_another_kind_are_refused(part: ModuleType) -> None:
    good: list[Any] = [np.zeros(0, kind) for kind in (np.int32, np.int64) * 3] + [np.zeros(0, np.int64)] * 3
    good += [np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)] + [np.zeros(0, np.uint64)] * 2
    assert part.rows(*good, 5) is not None
    for at in range(len(good)):
        for other in (np.zeros(2, np.float32), np.zeros(4, np.int16), "text", None, b"12345678", [1, 2]):
            with pytest.raises((BufferError, TypeError, ValueError)):
                part.rows(*good[:at], other, *good[at + 1 :], 5)
    odd = np.frombuffer(b"\0" * 17, np.uint8)[1:].view(np.int64)  # begins at an odd address
    with pytest.raises(BufferError):
        part.rows(*good[:6], odd, *good[7:], 5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12) | st.sampled_from(WORDS) | st.from_regex(r"[a-zA-Z0-9]{1,9}", fullmatch=True)))
def test_words_are_split_as_the_tokenizer_splits_them(part: ModuleType, tokenizer: Any, words: list[str]) -> None:
    pure = subwords.SubWords(tokenizer)
    pure._pieces = None
    words = [word for word in words if word.isprintable()]
    expected = pure.count_words(words)
    before, compiled.part = compiled.part, part
    try:
        found = subwords.SubWords(tokenizer).count_words(words)
    finally:
        compiled.part = before
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


def test_a_vocabulary_is_checked(part: ModuleType) -> None:
    for bad in ({"a": -1}, {"a": 2**40}, {"a": "b"}, {1: 2}):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            part.piece_table(bad, "##", 0, 100)
    table = part.piece_table({}, "##", 7, 100)
    counts, ids = part.split_words(table, ["abc", "", "é", "a" * 101, "a" * 1000], True)
    assert np.frombuffer(counts, np.int64).tolist() == [1, -1, -1, 1, -1]
    assert np.frombuffer(ids, np.int64).tolist() == [7, 7]
    with pytest.raises(ValueError, match="PyCapsule"):
        part.split_words("no table", ["abc"], True)
    with pytest.raises(TypeError):
        part.split_words(table, [b"abc"], True)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=70), st.integers(0, 2**32))
def test_misspellings_are_those_of_the_four_edits(part: ModuleType, word: str, seed: int) -> None:
    found = part.misspelt(word, random.Random(seed).random)
    if not word.isascii() or not 2 <= len(word) < 64:
        assert found is None
        return
    rng = random.Random(seed)
    assert found == [edit(word, rng) for edit in characters.EDITS.values()]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=9) | st.sampled_from(WORDS), min_size=1, max_size=5), st.integers(0, 2**32))
def test_misspellings_become_the_edits_of_python(part: ModuleType, words: list[str], seed: int) -> None:
    one, other = (Draft.of({"text": "a b"}, Vocabulary()) for _ in range(2))
    for position in range(len(words)):
        found = []
        for draft, used in ((one, part), (other, None)):
            draft.ids = draft.structure.vocabulary.ids(words)
            before, compiled.part = compiled.part, used
            try:
                found.append(characters.misspelling(draft, position, random.Random(seed)))
            finally:
                compiled.part = before
        assert np.array_equal(found[0], found[1])
        assert one.structure.vocabulary.strings == other.structure.vocabulary.strings


def test_a_word_outside_the_text_is_not_misspelt(part: ModuleType) -> None:
    vocabulary = Vocabulary()
    for ids, position in (([2], 1), ([2], -1), ([7], 0), ([-1], 0)):
        with pytest.raises(IndexError):
            part.misspellings(np.array(ids, np.int32), position, vocabulary.table, vocabulary.strings, random.random)
    with pytest.raises(BufferError):
        part.misspellings(np.zeros(1), 0, vocabulary.table, vocabulary.strings, random.random)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="aZ0_'-*@ ,.", max_size=20) | st.text(max_size=20))
def test_texts_fall_into_words_as_in_python(part: ModuleType, text: str) -> None:
    one, other = Vocabulary(), Vocabulary()
    found, pieces = part.words_of(text, one.table, one.strings), split(text)
    if not text.isascii():
        assert found is None
        return
    assert np.array_equal(np.frombuffer(found[0], np.int32), other.ids(pieces[1::2]))
    assert found[1] == tuple(pieces[::2])
    assert one.strings == other.strings
    assert dict(one.table) == dict(other.table)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=9), st.data())
def test_units_are_gaps_and_words_in_turn(part: ModuleType, words: list[int], data: st.DataObject) -> None:
    known = {"": 0, " ": 0, ", ": 5, "!": 2**31 - 1, "?": -1}
    size = len(words) + 1
    gaps = tuple(data.draw(st.lists(st.sampled_from(sorted(known)), min_size=size, max_size=size)))
    ids = np.array(words, np.int32)
    found = part.units_of(ids, gaps, known)
    if "?" in gaps:
        assert found is None
        return
    units = np.frombuffer(found, np.int32).tolist()
    assert (units[0], units[1::2], units[2::2]) == (0, [known[gap] for gap in gaps], words)
    with pytest.raises(ValueError, match="one gap more"):
        part.units_of(ids, gaps[1:], known)
    with pytest.raises(KeyError):
        part.units_of(ids, ("unknown",) * size, known)


@pytest.mark.parametrize("wrong", [lambda: 1.0, lambda: -0.5, lambda: float("nan"), lambda: "x", lambda: 1 / 0])
def test_randomness_that_is_none_is_an_error(part: ModuleType, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        part.misspelt("word", wrong)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=4), max_size=20), st.sets(st.text(max_size=4)), st.data())
def test_positions_are_those_that_may_be_edited(
    part: ModuleType, words: list[str], frozen: set[str], data: st.DataObject
) -> None:
    vocabulary = Vocabulary()
    ids = vocabulary.ids(words)
    free = np.array([data.draw(st.booleans()) for _ in words], bool)
    found = np.frombuffer(part.positions(ids, vocabulary.strings, frozenset(frozen), free), np.int32)
    expected = [at for at, word in enumerate(words) if free[at] and word not in frozen]
    assert found.tolist() == expected
    if words:
        with pytest.raises(ValueError, match="one byte"):
            part.positions(ids, vocabulary.strings, frozenset(), free[1:])
        with pytest.raises(IndexError):
            part.positions(ids - 2**30, vocabulary.strings, frozenset(), np.ones(len(words), bool))
        with pytest.raises(IndexError):
            part.positions(ids + 2**30, vocabulary.strings, frozenset(), np.ones(len(words), bool))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=5), max_size=9), st.integers(0, 99))
def test_edits_are_made_as_in_python(part: ModuleType, words: list[str], position: int) -> None:
    one, other = Vocabulary(), Vocabulary()
    before, compiled.part = compiled.part, part
    try:
        found = replacing_by(position, words, one)
    finally:
        compiled.part = before
    assert np.array_equal(found, replacing(position, other.ids(words)))
    assert one.strings == other.strings
    assert dict(one.table) == dict(other.table)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 2), st.integers(0, 9)), max_size=9))
def test_the_edits_of_a_candidate_are_found(part: ModuleType, edits: list[tuple[int, int, int, int]]) -> None:
    array = np.array(sorted(edits), np.int32).reshape(-1, 4)
    draft = Draft.of({"text": TEXT}, Vocabulary())
    for index in (-1, *range(6)):
        assert part.edits_of(array, index) == [tuple(own[1:]) for own in array.tolist() if own[0] == index]
    before, compiled.part = compiled.part, None
    try:
        for index in range(5):
            assert part.edits_of(array, index) == Candidates(draft, array, 5).edits_of(index)
    finally:
        compiled.part = before
    with pytest.raises(ValueError, match="four"):
        part.edits_of(np.zeros(3, np.int32), 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.data())
def test_rows_are_padded_as_in_python(part: ModuleType, lengths: list[int], data: st.DataObject) -> None:
    total = np.array(lengths, np.int64)
    order = np.argsort(total, kind="stable")
    ids = np.arange(1, total.sum() + 1)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=12)), np.int64)
    batches = []
    before = compiled.part
    for used in (part, None):
        compiled.part = used
        try:
            batches.append(TokenRows(total, order, ids, None).batch(chosen, 99))
        finally:
            compiled.part = before
    found, expected = batches
    assert np.array_equal(found.ids, expected.ids)
    assert found.ids.dtype == expected.ids.dtype
    assert found.ids.flags.writeable
    assert (found.mask is None) == (expected.mask is None) == (len({lengths[row] for row in chosen.tolist()}) == 1)
    if found.mask is not None and expected.mask is not None:
        assert np.array_equal(found.mask, expected.mask)
    begins = np.cumsum(total[order]) - total[order]
    for row, own in zip(found.ids, chosen.tolist(), strict=True):
        first = int(begins[np.flatnonzero(order == own)[0]])
        assert row[: lengths[own]].tolist() == ids[first : first + lengths[own]].tolist()
        assert set(row[lengths[own] :].tolist()) <= {99}


def test_rows_outside_their_tokens_are_refused(part: ModuleType) -> None:
    ids, begins, lengths = np.arange(5), np.array([0, 2]), np.array([2, 3])
    assert part.padded(ids, begins, lengths, np.array([0]), 2, 0)[1] is None
    for wrong in (
        (ids, begins, lengths, np.array([2]), 3, 0),
        (ids, begins, lengths, np.array([-1]), 3, 0),
        (ids, begins, lengths, np.array([1]), 2, 0),
        (ids, begins + 1, lengths, np.array([1]), 3, 0),
        (ids, -begins, lengths, np.array([1]), 3, 0),
        (ids, begins, -lengths, np.array([1]), 3, 0),
        (ids, begins[1:], lengths, np.array([0]), 3, 0),
        (ids, begins, lengths, np.array([0]), -3, 0),
    ):
        with pytest.raises(ValueError, match="do not lie"):
            part.padded(*wrong)
    with pytest.raises(BufferError):
        part.padded(ids.astype(np.int32), begins, lengths, np.array([0]), 2, 0)


share = st.floats(0, 1, width=32)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(share | st.sampled_from([0.25, 0.5]), share), min_size=1, max_size=9), st.integers(0, 1))
def test_scores_are_judged_as_in_python(part: ModuleType, rows: list[tuple[float, float]], label: int) -> None:
    scores = np.array(rows, np.float32)
    positions = np.arange(len(rows), dtype=np.int32)[::-1].copy()
    draft = Draft.of({"text": TEXT}, Vocabulary())
    found = []
    before = compiled.part
    for used in (part, None):
        compiled.part = used
        try:
            trial = Trial(Untargeted(), label, draft, scores[0], random.Random(0))
            found.append((trial.leading(scores), trial.rank(positions, scores)))
        finally:
            compiled.part = before
    assert found[0] == found[1]
    assert part.furthest(scores, label) is not None


def test_what_is_no_score_is_left_to_python(part: ModuleType) -> None:
    scores, places = np.zeros((2, 2), np.float32), np.zeros(2, np.int32)
    nowhere = np.array([[0.5, np.nan]], np.float32)
    strided = np.zeros((2, 4), np.float32)[:, ::2]
    for other, column in (
        *((scores, 2), (scores, -1), (scores[:0], 0), (strided, 0), (scores[0], 0), (nowhere, 1), (None, 0)),
        *((scores.astype(np.float64), 0), (scores.view(np.int32), 0)),
    ):
        assert part.furthest(other, column) is None
        if not isinstance(other, np.ndarray) or other.shape != (0, 2):
            assert part.ranked(places[:1] if other is nowhere else places, other, column) is None
    assert part.ranked(places[:1], scores, 0) is None
    with pytest.raises(BufferError):
        part.ranked(places.astype(np.int64), scores, 0)


def test_an_environment_variable_leaves_it_unused() -> None:
    code = "from isthmus.core import compiled; print(compiled.part is None, compiled.why_not())"
    environment = {**os.environ, "ISTHMUS_PURE": "1", "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True ISTHMUS_PURE is set"


def test_a_build_without_a_compiler_leaves_it_out(tmp_path: Path, monkeypatch: Any) -> None:
    hook = _module("hatch_build", ROOT / "hatch_build.py")
    monkeypatch.setenv("CC", "no-such-compiler")
    target = tmp_path / hook.TARGET
    target.parent.mkdir(parents=True)
    target.write_bytes(b"of another build")
    assert hook.compile_extension(tmp_path) is None
    assert not target.exists()
