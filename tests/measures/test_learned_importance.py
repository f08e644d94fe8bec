"""The learned importance of words: counts, correlations, synonyms by hand, the verb, and bad input."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import measure_toys
import numpy as np
import pytest
import torch
import training_toys as toys
from tokenizers.normalizers import Lowercase

from isthmus.cli.app import run as run_command
from isthmus.core.errors import UsageError
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset, Splits
from isthmus.lexicon import neighbours
from isthmus.measures import LearnedImportance, Subject
from isthmus.measures._pairs import with_random_weights
from isthmus.models import Classifier, importance_of
from isthmus.models.word_mask import VariationalWordMask

TEXTS = ["a fine film", "a fine scene", "A dull film", "a dull and weak plot", "zzyzx"]


def masked() -> Classifier:
    """A model that reads small letters, and whose words differ in importance."""
    model = toys.classifier()
    model.tokenizer.backend_tokenizer.normalizer = Lowercase()
    torch.manual_seed(1)
    mask = VariationalWordMask(model.table.embedding_dim, model.table.num_embeddings, hidden=8)
    with torch.no_grad():
        mask.first.weight.mul_(20)
    model.fill(word_mask=mask)
    return model.eval()


def splits(texts=TEXTS) -> Splits:
    examples = tuple(Example(str(n), {"text": text}, n % 2) for n, text in enumerate(texts))
    return Splits("toy", {"train": Dataset("toy", "train", Classification(("bad", "good"), ("text",)), examples)})


@pytest.fixture
def synonyms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Vectors in which weak is the nearest of fine and dull."""
    path = tmp_path / "vectors.txt"
    path.write_text("fine 1 0\ndull 0 1\nweak 1 0.9\n")
    monkeypatch.setattr(neighbours, "_load_neighbours", neighbours._load_neighbours.__wrapped__)
    return str(path)


def test_words_are_counted_and_weighed(synonyms):
    model = masked()
    subject = Subject.of(model, splits(), name="toy")
    subject.substitutions = lambda: {"fine": 3, "Dull": 2, "dull": 1, "elsewhere": 9}
    found = LearnedImportance(synonyms=synonyms, synonyms_each=1).measure(subject)
    rows = {row[0]: row[1:] for row in found.details["runs"][0]["rows"]}
    assert rows["a"][1:] == [4, 0], "A and a are one word where the tokenizer reads small letters"
    assert "zzyzx" not in rows
    assert "1 unknown to the model left out" in found.notes[0]
    assert rows["fine"][1:] == [2, 3]
    assert rows["dull"][1:] == [2, 3]
    for word, row in rows.items():
        assert row[0] == pytest.approx(float(importance_of(model, [word])[0]), abs=1e-6)
    by_hand = np.corrcoef([row[0] for row in rows.values()], [row[2] for row in rows.values()])[0, 1]
    figure = found.figure("correlation of importance and replacements")
    assert figure.estimate == pytest.approx(by_hand, abs=1e-5)
    assert figure.low <= figure.estimate <= figure.high
    assert {plot.name for plot in found.plots} == {
        "importance_by_frequency", "importance_by_replacements", "importance_of_synonyms",
    }  # fmt: skip


def test_synonyms_by_hand(synonyms):
    model = masked()
    found = LearnedImportance(synonyms=synonyms, synonyms_each=1).measure(Subject.of(model, splits(), name="toy"))
    fine, dull, weak = importance_of(model, ["fine", "dull", "weak"]).tolist()
    # weak itself is nearer to fine than to dull.
    expected = np.mean([abs(fine - weak), abs(dull - weak), abs(weak - fine)])
    assert found.figure("difference of importance between synonyms").estimate == pytest.approx(expected, abs=1e-6)
    shares = [series for series in found.plots[-1].series if series.name.endswith("synonyms")]
    assert sum(shares[0].y) == pytest.approx(1)


