from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.records import read_record

PROMISED = {"n", "sacc", "racc", "asr", "avg_queries", "words_changed", "queries", "wall_s", "cpu_s", "intervals"}


def attack(isthmus: Any, *more: object, model: str = "toy:classify", data: str = "reviews.csv") -> Any:
    return isthmus("attack", model, "--data", data, "--attack", "deepwordbug", "--out", "run", "--json", *more)


def rows(place: Path, key: str = "deepwordbug") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "run/attacks" / f"{key}.jsonl").read_text().splitlines()]


def header(place: Path, key: str = "deepwordbug") -> dict[str, Any]:
    return read_record(place / "run/attacks" / f"{key}.json")


def test_one_json_object_holds_what_is_promised(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 40)
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 1
    figures = ended.json
    assert set(figures) >= PROMISED
    assert figures["n"] == 40 == sum(figures["outcomes"].values()) == len(rows(place))
    assert figures["sacc"] == 1.0
    low, high = figures["intervals"]["racc"]
    assert low <= figures["racc"] <= high
    assert figures["asr"] == pytest.approx(1 - figures["racc"] / figures["sacc"])
    assert figures["queries"] == sum(row["logical_queries"] for row in rows(place))
    assert "deepwordbug" in ended.err


def test_the_table_and_marked_examples_are_printed(isthmus: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = isthmus("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", "30")
    assert ended.code == 0, ended.err
    assert "robust" in ended.out
    assert "What to run next" in ended.out
    edit = next(row for row in rows_in(place / "runs") if row["outcome"] == "succeeded")["edits"][0]
    assert f"[{edit['original']}]" in ended.out
    (folder,) = (place / "runs").iterdir()
    assert folder.name == "toy_classify-reviews"


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]


def test_the_same_command_again_does_nothing_and_says_the_same(isthmus: Any, place: Path) -> None:
    first = attack(isthmus, "--n", 20)
    content = (place / "run/attacks/deepwordbug.jsonl").read_bytes()
    again = attack(isthmus, "--n", 20)
    assert again.code == 0, again.err
    assert (again.json["attacked_now"], again.json["probe_queries"]) == (0, 8)
    assert {**again.json, "attacked_now": 20, "probe_queries": 16} == first.json
    assert (place / "run/attacks/deepwordbug.jsonl").read_bytes() == content


