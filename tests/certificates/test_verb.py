"""`isthmus certify` from end to end on tiny networks: rows, resuming, attacks held against it, gates, bad input."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certify_toys as toys
import pytest

from isthmus.cli.app import run as run_command
from isthmus.core.lines import seal_row
from isthmus.defences import SAFER
from isthmus.models import wrap
from isthmus.report.certificate.view import certificates
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder
from isthmus.runs.journal import read_rows

PARTS = (
    ["the film was", "the plot and movie was", "very"],
    ["fine", "dull", "good", "flat"],
    ["", "and boring", "and great"],
)
SENTENCES = [f"{a} {b} {c}" for a, b, c in itertools.product(*PARTS)]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out.strip().splitlines()[-1])


@pytest.fixture
def isthmus(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")

    def command(*arguments: object) -> Ended:
        given = [str(argument) for argument in arguments]
        monkeypatch.setattr(sys, "argv", ["isthmus", *given])
        capsys.readouterr()
        code = run_command(given)
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return command


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network, its data, labelled as it answers (but for two rows), and a synonym table."""
    monkeypatch.chdir(tmp_path)
    model = toys.network("cnn", 4, 0.6)
    model.save(tmp_path / "cnn")
    toys.table(most=3).write(tmp_path / "table.json")
    SAFER(table=str(tmp_path / "table.json"), draws=9).prepare(model, ())
    model.save(tmp_path / "smoothed")
    model.deployment = None
    answers = wrap(model, device="cpu").scores([{"text": text} for text in SENTENCES]).argmax(axis=1)
    assert 0.1 < answers.mean() < 0.9
    lines = [
        f"{text},{toys.TASK.labels[int(a) ^ (n in (3, 8))]}"
        for n, (text, a) in enumerate(zip(SENTENCES, answers, strict=True))
    ]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return tmp_path


def certify(isthmus, model: str, certificate: str, *more: object) -> Ended:
    return isthmus("certify", model, "--data", "data.csv", "--certificate", certificate, "--device", "cpu", "--out",
                   f"out-{model}", "-q", "--json", *more)  # fmt: skip


QUICK = {
    "gaussian": ("-P", "n=60", "-P", "n0=20", "-P", "sigma=0.4", "-P", "table=table.json"),
    "synonym": ("-P", "n=60", "-P", "n0=20", "-P", "table=table.json"),
    "exact": ("-P", "table=table.json"),
}


def test_what_is_read_back_is_said_aloud(isthmus, place):
    certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 4)
    again = isthmus(
        "certify", "cnn", "--data", "data.csv", "--certificate", "exact", *QUICK["exact"], "--n", 4, "--out", "out-cnn"
    )
    assert again.code == 0, again.err
    assert "0 certified now, 4 read back" in again.out


def test_a_smaller_n_leaves_nothing_missing(isthmus, place):
    certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 8)
    source = ("cnn", "--data", "data.csv", "--certificate", "exact", *QUICK["exact"])
    fewer = isthmus("certify", *source, "--n", 4, "--out", "out-cnn")
    assert "0 certified now, 4 read back" in fewer.out, fewer.err
    assert "no rows yet" not in fewer.out


