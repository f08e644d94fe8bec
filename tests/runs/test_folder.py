from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from isthmus.core.errors import NewerRun, RunError
from isthmus.core.files import write_json
from isthmus.core.records import read_record, write_record
from isthmus.runs.folder import (
    SCHEMA,
    AttackFile,
    DataRecord,
    MethodRecord,
    ModelRecord,
    RunFolder,
    RunRecord,
    default_path,
    short_name,
)
from isthmus.runs.journal import BusyError, Journal
from isthmus.runs.settings import short_hash
from isthmus.verbs.rows_file import claim


def record(**changes: object) -> RunRecord:
    base = RunRecord(
        model=ModelRecord("minilm", ("neg", "pos")),
        data=DataRecord("reviews.csv", "reviews", ("neg", "pos"), fingerprints={"test": "00ff"}),
        defence=MethodRecord("label_smoothing", {"rate": 0.1}),
        training={"epochs": 1},
        seed=3,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.write(record())
    assert folder.record() == record(created=folder.record().created)


def test_unknown_keys_of_the_same_schema_are_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write(record())
    value = read_record(folder.record_path)
    value["novelty"] = 1
    value["model"]["novelty"] = 2
    write_record(folder.record_path, value)
    assert folder.record().model == record().model


def test_a_newer_run_is_refused_by_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write(record(schema=SCHEMA + 1, isthmus="9.9.9"))
    with pytest.raises(NewerRun, match=r"isthmus 9\.9\.9.*upgrade"):
        folder.record()


def test_a_newer_attack_header_is_refused_too(tmp_path: Path) -> None:
    file = AttackFile(tmp_path, "pwws")
    write_json(file.header_path, {"schema": SCHEMA + 1})
    with pytest.raises(NewerRun):
        file.header()


@pytest.mark.parametrize(
    "content", ["[]", '{"schema": "x"}', '{"schema": 1}', '{"schema": 1, "model": 3, "data": {}}', "{"]
)
def test_a_file_that_is_no_record_is_a_clean_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError):
        RunFolder(tmp_path).record()


def test_a_folder_without_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        RunFolder(tmp_path).record()
    with pytest.raises(RunError, match="no run folder"):
        RunFolder(tmp_path / "absent").record()


def test_the_same_run_is_continued_and_another_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first = folder.claim(record(created="2001-01-01"))
    assert folder.claim(record(created="2002-02-02")) == first
    with pytest.raises(RunError, match=r"seed: 3 -> 4.*--out"):
        folder.claim(record(seed=4))
    assert folder.record() == first


def test_other_settings_of_an_attack_get_their_own_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    one, two = {"seed": 0}, {"seed": 1}
    first = folder.attack_file("pwws", one)
    assert first.key == "pwws"
    write_json(first.header_path, {"schema": SCHEMA, "hash": short_hash(one)})
    assert folder.attack_file("pwws", one) == first
    assert folder.attack_file("pwws", two) == first  # no row was written under the name: it is free
    with Journal(first.rows_path):
        assert folder.attack_file("pwws", two) != first  # someone is about to write one
        assert folder.attack_file("pwws", one) == first
    first.rows_path.write_text('{"id": "test:0"}\n')
    other = folder.attack_file("pwws", two)
    assert other.key == f"pwws@{short_hash(two)}"
    assert other.attack == "pwws"
    write_json(other.header_path, {"schema": SCHEMA, "hash": short_hash(two)})
    assert [file.key for file in folder.attack_files()] == ["pwws", other.key]


def test_a_name_taken_meanwhile_is_left_to_whoever_took_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    plain, own, other = folder.attack_file("pwws", {}), {"seed": 1}, {"seed": 2}
    with Journal(plain.rows_path):
        write_json(plain.header_path, {"schema": SCHEMA, "hash": short_hash(other)})
        file, journal, known = claim(lambda: folder.attack_file("pwws", own), own)
        with journal:
            assert (file.key, known) == (f"pwws@{short_hash(own)}", {})
        with pytest.raises(BusyError, match="another process is writing"):
            claim(lambda: folder.attack_file("pwws", other), other)