def test_a_smaller_n_is_no_unfinished_run(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--n", 20)
    source = ("toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug")
    fewer = isthmus("attack", *source, "--out", "run", "--n", 5)
    assert "5 read back" in fewer.out, fewer.err
    assert "not finished" not in fewer.out
    assert len(rows(place)) == 20


def test_a_larger_n_continues_and_equals_a_fresh_run(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--n", 10)
    grown = attack(isthmus, "--n", 50)
    assert grown.json["attacked_now"] == 40
    fresh = isthmus(
        "attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 50, "--out", "fresh"
    )
    assert fresh.code == 0
    one, other = (place / name / "attacks/deepwordbug.jsonl" for name in ("run", "fresh"))
    assert one.read_bytes() == other.read_bytes()
    smaller = attack(isthmus, "--n", 10)
    assert smaller.json["n"] == 10
    assert len(rows(place)) == 50


@pytest.mark.parametrize("keep", [0, 1, 17])
def test_a_cut_journal_is_completed_to_the_same_file(isthmus: Any, place: Path, keep: int) -> None:
    attack(isthmus, "--n", 30)
    path = place / "run/attacks/deepwordbug.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    # As a kill leaves it: some rows in any order, the last one torn.
    path.write_bytes(b"".join(reversed(lines[:keep])) + lines[keep][:25])
    head = header(place)
    head.pop("summary")
    (place / "run/attacks/deepwordbug.json").write_text(json.dumps(head))
    again = attack(isthmus, "--n", 30, "--in-flight", 3)
    assert again.json["attacked_now"] == 30 - keep
    assert path.read_bytes() == whole


def test_other_settings_get_their_own_file(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--n", 10)
    attack(isthmus, "--n", 10, "-P", "semantics=paper")
    attack(isthmus, "--n", 10, "--seed", 1)
    attack(isthmus, "--n", 10, "--in-flight", 2)
    names = sorted(path.name for path in (place / "run/attacks").glob("*.jsonl"))
    assert len(names) == 3
    assert names[0] == "deepwordbug.jsonl"
    for name in names[1:]:
        code = name.removeprefix("deepwordbug@").removesuffix(".jsonl")
        assert json.loads((place / "run/attacks" / f"deepwordbug@{code}.json").read_text())["hash"] == code


def test_the_header_says_where_the_rows_come_from(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--n", 10, "--seed", 3)
    head = header(place)
    assert head["settings"]["seed"] == 3
    assert head["settings"]["parameters"]["semantics"] == "textattack"
    assert head["data"]["split"]
    assert len(head["data"]["fingerprint"]) == 16
    assert head["versions"]["isthmus"]
    assert head["command"].startswith("isthmus attack toy:classify")
    record = json.loads((place / "run/run.json").read_text())
    assert record["model"]["spec"] == "toy:classify"
    assert record["schema"] == 1


def test_swapped_labels_stop_the_attack_and_the_remedy_works(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 30, model="toy:swapped")
    assert ended.code == 2
    assert "no better than chance" in ended.err
    remedy = ended.err.strip().rsplit("--labels ", 1)[1]
    assert remedy == "positive,negative"
    mended = attack(isthmus, "--n", 30, "--labels", remedy, model="toy:swapped")
    assert mended.code == 0, mended.err
    assert mended.json["sacc"] == 1.0
    assert [path.name for path in (place / "run/attacks").glob("*.jsonl")] == ["deepwordbug.jsonl"]
    forced = attack(isthmus, "--n", 30, "--no-label-check", "--out", "forced", model="toy:swapped")
    assert forced.json["sacc"] == 0.0


def test_a_text_the_model_cannot_read_is_an_error_row(isthmus: Any, place: Path) -> None:
    lines = (place / "reviews.csv").read_text().splitlines()
    lines[5] = "a boom and bad film,negative"
    (place / "reviews.csv").write_text("\n".join(lines) + "\n")
    ended = attack(isthmus, "--n", 60)
    assert ended.code == 0, ended.err
    assert ended.json["outcomes"]["error"] == 1
    (bad,) = [row for row in rows(place) if row["outcome"] == "error"]
    assert "cannot read this" in bad["reason"]
    assert ended.json["n"] == 60
    lines[5] = "a bad film,negative"
    retried = attack(isthmus, "--n", 60, "--retry-errors")
    assert retried.json["attacked_now"] == 1


def test_rows_without_a_text_become_error_rows(isthmus: Any, place: Path) -> None:
    good = [{"text": f"a good film {i}", "label": "positive"} for i in range(10)]
    bad = [{"text": f"a bad film {i}", "label": "negative"} for i in range(10)]
    odd = [{"text": None, "label": "negative"}, {"text": 7, "label": "positive"}]
    (place / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in good + bad + odd))
    ended = attack(isthmus, "--n", 0, data="odd.jsonl")
    assert ended.code == 0, ended.err
    assert ended.json["n"] == 22
    assert ended.json["outcomes"]["error"] == 2
    assert all(row["reason"] for row in rows(place) if row["outcome"] == "error")
    assert isthmus("report", "run").code == 0


def test_odd_texts_get_a_result_each(isthmus: Any, place: Path) -> None:
    texts = ["", "good", "?!...", "good 🙂🙂 film", "فيلم good جيد", "good " * 3000]
    others = [f"a bad film {i}" for i in range(6)]
    lines = [{"text": text, "label": "positive"} for text in texts]
    lines += [{"text": text, "label": "negative"} for text in others]
    (place / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ended = attack(isthmus, "--n", 0, "--budget", 200, data="odd.jsonl")
    assert ended.code == 0, ended.err
    assert ended.json["n"] == 12
    assert ended.json["outcomes"]["error"] == 0
    assert isthmus("report", "run").code == 0


@pytest.mark.parametrize("name", ["not_a_number", "wrong_shape"])
def test_a_broken_model_is_an_error_and_never_robust(isthmus: Any, place: Path, name: str) -> None:
    ended = attack(isthmus, "--n", 20, model=f"toy:{name}")
    assert ended.code == 2
    assert "Traceback" not in ended.err
    message = ended.err.strip().splitlines()[-1]
    assert "NaN" in message or "shape" in message
    if ended.out:
        assert ended.json["racc"] == 0.0
        assert ended.json["outcomes"]["error"] == 20


def test_evasion_gives_the_detectors_rates(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 20, "--from-label", "negative", "--threshold", "0.6")
    assert ended.code == 0, ended.err
    found = ended.json["detection"]
    assert found["threshold"] == 0.6
    assert found["negatives"] == 30
    assert found["tpr_after"]["estimate"] < found["tpr_before"]["estimate"]
    assert found["auc_after"] <= found["auc_before"]
    assert {row["label"] for row in rows(place)} == {0}
    assert ended.json["n"] == 20
    page = isthmus("report", "run")
    assert page.code == 0
    assert "Evasion of negative" in (place / "run/report.html").read_text()


def test_a_threshold_is_chosen_on_clean_development_data(isthmus: Any, place: Path) -> None:
    (place / "data").mkdir()
    text = (place / "reviews.csv").read_text()
    for split in ("dev", "test"):
        (place / "data" / f"{split}.csv").write_text(text)
    ended = attack(isthmus, "--n", 20, "--from-label", "negative", "--at-fpr", "0.1", data="data")
    assert ended.code == 0, ended.err
    found = ended.json["detection"]
    assert found["at_fpr"] == 0.1
    assert found["fpr"]["estimate"] <= 0.1
    missing = attack(isthmus, "--from-label", "negative", "--at-fpr", "0.1", "--out", "other")
    assert missing.code == 2
    assert "--threshold" in missing.err


def test_a_target_and_protected_words(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 30, "--target-label", "positive", "--protect-pattern", r"\b(bad|good|film)\b")
    assert ended.code == 0, ended.err
    for row in rows(place):
        assert not {"bad", "good", "film"} & {edit["original"] for edit in row["edits"]}
        if row["outcome"] == "succeeded":
            assert row["prediction_after"] == 1
    wrong = attack(isthmus, "--target-label", "positiv", "--out", "x")
    assert wrong.code == 2
    assert "Did you mean 'positive'?" in wrong.err
    column = attack(isthmus, "--protect", "premise", "--out", "x")
    assert column.code == 2
    assert "no column named 'premise'" in column.err


@pytest.mark.parametrize("protected", [(), ("--protect", "hypothesis")])
def test_of_a_pair_the_premise_stays(isthmus: Any, place: Path, protected: tuple[str, ...]) -> None:
    lines = ["premise,hypothesis,label"]
    for number in range(40):
        word, label = ("good", "yes") if number % 2 else ("bad", "no")
        lines.append(f"the {word} premise of {number},a {word} film,{label}")
    (place / "pairs.csv").write_text("\n".join(lines))
    ended = attack(isthmus, "--pair", "premise,hypothesis", *protected, model="toy:entails", data="pairs.csv")
    assert ended.code == 0, ended.err
    kept = "hypothesis" if protected else "premise"
    for row in rows(place):
        assert list(row["original"]) == ["premise", "hypothesis"]
        assert row["perturbed"] is None or row["perturbed"][kept] == row["original"][kept]
    assert (ended.json["asr"] > 0) == (not protected)
    assert isthmus("report", "run").code == 0


@pytest.mark.parametrize(("bar", "code"), [("racc=0.0", 0), ("racc=0.99", 1), ("sacc=0.98", 3)])
def test_the_bar_decides_the_exit_code(isthmus: Any, place: Path, bar: str, code: int) -> None:
    ended = attack(isthmus, "--n", 40, "--fail-under", bar)
    assert ended.code == code, ended.err
    assert ended.json["gate"]["exit_code"] == code


def test_two_attacks_are_also_judged_together(isthmus: Any, place: Path) -> None:
    ended = isthmus(
        "attack", "toy:classify", "--data", "reviews.csv", "--n", "20", "--json", "--out", "run",
        "--attack", "deepwordbug,DeepWordBug", "-P", "deepwordbug.max_edit_distance=5",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert list(ended.json["attacks"]) == ["deepwordbug"]
    assert header(place)["settings"]["parameters"]["max_edit_distance"] == 5
    wrong = attack(isthmus, "-P", "semantic=paper")
    assert wrong.code == 2
    assert "Did you mean 'semantics'?" in wrong.err


def test_other_data_does_not_enter_a_folder(isthmus: Any, place: Path) -> None:
    attack(isthmus, "--n", 10)
    (place / "more.csv").write_text((place / "reviews.csv").read_text())
    ended = attack(isthmus, "--n", 10, data="more.csv")
    assert ended.code == 2
    assert "--out" in ended.err


def test_an_unwritable_folder_is_found_before_the_model_is_loaded(isthmus: Any, place: Path) -> None:
    (place / "file").write_text("")
    (place / "toy.py").unlink()
    ended = attack(isthmus, "--out", "file/run")
    assert ended.code == 2
    assert "cannot write" in ended.err


def test_quiet_says_nothing_but_the_object(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 10, "--quiet")
    assert ended.err == ""
    assert len(ended.out.splitlines()) == 1


def test_a_header_is_sent_and_never_written_down(isthmus: Any, place: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    import toy

    seen: list[str | None] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers.get("Authorization"))
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            body = json.dumps({"scores": toy.classify(texts)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Service)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/classify?key=secret"
    ended = attack(isthmus, "--n", 6, "--header", "Authorization: Bearer secret", "-V", "batch_size=8", model=address)
    server.shutdown()
    server.server_close()
    assert ended.code == 0, ended.err
    assert set(seen) == {"Bearer secret"}
    written = "".join(path.read_text() for path in (place / "run").rglob("*") if path.is_file())
    assert "secret" not in written
    assert f"127.0.0.1:{server.server_port}/classify" in written


def test_an_unknown_option_of_the_victim_is_named(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "-V", "batchsize=8")
    assert ended.code == 2
    assert "batchsize" in ended.err


def test_results_are_exported_with_the_attack_or_afterwards(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--n", 20, "--export", "results.csv")
    assert ended.code == 0, ended.err
    assert "results.csv: 20 rows" in ended.err
    later = isthmus("export", "run", "later.csv", "--attack", "deepwordbug", "--json")
    assert later.json == {"file": "later.csv", "format": "textattack-csv", "rows": 20, "attacks": ["deepwordbug"]}
    assert (place / "later.csv").read_bytes() == (place / "results.csv").read_bytes()
    assert isthmus("export", "run", "adversarial.jsonl").code == 0
    # What fooled the model is data like any other: on it the model is never right.
    more = ("--no-label-check", "--labels", "negative,positive")
    again = attack(isthmus, "--n", 0, "--out", "again", *more, data="adversarial.jsonl")
    assert again.code == 0, again.err
    assert again.json["sacc"] == 0.0
    assert again.json["n"] == ended.json["outcomes"]["succeeded"]


def test_an_export_that_cannot_be_written_is_refused_first(isthmus: Any, place: Path) -> None:
    ended = attack(isthmus, "--export", "results.xlsx")
    assert ended.code == 2
    assert ".csv or .jsonl" in ended.err
    assert not (place / "run").exists()
    attack(isthmus, "--n", 5)
    wrong = isthmus("export", "run", "x.csv", "--attack", "deepwordbugs")
    assert wrong.code == 2
    assert "Did you mean 'deepwordbug'?" in wrong.err


def test_links_and_numbers_are_protected_by_kind(isthmus: Any, place: Path) -> None:
    head, *reviews = (place / "reviews.csv").read_text().splitlines()
    payload = "see www.good.example or call 0800 123 4567"
    (place / "linked.csv").write_text("\n".join([head, *(f"{payload} {review}" for review in reviews)]))
    for kinds, kept in (((), False), (("--protect-kind", "url,phone"), True)):
        ended = attack(
            isthmus, "--n", 20, "--out", f"linked{kept}", "-P", "deepwordbug.semantics=paper", *kinds, data="linked.csv"
        )
        assert ended.code == 0, ended.err
        changed = [row["perturbed"]["text"] for row in rows_in(place / f"linked{kept}/attacks") if row["edits"]]
        assert changed
        assert all("www.good.example" in text and "0800 123 4567" in text for text in changed) is kept
    wrong = attack(isthmus, "--protect-kind", "urls", "--out", "x")
    assert wrong.code == 2
    assert "Did you mean 'url'?" in wrong.err