@pytest.mark.parametrize("name", list(QUICK))
def test_rows_statement_and_rates(isthmus, place, name):
    ended = certify(isthmus, "cnn", name, *QUICK[name], "--n", 20)
    assert ended.code == 0, ended.err
    found = ended.json
    rows = [json.loads(line) for line in (place / f"out-cnn/certificates/{name}.jsonl").read_text().splitlines()]
    assert len(rows) == found["n"] == sum(found["outcomes"].values()) == found["certified_now"] == 20
    assert set(found["statement"]) == {"classifier", "threat_model", "probability", "assumptions"}
    header = json.loads((place / f"out-cnn/certificates/{name}.json").read_text())
    assert header["statement"] == found["statement"]
    rates = [level["certified"]["estimate"] for level in found["levels"]]
    assert rates == sorted(rates, reverse=True)
    assert all(level["certified"]["low"] <= level["certified"]["estimate"] for level in found["levels"])
    assert rates[0] <= found["clean"]["estimate"]
    again = certify(isthmus, "cnn", name, *QUICK[name], "--n", 20)
    assert (again.json["certified_now"], again.json["probe_queries"]) == (0, 0)  # It is known by its files.
    more = certify(isthmus, "cnn", name, *QUICK[name], "--n", 0)
    assert more.json["certified_now"] == len(SENTENCES) - 20
    assert [json.loads(line) for line in (place / f"out-cnn/certificates/{name}.jsonl").read_text().splitlines()][
        :20
    ] == rows
    other = certify(isthmus, "cnn", name, *QUICK[name], "--n", 5, "--seed", 1)
    assert other.json["certificate"].startswith(f"{name}@")


def test_rows_that_are_gone_are_missing_aloud(isthmus, place):
    certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 6)
    path = place / "out-cnn/certificates/exact.jsonl"
    (before,) = certificates(RunFolder(place / "out-cnn"))
    assert before.is_complete
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    (after,) = certificates(RunFolder(place / "out-cnn"))
    assert not after.is_complete
    assert any(note.startswith("2 examples and 0 texts") for note in after.notes())


def test_what_is_torn_is_made_again_and_the_file_is_the_same(isthmus, place):
    path = place / "out-cnn/certificates/synonym.jsonl"
    certify(isthmus, "cnn", "synonym", *QUICK["synonym"])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert certify(isthmus, "cnn", "synonym", *QUICK["synonym"]).json["certified_now"] > 0
    assert path.read_bytes() == whole


# ---------------------------------------------------------------------- how the model is asked


@pytest.fixture
def noisy(place: Path) -> Path:
    """The same network with noise inside, deployed in two steps that mask a word."""
    from isthmus.inference.two_step import TwoStep
    from isthmus.models.gaussian_noise import GaussianNoise

    model = toys.network("cnn", 4, 0.6).fill(noise=GaussianNoise(0.1, (0,)))
    model.deployment = TwoStep(masked=1, k0=3, k1=5)
    model.save(place / "noisy")
    return place


def test_options_of_the_victim_change_what_is_certified_and_are_recorded(isthmus, noisy):
    folder = noisy / "out-noisy/certificates"
    plain = certify(isthmus, "noisy", "gaussian", *QUICK["gaussian"], "--n", 6).json
    assert "1 word masked" in plain["statement"]["classifier"]
    bare = certify(isthmus, "noisy", "gaussian", *QUICK["gaussian"], "--n", 6, "-V", "masking=none")
    assert bare.code == 0, bare.err
    assert bare.json["certificate"].startswith("gaussian@")
    assert bare.json["certified_now"] == 6
    assert "masked" not in bare.json["statement"]["classifier"].partition("(asked")[0]
    assert bare.json["statement"]["classifier"].endswith("(with masking=none)")
    header = json.loads((folder / f"{bare.json['certificate']}.json").read_text())
    assert header["settings"]["victim"] == {"masking": None}
    assert "victim" not in json.loads((folder / "gaussian.json").read_text())["settings"]
    rows = [json.loads(line) for line in (folder / f"{bare.json['certificate']}.jsonl").read_text().splitlines()]
    assert [row["votes"] for row in rows] != [
        json.loads(line)["votes"] for line in (folder / "gaussian.jsonl").read_text().splitlines()
    ]
    again = certify(isthmus, "noisy", "gaussian", *QUICK["gaussian"], "--n", 6, "-V", "masking=none").json
    assert (again["certified_now"], again["certificate"]) == (0, bare.json["certificate"])
    other = certify(isthmus, "noisy", "gaussian", *QUICK["gaussian"], "--n", 6, "-V", "masked=2").json
    assert other["certificate"] not in ("gaussian", bare.json["certificate"])


