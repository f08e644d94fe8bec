"""`isthmus evaluate` from the command line: sets of every kind, gates, resumption, and what is wrong with a command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.records import read_record, write_record

NAMES = ("--labels", "negative,positive")


def evaluate(isthmus: Any, *more: object, model: str = "toy:classify", on: str | None = "reviews.csv") -> Any:
    sets = () if on is None else ("--on", on)
    return isthmus("evaluate", model, *sets, "--out", "run", "--json", *more)


def rows(place: Path, key: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "run/evaluations" / f"{key}.jsonl").read_text().splitlines()]


def write(path: Path, lines: list[dict[str, object]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def attacked(isthmus: Any, place: Path) -> Path:
    """Rows of an attack on the toy, and both exports of it."""
    ended = isthmus(
        "attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 40, "--out", "first",
        "--export", "adv.jsonl", *NAMES,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert isthmus("export", "first", "adv.csv").code == 0
    return place


def test_one_json_object_holds_the_figures(isthmus: Any, place: Path) -> None:
    ended = evaluate(isthmus)
    assert ended.code == 0, ended.err
    figures = ended.json
    assert (figures["n"], figures["errors"], figures["accuracy"], figures["asked_now"]) == (60, 0, 1.0, 60)
    assert figures["intervals"]["accuracy"] == [pytest.approx(0.939828), 1.0]
    assert set(figures["evaluations"]) == {"reviews"}
    assert [row["outcome"] for row in rows(place, "reviews")] == ["right"] * 60
    assert [each["label"] for each in figures["ways"]["model"]["classes"]] == ["negative", "positive"]
    assert "accuracy" in ended.err  # the table
    assert "calibra" in ended.err


def test_the_same_command_again_asks_the_model_for_its_probes_only(isthmus: Any, place: Path) -> None:
    first = evaluate(isthmus)
    content = (place / "run/evaluations/reviews.jsonl").read_bytes()
    again = evaluate(isthmus)
    assert again.code == 0, again.err
    assert (again.json["asked_now"], again.json["probe_queries"]) == (0, 8)
    assert {**again.json, "asked_now": 60, "probe_queries": 16} == first.json
    assert (place / "run/evaluations/reviews.jsonl").read_bytes() == content


def test_a_sample_is_continued_and_ends_with_the_same_file(isthmus: Any, place: Path) -> None:
    small = evaluate(isthmus, "--n", 20)
    assert small.json["n"] == small.json["asked_now"] == 20
    whole = evaluate(isthmus)
    assert (whole.json["n"], whole.json["asked_now"]) == (60, 40)
    evaluate(isthmus, "--out", "fresh")
    one, other = (place / name / "evaluations/reviews.jsonl" for name in ("run", "fresh"))
    assert one.read_bytes() == other.read_bytes()
    assert evaluate(isthmus, "--n", 20).json == {**small.json, "asked_now": 0, "probe_queries": 8}


def test_a_torn_file_is_continued(isthmus: Any, place: Path) -> None:
    """What a kill leaves: some whole rows, half a row, and a header without figures."""
    evaluate(isthmus)
    file, header = place / "run/evaluations/reviews.jsonl", place / "run/evaluations/reviews.json"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    known = read_record(header)
    write_record(header, {key: value for key, value in known.items() if key != "summary"})
    again = evaluate(isthmus)
    assert 0 < again.json["asked_now"] < 60
    assert file.read_bytes() == whole
    assert json.loads(header.read_text())["summary"] == known["summary"]


def test_other_settings_get_a_name_of_their_own(isthmus: Any, place: Path) -> None:
    evaluate(isthmus)
    evaluate(isthmus, "--seed", 1)
    (place / "reviews.csv").write_text("text,label\ngood,positive\nbad,negative\n")
    other = evaluate(isthmus)
    names = sorted(path.stem for path in (place / "run/evaluations").glob("*.json"))
    assert names[0] == "reviews"
    assert len(names) == 3
    assert all(name.startswith("reviews@") for name in names[1:])
    assert other.json["n"] == 2


@pytest.mark.parametrize("file", ["adv.jsonl", "adv.csv", "first/attacks/deepwordbug.jsonl"])
def test_an_attack_made_on_one_model_is_put_to_another(isthmus: Any, attacked: Path, file: str) -> None:
    """Table 3 of InfoBERT: the successes, and the same originals beside them, whatever file they lie in."""
    journal = [json.loads(line) for line in (attacked / "first/attacks/deepwordbug.jsonl").read_text().splitlines()]
    won = [row for row in journal if row["outcome"] == "succeeded"]
    same = evaluate(isthmus, *NAMES, on=file)
    assert same.code == 0, same.err
    # On the model it was made on nothing is left, by definition of a success.
    assert (same.json["n"], same.json["accuracy"]) == (len(won), 0.0)
    assert same.json["original"]["ways"]["model"]["accuracy"]["estimate"] == 1.0
    assert same.json["difference"]["model"]["lost"] == len(won)
    (key,) = same.json["evaluations"]
    texts = [(row["texts"], row["original"]["texts"], row["label"]) for row in rows(attacked, key)]
    assert texts == [(row["perturbed"], row["original"], row["label"]) for row in won]


def test_all_that_was_attempted(isthmus: Any, attacked: Path) -> None:
    journal = [json.loads(line) for line in (attacked / "first/attacks/deepwordbug.jsonl").read_text().splitlines()]
    tried = [row for row in journal if row["outcome"] in ("succeeded", "failed")]
    robust = sum(row["outcome"] == "failed" for row in tried)
    for number, file in enumerate(("adv.csv", "first/attacks/deepwordbug.jsonl")):
        found = evaluate(isthmus, *NAMES, "--rows", "all", "--out", f"run{number}", on=file)
        assert found.json["n"] == len(tried)
        assert found.json["accuracy"] == pytest.approx(robust / len(tried), abs=1e-6)
    refused = evaluate(isthmus, "--rows", "all", on="adv.jsonl")
    assert refused.code == 2
    assert "holds the successes of an attack only" in refused.err
    unknown = evaluate(isthmus, "--rows", "some", on="adv.jsonl")
    assert "no kind of rows named 'some'" in unknown.err


def test_successes_and_all_do_not_share_a_file(isthmus: Any, attacked: Path) -> None:
    evaluate(isthmus, *NAMES, on="adv.csv")
    evaluate(isthmus, *NAMES, "--rows", "all", on="adv.csv")
    assert len(list((attacked / "run/evaluations").glob("adv*.json"))) == 2


def test_several_sets_at_once(isthmus: Any, attacked: Path) -> None:
    found = isthmus(
        "evaluate", "toy:classify", "--on", "reviews.csv", "--on", "adv.jsonl", "--on", "adv.csv", "--out", "run",
        "--json", *NAMES,
    )  # fmt: skip
    assert found.code == 0, found.err
    assert list(found.json["evaluations"]) == ["reviews", "adv", "adv-2"]
    assert found.json["evaluations"]["adv"]["accuracy"] == found.json["evaluations"]["adv-2"]["accuracy"]


def test_splits_of_a_folder(isthmus: Any, place: Path) -> None:
    """The shape of ANLI: no test, no dev, one file per round, names in meta.json."""
    for number in (1, 2, 3):
        write(
            place / f"rounds/dev_r{number}.jsonl", [{"text": "good", "label": 1}, {"text": "bad", "label": 0}] * number
        )
    (place / "rounds/meta.json").write_text(json.dumps({"labels": ["negative", "positive"]}))
    nothing = evaluate(isthmus, on="rounds")
    assert nothing.code == 2
    assert "--split dev_r1,dev_r2,dev_r3 or all" in nothing.err
    unknown = evaluate(isthmus, "--split", "dev_r4", on="rounds")
    assert unknown.code == 2
    assert "no split in rounds named 'dev_r4'. Did you mean 'dev_r" in unknown.err
    some = evaluate(isthmus, "--split", "dev_r1,dev_r3", on="rounds")
    assert {key: each["n"] for key, each in some.json["evaluations"].items()} == {
        "rounds-dev_r1": 2,
        "rounds-dev_r3": 6,
    }
    # Taken together, as papers do with ANLI: 8 texts, not the mean of two rates.
    assert some.json["pooled"]["rounds"]["n"] == 8
    assert some.json["pooled"]["rounds"]["accuracy"]["estimate"] == 1.0
    assert "rounds, dev_r1, dev_r3 together: 100.0 %" in " ".join(some.err.split())
    every = evaluate(isthmus, "--split", "all", on="rounds")
    assert list(every.json["evaluations"]) == ["rounds-dev_r1", "rounds-dev_r2", "rounds-dev_r3"]


def test_files_with_originals_beside_are_compared_in_pairs(isthmus: Any, place: Path) -> None:
    lines: list[dict[str, object]] = [
        {"text": f"a fnie film {n}", "label": "positive", "original_text": f"a {'fine' if n % 4 else 'bad'} film {n}"}
        for n in range(20)
    ]
    lines += [{"text": f"an awful film {n}", "label": "negative"} for n in range(10)]
    write(place / "paired.jsonl", lines)
    found = evaluate(isthmus, on="paired.jsonl").json
    assert (found["n"], found["original"]["n"]) == (30, 20)
    assert found["difference"]["model"]["n"] == 20
    # The toy reads an unknown word as slightly positive: nothing is lost, and what only the original got wrong is won.
    assert (found["difference"]["model"]["lost"], found["difference"]["model"]["won"]) == (0, 5)


def test_texts_without_an_answer_are_neither_right_nor_wrong(isthmus: Any, place: Path) -> None:
    lines = [{"text": "good", "label": "positive"}, {"text": "bad", "label": "negative"}] * 30
    lines += [{"text": f"boom {n}", "label": "negative"} for n in range(10)]
    write(place / "hard.jsonl", [*lines, {"text": None, "label": "negative"}])  # type: ignore[list-item]
    found = evaluate(isthmus, on="hard.jsonl")
    assert found.code == 0, found.err
    assert (found.json["n"], found.json["answered"], found.json["errors"]) == (71, 60, 11)
    assert found.json["accuracy"] == 1.0
    reasons = {each["reason"]: each["count"] for each in found.json["reasons"]}
    assert sorted(reasons.values()) == [1, 10]
    assert "11 of 71 examples had no answer" in found.err
    # A bar that is reached only without them is not reached.
    gated = evaluate(isthmus, "--fail-under", "accuracy=0.9", on="hard.jsonl")
    assert gated.code == 3
    assert "passes only if the 11 texts without an answer" in gated.err
    again = evaluate(isthmus, "--retry-errors", on="hard.jsonl")
    assert again.json["asked_now"] == 11


@pytest.mark.parametrize(
    ("bar", "code"), [("accuracy=0.9", 0), ("accuracy=0.96", 3), ("accuracy=0.2,", 2), ("racc=0.9", 2)]
)
def test_gates(isthmus: Any, place: Path, bar: str, code: int) -> None:
    assert evaluate(isthmus, "--fail-under", bar).code == code


def test_a_gate_that_is_missed(isthmus: Any, place: Path) -> None:
    ended = evaluate(isthmus, "--fail-under", "accuracy=0.5", "--no-label-check", model="toy:swapped")
    assert ended.code == 1
    assert ended.json["gate"] == {"bar": {"accuracy": 0.5}, "exit_code": 1}
    assert "below the minimum" in ended.err


def test_a_set_answered_worse_than_by_chance_is_a_result_with_a_warning(isthmus: Any, place: Path) -> None:
    ended = evaluate(isthmus, *NAMES, model="toy:swapped")
    assert ended.code == 0, ended.err
    assert ended.json["accuracy"] == 0.0
    assert "--labels positive,negative" in ended.json["suspicion"]
    mended = evaluate(isthmus, "--labels", "positive,negative", model="toy:swapped")
    assert mended.json["accuracy"] == 1.0
    assert mended.json["suspicion"] is None


def test_originals_answered_worse_than_by_chance_stop_it(isthmus: Any, attacked: Path) -> None:
    """The adversarial texts may be answered as badly as they like, their originals may not."""
    stopped = evaluate(isthmus, *NAMES, model="toy:swapped", on="adv.csv")
    assert stopped.code == 2
    assert "--labels 1,0" in stopped.err or "--labels positive,negative" in stopped.err
    forced = evaluate(isthmus, *NAMES, "--no-label-check", model="toy:swapped", on="adv.csv")
    assert forced.code == 0


def test_a_csv_of_another_numbering_is_mended_by_naming_the_outputs(isthmus: Any, attacked: Path) -> None:
    plain = evaluate(isthmus, "--labels", "0,1", on="adv.csv")
    swapped = evaluate(isthmus, "--labels", "1,0", "--out", "other", model="toy:swapped", on="adv.csv")
    assert swapped.json["accuracy"] == plain.json["accuracy"]
    assert swapped.json["original"]["ways"]["model"]["accuracy"] == plain.json["original"]["ways"]["model"]["accuracy"]


def test_label_order_does_not_matter_where_names_are_known(isthmus: Any, place: Path) -> None:
    lines = [{"text": f"good {n}", "label": 0} for n in range(8)] + [{"text": f"bad {n}", "label": 1} for n in range(8)]
    write(place / "turned/test.jsonl", lines)  # type: ignore[arg-type]
    (place / "turned/meta.json").write_text(json.dumps({"labels": ["positive", "negative"]}))
    found = evaluate(isthmus, *NAMES, on="turned")
    assert found.json["accuracy"] == 1.0
    assert {row["label"] for row in rows(place, "turned-test")} == {0, 1}
    assert rows(place, "turned-test")[0]["label"] == 1


def test_pairs(isthmus: Any, place: Path) -> None:
    with (place / "pairs.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["premise", "hypothesis", "label"])
        writer.writerows([["it is bad", "it is good", "1"], ["it is good", "it is bad", "0"]] * 12)
    found = evaluate(isthmus, model="toy:entails", on="pairs.csv")
    assert found.code == 0, found.err
    assert found.json["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "reviews.csv", "--text", "body"), "no column in reviews.csv named 'body'"),
        (("--on", "reviews.csv", "--label", "stars"), "no column in reviews.csv named 'stars'"),
        (("--on", "reviews.csv", "--split", "test"), "no split in reviews named 'test'"),
        (("--on", "missing.csv"), "no file or folder missing.csv"),
        (("--on", "empty.jsonl"), "empty.jsonl is empty"),
        ((), "pass the data to evaluate on with --on"),
        (("--on", "reviews.csv", "--n", "-1"), "--n is the number of examples"),
        (("--on", "reviews.csv", "--draws", "0"), "--draws is the number of draws"),
        (("--on", "reviews.csv", "-V", "latent=mean"), "--draws sets the number of draws"),
        (("--on", "reviews.csv", "--labels", "sunny,cloudy"), "pass --labels: dataset label names"),
        (("--on", "reviews.csv", "--precision", "fp16"), "--precision is fp32 or bf16"),
    ],
    ids=["text", "label", "split", "file", "empty", "nothing", "n", "draws", "latent", "labels", "precision"],
)
def test_what_is_wrong_is_said(isthmus: Any, place: Path, arguments: tuple[str, ...], said: str) -> None:
    (place / "empty.jsonl").write_text("")
    ended = isthmus("evaluate", "toy:classify", *arguments, "--out", "run")
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert not (place / "run/evaluations/reviews.json").exists()


def test_an_attack_without_successes(isthmus: Any, attacked: Path) -> None:
    rows_of = attacked / "first/attacks/deepwordbug.jsonl"
    kept = [line for line in rows_of.read_text().splitlines() if '"succeeded"' not in line]
    (attacked / "none.jsonl").write_text("\n".join(kept) + "\n")
    ended = evaluate(isthmus, on="none.jsonl")
    assert ended.code == 2
    assert "--rows all also takes" in ended.err
    folder = evaluate(isthmus, on="first")
    assert "first/attacks/deepwordbug.jsonl" in folder.err


def test_a_folder_holds_one_model(isthmus: Any, place: Path) -> None:
    evaluate(isthmus)
    other = evaluate(isthmus, "--labels", "positive,negative", model="toy:swapped")
    assert other.code == 2
    assert "holds another model (toy:classify)" in other.err


def test_a_model_that_answers_nothing_is_an_error(isthmus: Any, place: Path) -> None:
    ended = evaluate(isthmus, *NAMES, model="toy:not_a_number")
    assert ended.code == 2
    assert "no example had an answer" in ended.err


def test_the_report_shows_evaluations(isthmus: Any, attacked: Path) -> None:
    evaluate(isthmus, *NAMES, on="adv.jsonl")
    ended = isthmus("report", "run", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["evaluations"]["adv"]["accuracy"] == 0.0
    page = (attacked / "run/report.html").read_text()
    assert "Evaluations" in page
    assert "the originals" in page
    assert "Reliability diagrams" in page


def test_services_and_functions_are_timed_only_where_that_is_asked_for(isthmus: Any, place: Path) -> None:
    assert evaluate(isthmus).json["speed"] is None
    timed = evaluate(isthmus, "--latency", "12", "--price-per-hour", "1.5")
    assert timed.json["asked_now"] == 0
    assert timed.json["speed"]["single_texts"] == 12
    assert timed.json["speed"]["cost_per_1000"] > 0
    assert "per s" in timed.err
    isthmus("report", "run")
    assert 'id="speed"' in (place / "run/report.html").read_text()
    assert evaluate(isthmus, "--price-per-hour", "-1").code == 2


def test_a_transformers_folder_reads_single_texts_and_pairs(isthmus: Any, place: Path) -> None:
    """Its own files do not say how many texts it reads, so the set decides."""
    import training_toys as toys
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=len(toys.tokenizer()), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained("stock")
    toys.tokenizer().save_pretrained("stock")
    write(place / "mixed/dev_single.jsonl", [{"text": "a film", "label": "good"}, {"text": "the plot", "label": "bad"}])
    pairs = [{"premise": "a film", "hypothesis": "the plot", "label": label} for label in ("good", "bad")]
    write(place / "mixed/dev_pairs.jsonl", pairs)  # type: ignore[arg-type]
    found = isthmus("evaluate", "stock", "--on", "mixed", "--split", "all", "--out", "run", "--json", "--device", "cpu")
    assert found.code == 0, found.err
    assert {key: each["answered"] for key, each in found.json["evaluations"].items()} == {
        "mixed-dev_pairs": 2, "mixed-dev_single": 2,
    }  # fmt: skip
    # A model of our own says what it reads.
    toys.classifier().save(place / "own")
    refused = isthmus("evaluate", "own", "--on", "mixed", "--split", "dev_pairs", "--out", "other", "--device", "cpu")
    assert refused.code == 2
    assert "has 2 text fields (premise, hypothesis), the model reads 1 (text)" in refused.err
    # Of two things that do not fit the columns are said first: other columns have other labels.
    other = [{"premise": "a film", "hypothesis": "the plot", "label": label} for label in ("entailment", "neutral")]
    write(place / "nli/test.jsonl", other)  # type: ignore[arg-type]
    refused = isthmus("evaluate", "own", "--on", "nli", "--out", "other", "--device", "cpu")
    assert "has 2 text fields" in refused.err