def test_a_model_with_random_weights_has_random_importance():
    model = masked()
    one, two = (with_random_weights(model, seed) for seed in (1, 2))
    words = ["fine", "dull", "film"]
    values = [importance_of(each, words) for each in (model, one, two)]
    assert not np.allclose(values[0], values[1])
    assert not np.allclose(values[1], values[2])
    assert np.array_equal(importance_of(with_random_weights(model, 1), words), values[1])


def test_without_attacks_and_without_synonyms_it_says_so():
    found = LearnedImportance(words=0).measure(Subject.of(masked(), splits(), name="toy"))
    assert any("isthmus attack RUN" in note for note in found.notes)
    assert not any("replacements" in figure.name for figure in found.figures)
    assert not any("synonyms" in figure.name for figure in found.figures)


def test_bad_input():
    with pytest.raises(UsageError, match=r"toy: this model has no word masks.*train it with flat"):
        LearnedImportance().measure(Subject.of(toys.classifier(), splits(), name="toy"))
    with pytest.raises(UsageError, match="at least 1, not 3 and 0"):
        LearnedImportance(words=3, synonyms_each=0)
    with pytest.raises(UsageError, match="holds no word of the training data"):
        LearnedImportance(words=0).measure(Subject.of(masked(), splits(["?!", "..."]), name="toy"))


def isthmus(capsys, monkeypatch, *arguments: object) -> tuple[int, str, str]:
    given = [str(argument) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["isthmus", *given])
    capsys.readouterr()
    code = run_command(given)
    captured = capsys.readouterr()
    return int(code), captured.out, captured.err


def test_the_verb_lists_keeps_and_exports(tmp_path, capsys, monkeypatch):
    folder = measure_toys.toy_run(tmp_path, "flat", "flat", points=0, attack="deepwordbug")
    measure_toys.add_attack(folder)
    rows = folder.attacks_path / "pwws.jsonl"
    changed = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in changed:
        word = row["original"]["text"].split()[0]
        place = {"position": 0, "start": 0, "end": len(word), "new_start": 0, "new_end": len("very")}
        row["edits"] = [{"field": "text", "kind": "replace", "original": word, "replacement": "very", **place}]
    rows.write_text("".join(json.dumps(row) + "\n" for row in changed))
    monkeypatch.chdir(tmp_path)
    options = ("show-words", "flat", "-P", "words=0", "-q", "--device", "cpu")
    code, out, err = isthmus(capsys, monkeypatch, *options, "--n", 3, "--export", "words.csv", "--json")
    assert code == 0, err
    told = json.loads(out.splitlines()[-1])
    assert {"mean importance", "correlation of importance and replacements"} <= {
        figure["name"] for figure in told["figures"]
    }
    assert all(Path(file).is_file() for file in told["files"])
    with (tmp_path / "words.csv").open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert sum(int(row["replaced"]) for row in listed) == len(changed)
    assert all(0 < float(row["importance"]) < 1 for row in listed)
    code, out, err = isthmus(capsys, monkeypatch, *options, "--n", 3, "--sort", "frequency")
    assert code == 0, err
    most = max(listed, key=lambda row: (int(row["frequency"]), row["word"]))
    assert most["frequency"] in out
    assert "measured before" in out
    rarely, often = (len([row for row in listed if (int(row["frequency"]) >= 5) is seen]) for seen in (False, True))
    assert rarely
    assert often
    assert f"{rarely} seen 4 times at most are not listed" in out
    code, out, err = isthmus(capsys, monkeypatch, *options, "--n", 100, "--least", 1)
    assert "not listed" not in out
    assert all(row["word"] in out for row in listed)
    code, out, err = isthmus(capsys, monkeypatch, *options, "--least", 1000)
    assert code == 0, err
    assert "try --least 1" in out
    code, _, err = isthmus(capsys, monkeypatch, "report", "flat", "-q")
    assert code == 0, err
    assert "learned_importance" in (folder.path / "report.html").read_text()

    for arguments, said in (
        (("--sort", "size"), "importance"),
        (("--export", "words.xls"), ".csv or .jsonl"),
    ):
        code, _, err = isthmus(capsys, monkeypatch, *options, *arguments)
        assert code == 2, err
        assert said in err