@pytest.mark.parametrize(
    ("model", "certificate", "given", "said"),
    [
        ("noisy", "gaussian", ["k1=9"], "-V k1 makes no sense for this certificate"),
        ("noisy", "gaussian", ["draws=3"], "set -P n0 and -P n"),
        ("noisy", "gaussian", ["aggregate=vote", "abstain=0.1"], "no sense"),
        ("noisy", "synonym", ["abstain=0.1", "aggregate=vote"], "declines by itself"),
        ("smoothed", "synonym", ["draws=3"], "it draws synonyms itself"),
        ("smoothed", "synonym", ["deployed=false"], "name another table by -P table"),
        ("noisy", "gaussian", ["colour=red"], "has no setting 'colour'"),
        ("noisy", "gaussian", ["k0"], "-V takes KEY=VALUE"),
    ],
    ids=["steps", "draws", "votes", "abstain", "synonyms", "deployed", "unknown", "no value"],
)
def test_options_that_say_nothing_about_the_certified_classifier_are_refused(
    isthmus, noisy, model, certificate, given, said
):
    options = [part for each in given for part in ("-V", each)]
    ended = certify(isthmus, model, certificate, *QUICK[certificate], "--n", 4, *options)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert not list(noisy.glob("out-*/certificates/*.json"))


def test_with_fixed_draws_a_randomised_model_has_an_exact_answer(isthmus, noisy):
    refused = certify(isthmus, "noisy", "exact", *QUICK["exact"], "--n", 5)
    assert refused.code == 2
    assert "-V fixed=true" in " ".join(refused.err.split())
    ended = certify(isthmus, "noisy", "exact", *QUICK["exact"], "--n", 5, "-V", "fixed=true", "--no-label-check")
    assert ended.code == 0, ended.err
    assert ended.json["statement"]["classifier"] == "this model itself (with fixed=true)"
    rows = [json.loads(line) for line in (noisy / "out-noisy/certificates/exact.jsonl").read_text().splitlines()]
    # Bounds of the network alone would say nothing about the defence around it.
    assert {row["method"] for row in rows} <= {"enumeration", "none"}


def test_an_attack_on_the_model_asked_otherwise_is_one_on_another_model():
    from isthmus.verbs.certify.challenges import model_and_options

    assert model_and_options({"model": "m", "victim": {}}) == model_and_options({"model": "m"})
    assert model_and_options({"model": "m", "victim": {"fixed": True}}) != model_and_options({"model": "m"})


def test_what_stands_before_a_model_belongs_to_what_is_certified():
    from isthmus.certificates._gaussian_noise import NoisyReader
    from isthmus.certificates._intervals import is_bounded
    from isthmus.inference.normalised import Normalised

    model = toys.network("cnn", 4, 0.6)
    assert is_bounded(wrap(model, device="cpu"))
    model.deployment = Normalised(words=tuple(toys.WORDS))
    victim = wrap(model, device="cpu")
    assert not is_bounded(victim)
    (disguised,), (plain,) = (
        NoisyReader(victim, 0.1).encode([{"text": text}]) for text in ("a fi\u200bne film", "a fine film")
    )
    assert disguised == plain
    (raw,) = NoisyReader(wrap(model, device="cpu", deployed=False), 0.1).encode([{"text": "a fi\u200bne film"}])
    assert raw != plain


@pytest.mark.slow
def test_a_killed_command_ends_with_the_same_rows(isthmus, place):
    arguments = (
        "certify", "cnn", "--data", "data.csv", "--certificate", "gaussian", "-P", "n=1500", "--n", "0", "-q",
        "--device", "cpu", "--no-label-check", "--out",
    )  # fmt: skip
    path = place / "killed/certificates/gaussian.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "isthmus", *arguments, "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "it never got as far"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 3 <= path.read_bytes().count(b"\n") < len(SENTENCES)
    assert isthmus(*arguments, "killed").code == isthmus(*arguments, "whole").code == 0
    assert path.read_bytes() == (place / "whole/certificates/gaussian.jsonl").read_bytes()


