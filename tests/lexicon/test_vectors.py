import gzip

import numpy as np
import pytest

from isthmus import assets
from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.lexicon import WordVectors, stop_words

WORDS = ["the", "dog", "Cat", "cat", ". . ."]
MATRIX = np.arange(15, dtype=np.float32).reshape(5, 3) / 7


def write_folder(folder):
    folder.mkdir(exist_ok=True)
    np.save(folder / "vectors.npy", MATRIX)
    (folder / "words.txt").write_text("\n".join(WORDS))
    return folder


def write_text(path, header=""):
    lines = header + "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, MATRIX, strict=True))
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def sources(tmp_path):
    yield write_folder(tmp_path / "folder")
    yield write_text(tmp_path / "plain.txt")
    yield write_text(tmp_path / "word2vec.vec", "5 3\n")
    yield write_text(tmp_path / "packed.txt.gz")
    np.savez(tmp_path / "texts.npz", words=np.array(WORDS), vectors=MATRIX)
    yield tmp_path / "texts.npz"
    joined = np.frombuffer("\n".join(WORDS).encode(), dtype=np.uint8)
    np.savez(tmp_path / "bytes.npz", words=joined, matrix=MATRIX.astype(np.float64))
    yield tmp_path / "bytes.npz"
    ones = np.ones((5, 3), dtype=np.int8)
    np.savez(tmp_path / "small.npz", words=joined, q=ones, scale=np.arange(5, dtype=np.float32))
    yield tmp_path / "small.npz"


def test_every_format(tmp_path):
    for source in sources(tmp_path):
        vectors = WordVectors.load(source)
        assert vectors.words == tuple(WORDS)
        assert vectors.width == 3
        assert len(vectors) == 5
        expected = np.arange(5)[:, None] * np.ones(3) if source.name == "small.npz" else MATRIX
        assert np.allclose(vectors.matrix, expected)


def test_lookup_falls_back_to_lower_case():
    vectors = WordVectors(WORDS, MATRIX)
    assert np.array_equal(vectors.lookup("DOG"), MATRIX[1])
    assert np.array_equal(vectors.lookup("Cat"), MATRIX[2])
    assert np.array_equal(vectors.lookup("CAT"), MATRIX[3])
    assert vectors.lookup("zebra") is None
    assert "The" in vectors
    assert 3 not in vectors
    assert vectors.coverage(["the", "zebra"]) == 0.5
    assert "5 words" in repr(vectors)
    twice = WordVectors(["a", "a"], MATRIX[:2])
    assert twice.index("a") == 0


def test_table_for_a_vocabulary():
    rng = np.random.default_rng(0)
    vectors = WordVectors([f"w{n}" for n in range(500)], rng.normal(0, 0.3, (500, 8)).astype(np.float32))
    vocabulary = ["w3", "unknown", "w7", *(f"new{n}" for n in range(300))]
    table = vectors.matrix_for(vocabulary, seed=1)
    assert table.shape == (303, 8)
    assert table.dtype == np.float32
    assert np.array_equal(table[0], vectors.matrix[3])
    assert np.array_equal(table[2], vectors.matrix[7])
    assert table[3:].std() == pytest.approx(0.3, rel=0.1)
    assert len({row.tobytes() for row in table}) == 303
    assert np.array_equal(vectors.matrix_for(["unknown"], seed=1)[0], table[1])
    assert not np.array_equal(vectors.matrix_for(["unknown"], seed=2)[0], table[1])
    wide = vectors.matrix_for(vocabulary, 12, seed=1)
    assert wide.shape == (303, 12)
    assert np.array_equal(wide[0, :8], vectors.matrix[3])
    assert wide[0, 8:].any()
    with pytest.raises(UsageError, match="8 wide and cannot be cut to 4"):
        vectors.matrix_for(vocabulary, 4)


def test_asset(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "path", lambda name: write_folder(tmp_path / name))
    assert WordVectors.load().words == tuple(WORDS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("the 1 2 3\ndog 1 x 3\n", "line 2: expected a word and 3 numbers"),
        ("the 1 2 3\n1 2 3\n", "line 2"),
        ("the\n", "line 1"),
    ],
)
def test_broken_text(tmp_path, content, words):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(DataError, match=words):
        WordVectors.load(tmp_path / "x.txt")


def test_broken_files(tmp_path):
    with pytest.raises(DataError, match="no word vectors at"):
        WordVectors.load(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match=r"does not hold words\.txt"):
        WordVectors.load(tmp_path)
    np.savez(tmp_path / "x.npz", other=MATRIX)
    with pytest.raises(DataError, match="should hold 'words' and 'vectors'"):
        WordVectors.load(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", words=np.array(WORDS, dtype=object), vectors=MATRIX)
    with pytest.raises(DataError, match="without pickles"):
        WordVectors.load(tmp_path / "y.npz")
    (tmp_path / "z.npz").write_bytes(b"PK nonsense")
    with pytest.raises(DataError):
        WordVectors.load(tmp_path / "z.npz")
    with pytest.raises(DataError, match="5 words do not fit"):
        WordVectors(WORDS, MATRIX[:2])


def test_cut_off_files(tmp_path):
    packed = write_text(tmp_path / "x.txt.gz")
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"x\.txt\.gz, after line \d: the file is cut off"):
        WordVectors.load(packed)
    whole = write_text(tmp_path / "x.txt")
    whole.write_bytes(whole.read_bytes()[:-8])
    with pytest.raises(DataError, match=r"x\.txt, line 5"):
        WordVectors.load(whole)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", words=np.array(WORDS), vectors=MATRIX)
        content = (tmp_path / "x.npz").read_bytes()
        (tmp_path / "x.npz").write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=r"x\.npz is not a readable .* \(cut off\?\)"):
            WordVectors.load(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", words=np.array(WORDS), q=np.ones((5, 3), np.int8), scale=np.ones(4))
    with pytest.raises(DataError, match=r"x\.npz: \(5, 3\) numbers in 'q' do not fit \(4,\)"):
        WordVectors.load(tmp_path / "x.npz")
    folder = write_folder(tmp_path / "folder")
    (folder / "words.txt").write_text("\n".join(WORDS[:3]))
    with pytest.raises(DataError, match=r"folder: 3 words do not fit .* cut off"):
        WordVectors.load(folder)
    (folder / "vectors.npy").write_bytes((folder / "vectors.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match=r"does not hold words\.txt and vectors\.npy"):
        WordVectors.load(folder)


def test_stop_words():
    words = stop_words()
    assert len(words) == 179
    assert {"the", "not", "you're"} <= words
    assert "film" not in words
    with pytest.raises(UnknownName):
        stop_words("klingon")
