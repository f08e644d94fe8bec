import csv
import gzip
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus import assets
from isthmus.core.errors import DataError, IsthmusError, MissingExtra, UnknownName, UsageError
from isthmus.data import load_data

ROWS = [{"text": "good", "label": "pos"}, {"text": "bad, very", "label": "neg"}, {"text": "", "label": "pos"}]


def write(path, rows=ROWS):
    """Write rows in the format of the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        lines: list[Any] = []
        writer = csv.writer(type("W", (), {"write": lines.append}), delimiter="\t" if name.endswith(".tsv") else ",")
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
        data = "".join(lines).encode()
    elif name.endswith(".json"):
        data = json.dumps(rows).encode()
    elif name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    "name", ["x.csv", "x.tsv", "x.jsonl", "x.jsonl.gz", "x.csv.gz", "x.ndjson", "x.json", "x.json.gz", "x.parquet"]
)
def test_every_format_reads_the_same(tmp_path, name):
    data = load_data(write(tmp_path / name)).evaluation()
    assert [example.texts["text"] for example in data] == ["good", "bad, very", ""]
    assert data.labels == ("neg", "pos")
    assert data.label_indices().tolist() == [1, 0, 1]
    assert [example.id for example in data] == ["all:0", "all:1", "all:2"]
    assert data.name == "x"
    assert data.rejected == ()


def test_same_data_same_fingerprint_whatever_the_format(tmp_path):
    prints = {load_data(write(tmp_path / name)).evaluation().fingerprint for name in ("a.csv", "b.jsonl", "c.parquet")}
    assert len(prints) == 1


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_text_survives(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("any")
    rows = [{"text": text, "label": n % 2} for n, text in enumerate(texts)]
    for name in ("x.jsonl", "x.csv", "x.tsv"):
        data = load_data(write(folder / name, rows)).evaluation()
        assert [example.texts["text"] for example in data] == texts


def test_columns_asked_for(tmp_path):
    rows = [{"id": "a", "review": "fine", "stars": 5}, {"id": "b", "review": "poor", "stars": 1}]
    data = load_data(write(tmp_path / "x.csv", rows), text="review", label="stars").evaluation()
    assert data.fields == ("text",)
    assert data.labels == ("1", "5")
    assert data[0].texts == {"text": "fine"}
    assert data.label_indices().tolist() == [1, 0]


def test_pairs(tmp_path):
    rows = [{"premise": "a", "hypothesis": "b", "label": 0}]
    data = load_data(write(tmp_path / "x.jsonl", rows), labels=["entailment", "contradiction"]).evaluation()
    assert data.task.fields == ("premise", "hypothesis")
    assert data[0].texts == {"premise": "a", "hypothesis": "b"}
    other = [{"q": "a", "s": "b", "gold": "yes"}]
    data = load_data(write(tmp_path / "y.jsonl", other), pair=("s", "q"), label="gold").evaluation()
    assert list(data[0].texts.items()) == [("s", "b"), ("q", "a")]


def test_unknown_column_suggests(tmp_path):
    path = write(tmp_path / "x.csv", [{"review": "fine", "stars": 5, "id": 1}])
    with pytest.raises(UnknownName, match=r"named 'reviews'\. Did you mean 'review'"):
        load_data(path, text="reviews", label="stars")
    with pytest.raises(UnknownName, match="Did you mean 'stars'"):
        load_data(path, text="review", label="star")
    with pytest.raises(UnknownName, match=r"named 'label'\. Known: id, review, stars\. Say which column"):
        load_data(path)
    with pytest.raises(UnknownName, match=r"named 'text'\. Known: a, b, label"):
        load_data(write(tmp_path / "y.csv", [{"a": "x", "b": "y", "label": 0}]))
    with pytest.raises(UsageError, match="either"):
        load_data(path, text="review", pair=("review", "id"))
    with pytest.raises(UsageError, match="different"):
        load_data(path, pair=("review", "review"), label="stars")
    with pytest.raises(UsageError, match="different"):
        load_data(path, text="review", label="review")


def test_two_columns_need_no_names(tmp_path):
    data = load_data(write(tmp_path / "x.csv", [{"Utterance": "hi", "Label": "a"}])).evaluation()
    assert data[0].texts == {"text": "hi"}
    data = load_data(write(tmp_path / "y.csv", [{"utterance": "hi", "intent": "a"}]), text="utterance").evaluation()
    assert data.labels == ("a",)


@pytest.mark.parametrize(
    ("values", "names", "indices"),
    [
        ([0, 1, 1], ("0", "1"), [0, 1, 1]),
        ([0, 2], ("0", "1", "2"), [0, 2]),
        ([1, 5, 3], ("1", "3", "5"), [0, 2, 1]),
        ([10, 9], ("9", "10"), [1, 0]),
        (["10", "9"], ("9", "10"), [1, 0]),
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        ([True, False], ("false", "true"), [1, 0]),
        (["b", " a "], ("a", "b"), [1, 0]),
        (["b", "1"], ("1", "b"), [1, 0]),
        ([100000, 0], ("0", "100000"), [1, 0]),
    ],
)
def test_labels_without_names(tmp_path, values, names, indices):
    rows = [{"text": "x", "label": value} for value in values]
    data = load_data(write(tmp_path / "x.jsonl", rows)).evaluation()
    assert data.labels == names
    assert data.label_indices().tolist() == indices


@pytest.mark.parametrize("values", [["pos", "neg"], [1, 0], ["1", "0"]])
def test_given_names_fix_the_order(tmp_path, values):
    rows = [{"text": "x", "label": value} for value in values]
    data = load_data(write(tmp_path / "x.jsonl", rows), labels=["neg", "pos"]).evaluation()
    assert data.labels == ("neg", "pos")
    assert data.label_indices().tolist() == [1, 0]


@pytest.mark.parametrize("value", ["poss", 2, -3, "2"])
def test_unknown_label_names_the_place(tmp_path, value):
    rows = [{"text": "x", "label": "pos"}, {"text": "x", "label": value}]
    with pytest.raises(DataError, match=r"x\.jsonl, line 2: unknown label .* Known labels: neg, pos"):
        load_data(write(tmp_path / "x.jsonl", rows), labels=["neg", "pos"])


def test_label_missing_in_train(tmp_path):
    write(tmp_path / "d" / "train.jsonl", ROWS)
    write(tmp_path / "d" / "test.jsonl", [{"text": "x", "label": "post"}])
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: unknown label 'post'\. Did you mean 'pos'"):
        load_data(tmp_path / "d")
    with pytest.raises(UsageError, match="must differ"):
        load_data(tmp_path / "d", labels=["a", "a"])


def test_numbers_used_as_names_are_not_positions(tmp_path):
    rows = [{"text": "x", "label": 0}]
    with pytest.raises(DataError, match="unknown label '0'"):
        load_data(write(tmp_path / "x.jsonl", rows), labels=["1", "2"])


def test_folder_of_splits(tmp_path):
    folder = tmp_path / "set"
    write(folder / "train.csv")
    write(folder / "validation.jsonl.gz", ROWS[:2])
    write(folder / "test.tsv", ROWS[:1])
    (folder / "README.md").write_text("x")
    splits = load_data(folder)
    assert list(splits) == ["train", "dev", "test"]
    assert splits.name == splits.dev.name == "set"
    assert splits.test.labels == ("neg", "pos")
    assert splits.test[0].id == "test:0"
    assert load_data(folder, "validation").split == "dev"
    assert load_data(folder, split="test").examples == splits.test.examples
    assert load_data(str(folder), name="mine").train.name == "mine"
    with pytest.raises(UnknownName, match="Did you mean 'test'"):
        load_data(folder, split="tests")
    assert load_data(folder / "test.tsv").evaluation().name == "set"


def test_meta_names_the_labels(tmp_path):
    folder = tmp_path / "set"
    write(folder / "test.jsonl", [{"text": "x", "label": 1}])
    (folder / "meta.json").write_text('{"labels": ["zebra", "ape"]}')
    assert load_data(folder).test.labels == ("zebra", "ape")
    assert load_data(folder / "test.jsonl").test.labels == ("zebra", "ape")
    (folder / "meta.json").write_text('{"labels": {"0": "zebra", "1": "ape"}}')
    assert load_data(folder, "test").labels == ("zebra", "ape")
    assert load_data(folder, "test", labels=["a", "b"]).labels == ("a", "b")
    (folder / "meta.json").write_text('{"task": "x"}')
    assert load_data(folder, "test").labels == ("1",)


def test_meta_with_one_list_a_task(tmp_path):
    folder = tmp_path / "set"
    write(folder / "dev_mm.jsonl", [{"text": "x", "label": 1}])
    write(folder / "dev_nli_mm.jsonl", [{"text": "x", "label": 1}])
    (folder / "meta.json").write_text('{"labels": {"mm": ["a", "b"], "nli_mm": ["c", "d"]}}')
    splits = load_data(folder)
    assert splits["dev_mm"].labels == ("a", "b")
    assert splits["dev_nli_mm"].labels == ("c", "d")


@pytest.mark.parametrize("content", ["{", '{"labels": 3}', '{"labels": []}', '{"labels": [null]}'])
def test_broken_meta(tmp_path, content):
    write(tmp_path / "test.jsonl", [{"text": "x", "label": 1}])
    (tmp_path / "meta.json").write_text(content)
    with pytest.raises(DataError, match=r"meta\.json"):
        load_data(tmp_path)


def test_shards_are_joined(tmp_path):
    write(tmp_path / "train-00000-of-00002.parquet", ROWS[:1])
    write(tmp_path / "train-00001-of-00002.parquet", ROWS[1:])
    data = load_data(tmp_path, "train")
    assert [example.texts["text"] for example in data] == ["good", "bad, very", ""]
    write(tmp_path / "train-00001-of-00002.parquet", [{"text": None, "label": "neg"}])
    assert "train-00001-of-00002.parquet, row 1" in load_data(tmp_path, "train").rejected[0].reason


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="found nothing"):
        load_data(tmp_path)
    (tmp_path / "images.bin").write_text("x")
    with pytest.raises(DataError, match=r"found images\.bin"):
        load_data(tmp_path)
    write(tmp_path / "train.csv")
    write(tmp_path / "train.jsonl")
    with pytest.raises(DataError, match=r"train\.csv and train\.jsonl are both the train split"):
        load_data(tmp_path)


def test_missing_file_suggests(tmp_path):
    write(tmp_path / "reviews.csv")
    with pytest.raises(DataError, match=r"Did you mean .*reviews\.csv"):
        load_data(tmp_path / "review.csv")
    with pytest.raises(DataError, match="does not exist either"):
        load_data(tmp_path / "no" / "review.csv")
    with pytest.raises(DataError, match="no file or folder"):
        load_data("./nothing")
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DataError, match="cannot tell the format"):
        load_data(tmp_path / "x.txt")


def test_rows_of_one_text_and_of_two_are_no_data_set():
    with pytest.raises(DataError, match=r"toy, all: some rows have one text and others two"):
        load_data([("a fine film", 1), ("a film", "a fine film", 0)], name="toy")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.json", "x.parquet", "x.jsonl.gz"])
def test_empty_files(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    with pytest.raises(DataError, match=f"{name} is empty"):
        load_data(tmp_path / name)


def test_files_without_rows(tmp_path):
    (tmp_path / "x.csv").write_text("text,label\n")
    with pytest.raises(DataError, match="holds no rows"):
        load_data(tmp_path / "x.csv")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(DataError, match="holds no rows"):
        load_data(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.jsonl", '{"text": "a", "label": 0}\n\n{"text": "b", "label": \n', r"x\.jsonl, line 3: broken JSON"),
        ("x.jsonl", '{"text": "a", "label": 0}\n["b", 1]\n', r'line 2: expected an object.*not \["b", 1\]'),
        ("x.jsonl", "[" * 100_000, "line 1: broken JSON"),
        ("x.json", '[{"text": "a"},\n{"text" "b"}]', "line 2: broken JSON"),
        ("x.json", "3", "should hold a list"),
        ("x.csv", "text,label\na,0\nb,c,1\n", r"line 3: 3 values, but the header has 2 columns\. Quote"),
        ("x.csv", 'text,label\n"a\nb",0\nc\n', "line 4: 1 values"),
        ("x.csv", "text,text,label\na,b,0\n", "names 'text' more than once"),
        ("x.tsv", "text\tlabel\na\tb\t0\n", "line 2: 3 values"),
    ],
)
def test_broken_files_name_the_line(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=words):
        load_data(tmp_path / name)


def test_broken_containers(tmp_path):
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a", "label": 0}' * 100)[:-20])
    with pytest.raises(DataError, match="not a whole gzip file"):
        load_data(tmp_path / "x.jsonl.gz")
    (tmp_path / "y.csv.gz").write_bytes(b"text,label\na,0\n")
    with pytest.raises(DataError, match="not a whole gzip file"):
        load_data(tmp_path / "y.csv.gz")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match="not a readable parquet"):
        load_data(tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_bytes("text,label\nok,0\ncafé,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"line 3: not UTF-8 .*Convert"):
        load_data(tmp_path / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="no data files"):
        load_data(tmp_path / "folder.csv")


def test_byte_order_mark_and_line_separators(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbftext,label\r\na,0\r\n")
    assert load_data(tmp_path / "x.csv").evaluation()[0].texts == {"text": "a"}
    (tmp_path / "x.jsonl").write_text('{"text": "a\u2028b\x85c", "label": 0}\r\n', newline="")
    assert load_data(tmp_path / "x.jsonl").evaluation()[0].texts == {"text": "a\u2028b\x85c"}


def test_stray_quotes_in_tabs(tmp_path):
    (tmp_path / "x.tsv").write_text('text\tlabel\n"so" they say\t0\nan " open one\t1\n"\t0\n')
    data = load_data(tmp_path / "x.tsv").evaluation()
    assert [example.texts["text"] for example in data] == ['"so" they say', 'an " open one', '"']


def test_very_long_text(tmp_path):
    long = "word " * 100_000
    limit = csv.field_size_limit()
    data = load_data(
        write(tmp_path / "x.csv", [{"text": long, "label": 0}, {"text": "😀 שלום", "label": 1}])
    ).evaluation()
    assert data[0].texts["text"] == long
    assert data[1].texts["text"] == "😀 שלום"
    assert csv.field_size_limit() == limit


def test_rows_that_are_no_texts_are_put_aside(tmp_path):
    rows = [
        {"text": "fine", "label": 0},
        {"text": None, "label": 0},
        {"text": 3.5, "label": 1},
        {"text": ["a"], "label": 1},
        {"label": 1},
        {"text": "lone \ud800", "label": 1},
        {"text": "no label", "label": None},
        {"text": "", "label": 1},
        {"text": "x", "label": [1]},
        {"text": True, "label": 1},
    ]
    data = load_data(write(tmp_path / "x.jsonl", rows)).evaluation()
    assert [example.id for example in data] == ["all:0", "all:7"]
    reasons = {row.id: row.reason for row in data.rejected}
    assert list(reasons) == ["all:1", "all:2", "all:3", "all:4", "all:5", "all:6", "all:8", "all:9"]
    assert "line 2: no value for 'text'" in reasons["all:1"]
    assert "'text' holds a number, not a text" in reasons["all:2"]
    assert "a list" in reasons["all:3"]
    assert "no value" in reasons["all:4"]
    assert "surrogate" in reasons["all:5"]
    assert "no label" in reasons["all:6"]
    assert "'label' holds a list" in reasons["all:8"]
    assert "true or false" in reasons["all:9"]


def test_unlabelled_splits(tmp_path):
    write(tmp_path / "train.jsonl", ROWS)
    write(tmp_path / "test.jsonl", [{"text": "x", "label": -1}, {"text": "y", "label": None}])
    splits = load_data(tmp_path)
    assert list(splits) == ["train"]
    with pytest.raises(DataError, match="no row of the test split"):
        load_data(tmp_path, "test")
    with pytest.raises(DataError, match=r"no row of .* has a label"):
        load_data(tmp_path / "test.jsonl")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"x\.parquet needs pyarrow: pip install 'isthmus\[data\]'"):
        load_data(path)


def test_registered_names_are_read_from_their_asset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    folder = tmp_path / "cache" / "somewhere"
    write(folder / "train.jsonl")
    monkeypatch.setattr(assets, "path", lambda name: folder)
    splits = load_data("rotten_tomatoes")
    assert splits.name == splits.train.name == "rotten_tomatoes"


def test_users_folder_of_assets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own" / "sst9" / "test.jsonl")
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path / "own"))
    assert load_data("sst9").name == "sst9"


def test_every_failure_is_one_of_ours(tmp_path):
    for number, content in enumerate([b"\x00\x01", b"{}", b"null\n", b"\n\n", b"a,b", b'"', b"\xff"]):
        for suffix in ("csv", "tsv", "json", "jsonl", "parquet", "csv.gz"):
            path = tmp_path / f"{number}.{suffix}"
            path.write_bytes(content)
            with pytest.raises(IsthmusError):
                load_data(path)