def attack(isthmus, model: str) -> Ended:
    return isthmus(
        "attack", model, "--data", "data.csv", "--attack", "pwws", "-P", "table=table.json", "--device", "cpu", "--out",
        f"out-{model}", "-q", "--json", "--n", 0,
    )  # fmt: skip


@pytest.mark.parametrize(("model", "name"), [("cnn", "exact"), ("smoothed", "synonym")])
def test_certified_is_at_most_empirical_and_both_are_shown(isthmus, place, model, name):
    attacked = attack(isthmus, model)
    assert attacked.json["outcomes"]["succeeded"] > 0
    ended = certify(isthmus, model, name, *QUICK[name], "--n", 0)
    assert ended.code == 0, ended.err
    found = ended.json
    assert found["attacks"] == ["pwws"]
    assert found["challenged"] == attacked.json["outcomes"]["succeeded"]
    for level in found["levels"]:
        assert level["certified"]["estimate"] <= level["empirical"]["estimate"]
    if name == "exact":
        assert found["levels"][-1]["empirical"]["estimate"] == pytest.approx(attacked.json["racc"])
    folder = RunFolder(place / f"out-{model}")
    page = render(read_run(folder))
    assert "accuracy<br>under attack" in page
    assert "Certified accuracy." in page
    printed = isthmus("report", folder.path, "-q")
    assert "threat" not in printed.err
    assert "certified" in printed.out


def doctored(path: Path, key: str, **changes: Any) -> None:
    rows = read_rows(path)
    assert any(row["id"] == key for row in rows)
    path.write_bytes(b"".join(seal_row({**row, **(changes if row["id"] == key else {})}) for row in rows))


@pytest.mark.parametrize(("model", "name"), [("cnn", "exact"), ("smoothed", "synonym")])
def test_a_certificate_that_claims_too_much_fails_the_command(isthmus, place, model, name):
    attack(isthmus, model)
    assert certify(isthmus, model, name, *QUICK[name], "--n", 0).code == 0
    challenges = place / f"out-{model}/certificates/{name}.challenges.jsonl"
    rows = list(map(json.loads, challenges.read_text().splitlines()))
    changes: dict[str, Any] = {"strength": "all", "outcome": "certified"}
    if name == "exact":
        chosen = next(row for row in rows if row["refutes"])
    else:  # Certified for the class that nearly all draws of the text vote against.
        chosen = max(rows, key=lambda row: row["votes"])
        assert chosen["votes"] > 45
        changes["prediction"] = 1 - chosen["certified"]
    doctored(place / f"out-{model}/certificates/{name}.jsonl", chosen["example"], **changes)
    ended = certify(isthmus, model, name, *QUICK[name], "--n", 0)
    assert ended.code == 4
    assert f"example {chosen['example']}" in ended.err
    assert "bug" in ended.err
    header = json.loads((place / f"out-{model}/certificates/{name}.json").read_text())
    assert [each.rpartition("/")[0] for each in header["refuted"]] == [f"pwws/{chosen['example']}"]


def test_an_attack_that_claims_too_much_fails_the_command_where_nothing_is_drawn(isthmus, place):
    attack(isthmus, "cnn")
    certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 0)
    rows = [json.loads(line) for line in (place / "out-cnn/certificates/exact.jsonl").read_text().splitlines()]
    held = next(
        row["id"] for row in rows if row["strength"] == "all" and row["outcome"] == "certified" and row["substitutable"]
    )
    attacked = {
        row["id"]: row for row in map(json.loads, (place / "out-cnn/attacks/pwws.jsonl").read_text().splitlines())
    }
    text = attacked[held]["original"]["text"]
    table = toys.table()
    word = next(word for word in text.split() if table.replacements(word))
    other = {"text": text.replace(word, table.replacements(word)[0], 1)}
    doctored(place / "out-cnn/attacks/pwws.jsonl", held, outcome="succeeded", perturbed=other)
    ended = certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 0)
    assert ended.code == 4
    assert f"example {held}" in ended.err