@pytest.mark.parametrize("begins", [True, False])
def test_whoever_holds_a_name_is_waited_for_until_its_settings_are_known(tmp_path: Path, begins: bool) -> None:
    folder, own = RunFolder(tmp_path), {"seed": 1}
    plain = folder.attack_file("pwws", own)
    first = Journal(plain.rows_path)

    def decide() -> None:
        if begins:
            write_json(plain.header_path, {"schema": SCHEMA, "hash": short_hash({"seed": 2})})
        else:
            first.close()

    later = threading.Timer(0.3, decide)
    later.start()
    file, journal, known = claim(lambda: folder.attack_file("pwws", own), own)
    later.join()
    assert (file.key, known) == (f"pwws@{short_hash(own)}" if begins else "pwws", {})
    journal.close()
    first.close()


def test_rows_without_a_header_are_nobodys(tmp_path: Path) -> None:
    folder, own = RunFolder(tmp_path), {"seed": 1}
    with Journal(folder.attack_file("pwws", own).rows_path) as journal:
        journal.append({"id": "test:0"})
    file, journal, known = claim(lambda: folder.attack_file("pwws", own), own)
    journal.close()
    assert (file.key, known, dict(journal.rows)) == (f"pwws@{short_hash(own)}", {}, {})


def test_a_header_of_other_settings_without_rows_is_not_taken_over(tmp_path: Path) -> None:
    folder, own, other = RunFolder(tmp_path), {"seed": 1}, {"seed": 2}
    file = folder.attack_file("pwws", other)
    write_json(file.header_path, {"schema": SCHEMA, "hash": short_hash(other), "n": 500, "effort": {"wall_s": 9.0}})
    mine, journal, known = claim(lambda: folder.attack_file("pwws", own), own)
    journal.close()
    assert (mine, known) == (file, {})


def test_an_unwritable_place_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        RunFolder(tmp_path / "file" / "run").write(record())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("minilm", "minilm"),
        ("textattack/bert-base-uncased-SST-2", "bert-base-uncased-SST-2"),
        ("data/reviews.jsonl.gz", "reviews"),
        ("https://user:key@host:8000/classify?token=abc", "classify"),
        ("runs/demo/model/", "demo"),
        ("my.package:pipeline", "my.package_pipeline"),
        ("../..", "model"),
        ("C:\\data\\set.csv", "set"),
    ],
)
def test_names_are_safe_for_folders(spec: str, name: str) -> None:
    assert short_name(spec) == name


def test_the_default_folder_names_model_defence_and_data() -> None:
    assert default_path("minilm", "sst2") == Path("runs/minilm-sst2")
    assert default_path("minilm", "sst2", "standard") == Path("runs/minilm-sst2")
    assert default_path("minilm", "a/b.csv", "rsmi") == Path("runs/minilm-rsmi-b")


@pytest.mark.parametrize("content", ["{}", '{"n": 4}', '{"schema": null}', '{"schema": "1"}'])
def test_a_file_that_says_no_schema_was_not_written_here(tmp_path: Path, content: str) -> None:
    """Nothing is read from it as if it had been empty."""
    folder = RunFolder(tmp_path)
    folder.attacks_path.mkdir()
    file = folder.attack_file("pwws", {"seed": 1})
    file.header_path.write_text(content)
    with pytest.raises(RunError, match=r"pwws\.json was damaged.*schema"):
        file.header()


def test_files_that_changed_are_named_so(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    data = DataRecord("reviews.csv", "reviews")
    folder.claim(RunRecord(ModelRecord("m.onnx", (), "0a"), data))
    with pytest.raises(RunError, match=r"the files of m\.onnx have changed .* \(fingerprint 0a, now 0b\).*--out"):
        folder.claim(RunRecord(ModelRecord("m.onnx", (), "0b"), data))
    with pytest.raises(RunError, match=r"other settings \(model\.spec: m\.onnx -> n\.onnx"):
        folder.claim(RunRecord(ModelRecord("n.onnx", (), "0b"), data))
