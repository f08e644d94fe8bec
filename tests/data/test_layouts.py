"""The file layouts in which pairs and questions are usually handed on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import DataError, IsthmusError, UnknownName, UsageError
from isthmus.core.types import Answer, QuestionAnswering
from isthmus.data import load_data
from isthmus.data._questions import QuestionColumns, holds_questions, make_questions
from isthmus.data._tables import Table

CONTEXT = "Paris is the capital of France. Lyon is in France too."
INFERENCE = ("entailment", "neutral", "contradiction")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(identity: Any = "q", answer: str = "Paris", start: Any = 0, **more: Any) -> dict[str, Any]:
    answers = [{"text": answer, "answer_start": start}]
    return {"id": identity, "question": "Where?", "context": CONTEXT, "answers": answers, **more}


def nested(*questions: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


# Questions.


def test_squad_json_and_flat_rows_are_the_same(tmp_path: Path) -> None:
    answers = [{"text": "Paris", "answer_start": 0}, {"text": "Lyon", "answer_start": 32}]
    question = {"id": "a1", "question": "Where?", "answers": answers}
    files = {
        "squad.json": json.dumps(nested(question)),
        "lists.jsonl": json.dumps({**question, "context": CONTEXT}),
        "columns.jsonl": json.dumps(
            {**question, "context": CONTEXT, "answers": {"text": ["Paris", "Lyon"], "answer_start": [0, 32]}}
        ),
        "articles.json": json.dumps(nested(question)["data"]),
        "csv.csv": 'id,question,context,answers\na1,Where?,"{}","{}"\n'.format(
            CONTEXT, json.dumps(answers).replace('"', '""')
        ),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        for path in (tmp_path / name, tmp_path / f"{name}.gz"):
            (example,) = load_data(path, "all", task="qa")
            assert example.id == "a1"
            assert example.fields == {"question": "Where?", "context": CONTEXT}
            assert example.label == (Answer(0, "Paris"), Answer(32, "Lyon"))
    data = load_data(tmp_path / "squad.json", "all", task="qa")
    assert data.task == QuestionAnswering()
    assert data.fingerprint == load_data(tmp_path / "csv.csv.gz", "all", task="qa").fingerprint


def test_a_single_answer_without_a_list(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", [{**row(), "answers": {"text": "Paris", "answer_start": 0}}])
    assert load_data(path, "all", task="qa")[0].label == (Answer(0, "Paris"),)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(row(answer="Berlin"), "does not occur in the context", id="absent"),
        pytest.param(row(answer="France", start=3), "is not at 3, and occurs more than once", id="twice"),
        pytest.param(row(is_impossible=True), "impossible to answer", id="impossible"),
        pytest.param(row() | {"answers": []}, "has no answer", id="no-answer"),
        pytest.param(row() | {"answers": None}, "has no answer", id="null-answers"),
        pytest.param(row() | {"answers": "{"}, "not JSON", id="broken-json"),
        pytest.param(row() | {"answers": [3]}, "no list of", id="numbers"),
        pytest.param(row() | {"answers": {"text": ["a"], "answer_start": []}}, "one answer_start for", id="unequal"),
        pytest.param(row(answer=" "), "not a text", id="blank-answer"),
        pytest.param(row() | {"question": None}, "no value for 'question'", id="no-question"),
        pytest.param(row() | {"context": 5}, "'context' does not hold a text", id="no-context"),
        pytest.param(row() | {"question": "\ud800"}, "surrogate", id="surrogate"),
        pytest.param(row("good"), "its id 'good' was already used in", id="same-id"),
        pytest.param(row() | {"id": [1]}, "neither a text nor a number", id="odd-id"),
    ],
)
def test_unusable_questions_are_counted_with_the_reason(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    data = load_data(write(tmp_path / "q.jsonl", [row("good"), bad, row("last")]), "all", task="qa")
    assert [example.id for example in data] == ["good", "last"]
    (rejected,) = data.rejected
    assert reason in rejected.reason
    assert "q.jsonl, line 2" in rejected.reason
    assert rejected.id == "all:1"


def test_one_unplaceable_answer_puts_the_question_aside(tmp_path: Path) -> None:
    answers = [{"text": "Paris", "answer_start": 0}, {"text": "Berlin", "answer_start": 9}]
    data = load_data(write(tmp_path / "q.jsonl", [row("a"), row("b") | {"answers": answers}]), "all", task="qa")
    assert (len(data), len(data.rejected)) == (1, 1)


@pytest.mark.parametrize("start", [5, -1, 10**9, None, "0", True])
def test_a_wrong_offset_is_repaired_where_the_answer_occurs_once(tmp_path: Path, start: Any) -> None:
    data = load_data(write(tmp_path / "q.jsonl", [row(answer="Lyon", start=start)]), "all", task="qa")
    assert data[0].label == (Answer(32, "Lyon"),)


def test_version_two_of_squad(tmp_path: Path) -> None:
    good = {"id": "a", "question": "?", "answers": [{"text": "Paris", "answer_start": 0}], "is_impossible": False}
    bad = {"id": "b", "question": "?", "answers": [], "plausible_answers": [], "is_impossible": True}
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(nested(good, bad)))
    data = load_data(tmp_path / "dev-v2.0.json", "dev", task="qa")
    assert len(data) == 1
    assert "article 1, paragraph 1, question 2: it is marked as impossible" in data.rejected[0].reason


def test_folders_of_squad_files(tmp_path: Path) -> None:
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        question = {"id": name, "question": "?", "answers": [{"text": "Paris", "answer_start": 0}]}
        (tmp_path / name).write_text(json.dumps(nested(question)))
    splits = load_data(tmp_path, task="qa")
    assert set(splits) == {"train", "dev"}
    assert splits.task == QuestionAnswering()


def test_ids_are_the_files_or_made_up(tmp_path: Path) -> None:
    data = load_data(write(tmp_path / "q.jsonl", [row("a-turk0"), row(None), row(7)]), "all", task="qa")
    assert [example.id for example in data] == ["a-turk0", "all:1", "7"]


def test_other_columns_can_be_named(tmp_path: Path) -> None:
    given = {"query": "?", "passage": CONTEXT, "spans": [{"text": "Paris", "answer_start": 0}]}
    path = write(tmp_path / "q.jsonl", [given])
    data = load_data(path, "all", task="qa", pair=("query", "passage"), label="spans")
    assert data[0].fields == {"question": "?", "context": CONTEXT}
    with pytest.raises(UnknownName, match="Did you mean 'passage'"):
        load_data(path, task="qa", pair=("query", "passages"), label="spans")


def test_a_file_that_does_not_fit_the_task_says_what_was_expected_and_found(tmp_path: Path) -> None:
    labelled = write(tmp_path / "labelled.jsonl", [{"text": "fine", "label": 0}, {"text": "dull", "label": 1}])
    with pytest.raises(
        DataError, match=r"needs the columns question, context and answers.*has the columns text, label"
    ):
        load_data(labelled, task="qa")
    flat = write(tmp_path / "flat.jsonl", [row()])
    (tmp_path / "squad.json").write_text(json.dumps(nested(row())))
    for path in (flat, tmp_path / "squad.json"):
        with pytest.raises(
            DataError, match=r"needs a text or a pair of texts and a label; it holds questions.*--task qa"
        ):
            load_data(path)
    with pytest.raises(UsageError, match="as a pair"):
        load_data(flat, task="qa", text="question")
    with pytest.raises(UsageError, match="leave the labels out"):
        load_data(flat, task="qa", labels=["a", "b"])
    with pytest.raises(UnknownName, match="task"):
        load_data(flat, task="vision")  # type: ignore[call-overload]
    with pytest.raises(DataError, match="no row of hopeless has a question with an answer"):
        load_data(write(tmp_path / "hopeless.jsonl", [row(answer="Berlin")]), task="qa")


@pytest.mark.parametrize(
    "content",
    [
        {"data": [{"paragraphs": 3}]},
        {"data": [{"paragraphs": [{"context": "c"}]}]},
        {"data": [{"paragraphs": [{"context": "c", "qas": ["q"]}]}]},
        {"data": [{"paragraphs": []}]},
        {"data": [3, {"paragraphs": []}]},
        [{"paragraphs": []}, {"data": 4}],
    ],
)
def test_broken_nesting_is_one_of_our_errors(tmp_path: Path, content: Any) -> None:
    (tmp_path / "squad.json").write_text(json.dumps(content))
    with pytest.raises(IsthmusError, match=r"squad\.json"):
        load_data(tmp_path / "squad.json", task="qa")


def test_a_table_without_rows_holds_no_questions() -> None:
    empty = Table("hub/empty", ("id", "question", "context", "answers"), (), str)
    assert len(make_questions(empty, QuestionColumns(), "empty", "test")) == 0
    assert not holds_questions(Table("hub/other", ("text", "label"), (), str))


# Pairs.


def test_snli(tmp_path: Path) -> None:
    rows = [
        {
            "annotator_labels": [label], "captionID": "1", "gold_label": label, "pairID": f"{n}", "sentence1": f"p{n}",
            "sentence1_binary_parse": "( p )", "sentence1_parse": "(ROOT p)", "sentence2": f"h{n}",
            "sentence2_binary_parse": "( h )", "sentence2_parse": "(ROOT h)",
        }
        for n, label in enumerate(["neutral", "-", "entailment", "contradiction"])
    ]  # fmt: skip
    for split in ("train", "dev", "test"):
        write(tmp_path / f"snli_1.0_{split}.jsonl", rows)
    splits = load_data(tmp_path)
    assert list(splits) == ["train", "dev", "test"]
    assert splits.train.labels == INFERENCE
    assert [e.label for e in splits.train] == [1, 0, 2]
    assert splits.train[0].fields == {"sentence1": "p0", "sentence2": "h0"}
    (rejected,) = splits.train.rejected
    assert "line 2: no label: its annotators did not agree" in rejected.reason
    assert load_data(tmp_path / "snli_1.0_dev.jsonl", "dev").rejected


def test_a_hyphen_is_a_label_like_any_other_elsewhere(tmp_path: Path) -> None:
    data = load_data(write(tmp_path / "s.jsonl", [{"text": "a", "label": "-"}, {"text": "b", "label": "+"}]), "all")
    assert set(data.labels) == {"+", "-"}


def test_mnli(tmp_path: Path) -> None:
    header = (
        "index\tpromptID\tpairID\tgenre\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label"
    )
    lines = [header] + [
        f'{n}\t1\t1n\tfiction\t(ROOT "x)\t(ROOT y)\ta "stray quote {n}\th{n}\tneutral\t{label}'
        for n, label in enumerate(["neutral", "entailment", "contradiction"])
    ]
    for name in ("train", "dev_matched"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    unlabelled = "index\tsentence1\tsentence2\n0\ta\tb\n"
    (tmp_path / "test_matched.tsv").write_text(unlabelled)
    splits = load_data(tmp_path)
    assert set(splits) == {"train", "dev_matched"}, "GLUE's tests have no labels"
    assert splits.train.labels == INFERENCE
    assert splits.train[0].fields == {"sentence1": 'a "stray quote 0', "sentence2": "h0"}
    with pytest.raises(UnknownName, match="label"):
        load_data(tmp_path / "test_matched.tsv")
    folder = tmp_path / "jsonl"
    folder.mkdir()
    rows = [{"gold_label": label, "sentence1": "p", "sentence2": "h", "genre": "g"} for label in [*INFERENCE, "-"]]
    for split in ("train", "dev_matched", "dev_mismatched"):
        write(folder / f"multinli_1.0_{split}.jsonl", rows)
    splits = load_data(folder)
    assert set(splits) == {"train", "dev_matched", "dev_mismatched"}
    assert (len(splits.train), len(splits.train.rejected)) == (3, 1)


def test_qnli(tmp_path: Path) -> None:
    labels = ("entailment", "not_entailment")
    lines = [f"{n}\tWho {n}?\tIt was he.\t{label}" for n, label in enumerate(labels)]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(["index\tquestion\tsentence\tlabel", *lines]) + "\n")
    (tmp_path / "test.tsv").write_text("index\tquestion\tsentence\n0\tWho?\tHe.\n")
    splits = load_data(tmp_path)
    assert set(splits) == {"train", "dev"}
    assert splits.train.labels == labels
    assert splits.train.fields == ("question", "sentence")


@pytest.mark.parametrize(
    ("values", "first"),
    [
        pytest.param(["c", "n", "e"], "context", id="letters"),
        pytest.param([2, 1, 0], "premise", id="numbers"),
        pytest.param(["2", "1", "0"], "premise", id="digits"),
        pytest.param(["contradiction", "neutral", "entailment"], "premise", id="names"),
    ],
)
def test_anli(tmp_path: Path, values: list[Any], first: str) -> None:
    rows = [
        {"uid": f"u{n}", first: f"p{n}", "hypothesis": f"h{n}", "label": label, "model_label": "e", "reason": "why"}
        for n, label in enumerate(values)
    ]
    data = load_data(write(tmp_path / "test.jsonl", rows), "test")
    assert data.labels == INFERENCE
    assert [e.label for e in data] == [2, 1, 0]
    assert list(data[0].fields.values()) == ["p0", "h0"]


def test_a_round_with_two_of_the_labels_still_fits(tmp_path: Path) -> None:
    rows = [{"context": "p", "hypothesis": "h", "label": label} for label in "ec"]
    data = load_data(write(tmp_path / "test.jsonl", rows), "test")
    assert [data.labels[int(str(e.label))] for e in data] == ["entailment", "contradiction"]


def test_numbers_of_other_pairs_keep_theirs(tmp_path: Path) -> None:
    rows = [{"question1": "p", "question2": "h", "label": label} for label in (0, 1, 2)]
    assert load_data(write(tmp_path / "x.jsonl", rows), "all").labels == ("0", "1", "2")
    rows = [{"premise": "p", "hypothesis": "h", "label": label} for label in (0, 1)]
    assert load_data(write(tmp_path / "y.jsonl", rows), "all").labels == ("0", "1")


def test_files_that_differ_in_version_only_stay_apart(tmp_path: Path) -> None:
    for name in ("reviews-v1.jsonl", "reviews-v2.jsonl"):
        write(tmp_path / name, [{"text": "a", "label": 0}, {"text": "b", "label": 1}])
    assert set(load_data(tmp_path)) == {"reviews-v1", "reviews-v2"}