def test_an_attack_outside_the_threat_model_is_left_aside(isthmus, place):
    more = ("--device", "cpu", "--out", "out-cnn", "-q", "--n", 0)
    isthmus("attack", "cnn", "--data", "data.csv", "--attack", "deepwordbug", *more)
    found = certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 0).json
    assert found["attacks"] == []
    assert all(level["empirical"] is None for level in found["levels"])


def test_the_gate(isthmus, place):
    more = (*QUICK["exact"], "--n", 0)
    assert certify(isthmus, "cnn", "exact", *more, "--fail-under", "certified=0.0").code == 0
    assert certify(isthmus, "cnn", "exact", *more, "--fail-under", "certified=0.99").code == 1
    rate = certify(isthmus, "cnn", "exact", *more).json["certified"]["estimate"]
    straddling = certify(isthmus, "cnn", "exact", *more, "--fail-under", f"certified={rate}")
    assert (straddling.code, straddling.json["gate"]["exit_code"]) == (3, 3)
    at_zero = certify(isthmus, "cnn", "exact", *more, "--at", "0").json["certified"]["estimate"]
    assert at_zero > rate


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("gaussian", ("-P", "sigma=0"), "without noise there is no ball"),
        ("gaussian", ("-P", "alpha=2"), "strictly between 0 and 1"),
        ("synonym", ("-P", "n=5"), "the smallest n that could certify is 10"),
        ("synonym", ("-P", "table=nothere.json"), "no synonym table at nothere.json"),
        ("exact", ("-P", "limits=3"), "Did you mean 'limit'"),
        ("gausian", (), "Did you mean 'gaussian'"),
        ("exact", ("--at", "far"), "--at takes a radius"),
        ("exact", ("--fail-under", "racc=0.5"), "no rate for --fail-under named 'racc'"),
        ("exact", ("--protect", "title"), "no column named 'title'"),
    ],
    ids=["sigma", "alpha", "n", "table", "parameter", "name", "at", "gate", "column"],
)
def test_bad_input_is_refused_before_anything_is_written(isthmus, place, name, more, message):
    ended = certify(isthmus, "cnn", name, *more)
    assert ended.code == 2
    assert message in ended.err
    assert not (place / "out-cnn/certificates").exists() or not list((place / "out-cnn/certificates").glob("*.json"))


def test_texts_whose_every_word_is_protected_are_counted_apart(isthmus, place):
    found = certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 0, "--protect-pattern", ".+").json
    assert "words that match .+ cannot be substituted" in found["statement"]["threat_model"]
    assert found["nothing_to_substitute"] == found["outcomes"]["certified"] > 0
    assert found["certified"]["estimate"] == found["clean"]["estimate"]


def test_a_model_that_cannot_be_certified_so_is_refused(isthmus, place):
    assert "answers at random" in certify(isthmus, "smoothed", "exact").err
    (place / "mine.py").write_text("def classify(texts):\n    return [[0.2, 0.8]] * len(texts)\n")
    ended = isthmus("certify", "mine:classify", "--data", "data.csv", "--out", "out", "-q", "--no-label-check")
    assert ended.code == 2
    assert "puts noise on word embeddings" in ended.err


def test_a_text_the_model_fails_on_is_an_error_and_nobody_elses(isthmus, place):
    (place / "fails.py").write_text(
        "def classify(texts):\n"
        "    if any('plot' in text for text in texts):\n"
        "        raise RuntimeError('no plots')\n"
        "    return [[0.1, 0.9] if 'fine' in text or 'good' in text else [0.9, 0.1] for text in texts]\n"
    )
    more = (
        "-P",
        "n=20",
        "-P",
        "table=table.json",
        "--labels",
        "bad,good",
        "--no-label-check",
        "--out",
        "out",
        "--n",
        0,
    )
    ended = isthmus(
        "certify", "fails:classify", "--data", "data.csv", "--certificate", "synonym", "-q", "--json", *more
    )
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (place / "out/certificates/synonym.jsonl").read_text().splitlines()]
    assert len(rows) == len(SENTENCES)
    failed = [row for row in rows if row["outcome"] == "error"]
    assert len(failed) == sum("plot" in sentence for sentence in SENTENCES)
    assert all("no plots" in row["reason"] for row in failed)
    assert ended.json["outcomes"]["error"] == len(failed)


# ---------------------------------------------------------------------- what a certificate does not say by itself


def test_the_deployed_vote_is_told_apart_from_the_certified_one(isthmus, place):
    """The smoothed model answers by nine draws; rows say how often those leave what the vote of all of them keeps."""
    ended = certify(isthmus, "smoothed", "synonym", "-P", "n=60", "-P", "n0=20", "--n", 20)
    assert ended.code == 0, ended.err
    rows = [
        row for row in read_rows(place / "out-smoothed/certificates/synonym.jsonl") if row["outcome"] == "certified"
    ]
    assert rows
    for row in rows:
        assert row["deployed_draws"] == 9
        k, w = 9, row["worst_share"]
        assert 0.5 < w <= row["p_lower"]
        left = sum(math.comb(k, i) * w**i * (1 - w) ** (k - i) for i in range(k // 2 + 1))
        assert row["deployed_leaves"] == pytest.approx(left)
        assert row["words"] >= row["substitutable"]
        assert row["synonyms"] >= row["substitutable"]
    told = ended.json["deployed"]
    assert told["draws"] == 9
    assert told["worst"] == max(row["deployed_leaves"] for row in rows)
    shown = isthmus("certify", "smoothed", "--data", "data.csv", "--certificate", "synonym", "--device", "cpu", "--out",
                    "out-smoothed", "-P", "n=60", "-P", "n0=20", "--n", 20)  # fmt: skip
    assert "the deployed vote has 9" in " ".join(shown.out.split())
    assert "product of q of" in " ".join(shown.out.split())
    bare = certify(isthmus, "cnn", "synonym", *QUICK["synonym"], "--n", 20)
    assert bare.json["deployed"]["draws"] is None
    assert bare.json["deployed"]["draws_for_1_percent"] > 1


def test_choosing_after_the_fact_is_warned_about(isthmus, place):
    first = certify(isthmus, "cnn", "gaussian", *QUICK["gaussian"], "--n", 8)
    header = place / "out-cnn/certificates/gaussian.json"
    assert json.loads(header.read_text())["alternatives"] == []
    more = certify(isthmus, "cnn", "gaussian", *QUICK["gaussian"], "-P", "n=90", "--n", 8)
    louder = certify(isthmus, "cnn", "gaussian", *QUICK["gaussian"], "-P", "sigma=0.5", "--n", 8)
    assert first.code == more.code == louder.code == 0
    again = json.loads((place / f"out-cnn/certificates/{louder.json['certificate']}.json").read_text())
    assert sorted(again["alternatives"]) == sorted([first.json["certificate"], more.json["certificate"]])
    page = render(read_run(RunFolder(place / "out-cnn")))
    assert "The best of 3 may be a false certificate with probability up to 0.003 per example, not 0.001" in page
    told = isthmus("certify", "cnn", "--data", "data.csv", "--certificate", "gaussian", "--device", "cpu", "--out",
                   "out-cnn", *QUICK["gaussian"], "--n", 8)  # fmt: skip
    assert "certified 3 times" in told.out, "the first one knows of the later ones when it is shown again"
    exact = certify(isthmus, "cnn", "exact", *QUICK["exact"], "--n", 8)
    assert json.loads((place / "out-cnn/certificates/exact.json").read_text())["alternatives"] == []
    assert exact.code == 0
