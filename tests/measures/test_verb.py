"""`isthmus measure`: what is kept, what is read again, and what is refused."""

import json
from pathlib import Path

import measure_toys as toys
import pytest

from isthmus.core.errors import RunError, UnknownName, UsageError
from isthmus.core.records import read_record, write_record
from isthmus.measures.base import Asked
from isthmus.runs.folder import DataRecord, ModelRecord, RunFolder, RunRecord
from isthmus.verbs.measure import MeasureRequest, measure, measurements


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return toys.toy_run(tmp_path_factory.mktemp("measure"))


@pytest.fixture
def run(trained: RunFolder) -> RunFolder:
    trained.measures_path.unlink(missing_ok=True)
    return trained


def request(run: RunFolder, **changes) -> MeasureRequest:
    given = {"runs": (str(run.path),), "measures": ("anchored_words",), "asked": Asked(n=2), "device": "cpu"}
    return MeasureRequest(**{**given, **changes})


def test_the_same_again_is_read_and_other_settings_get_their_hash(run):
    (first,) = measure(request(run))
    assert (first.key, first.was_there) == ("anchored_words", False)
    (again,) = measure(request(run))
    assert again.was_there
    assert again.measurement == first.measurement
    (other,) = measure(request(run, parameters={"lowest": "0.2"}))
    assert other.key.startswith("anchored_words@")
    assert not other.was_there
    assert [each.key for each in measurements(run)] == ["anchored_words", other.key]
    assert measure(request(run, parameters={"lowest": "0.2"}))[0].was_there


def test_a_measure_is_kept_from_what_it_does_not_heed(run):
    """`--text` is for anchored words: the plane beside it is the one measured without."""
    both = {"measures": ("information_plane", "anchored_words"), "asked": Asked(texts=("a fine film",))}
    plane, words = measure(request(run, **both))
    assert words.settings["asked"] == {"texts": ["a fine film"]}
    assert measure(request(run, measures=("information_plane",), asked=Asked()))[0].was_there
    assert plane.key == "information_plane"
    with pytest.raises(UsageError, match="information_plane does not use --text"):
        measure(request(run, **{**both, "measures": ("information_plane",)}))
    with pytest.raises(UsageError, match="anchored_words does not use --against"):
        measure(request(run, against=str(run.path)))


def test_what_changed_since_is_measured_again(run):
    measure(request(run))
    held = read_record(run.measures_path)
    held["anchored_words"]["stamp"]["."]["model"] = "other weights"
    write_record(run.measures_path, held)
    (again,) = measure(request(run))
    assert (again.key, again.was_there) == ("anchored_words", False)


def test_a_run_without_attacks_is_told_which_to_make_or_which_file_to_name(run):
    with pytest.raises(UsageError, match=r"was not attacked yet, .*: isthmus attack .* --attack pwws$"):
        measure(request(run, measures=("trade_off",), parameters={"over": "epochs", "attack": "pwws"}, asked=Asked()))
    without = request(run, measures=("anchored_information",))
    with pytest.raises(UsageError, match=r"from a file that is named instead: .* --attack textfooler$"):
        measure(without)
    elsewhere = run.path / "on-other" / "attacks" / "pwws.jsonl"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    with pytest.raises(UsageError, match=f"such as {elsewhere}: isthmus attack"):
        measure(without)


def test_what_cannot_be_measured_is_refused(run, tmp_path):
    with pytest.raises(UnknownName, match="Did you mean 'anchored_words'"):
        measure(request(run, measures=("anchored_word",)))
    with pytest.raises(UnknownName, match=r"parameter of anchored_words named 'lowset'\. Did you mean 'lowest'"):
        measure(request(run, parameters={"lowset": "1"}))
    with pytest.raises(UsageError, match="no measure named"):
        measure(request(run, measures=()))
    with pytest.raises(RunError, match="no run folder"):
        measure(request(RunFolder(tmp_path / "nowhere")))
    foreign = RunFolder(tmp_path / "foreign")
    foreign.write(RunRecord(ModelRecord("toy:classify"), DataRecord("reviews.csv", "reviews")))
    with pytest.raises(RunError, match="a model that was not trained here"):
        measure(request(foreign))
    run.measures_path.write_text("{}")
    with pytest.raises(RunError, match="object of measurements"):
        measure(request(run))
    run.measures_path.write_text("[]")
    with pytest.raises(RunError, match="should hold a JSON object"):
        measure(request(run))


def test_data_that_changed_are_refused(tmp_path):
    run = toys.toy_run(tmp_path)
    path = tmp_path / "data" / "test.jsonl"
    path.write_text(path.read_text().replace("film", "scene"))
    with pytest.raises(Exception, match="not what the model was trained with"):
        measure(request(run))


def test_the_command_prints_and_reports(run, capsys, monkeypatch):
    from isthmus.cli.app import run as command

    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["measure", str(run.path), "--measure", "anchored_words", "--text", "a <b>fine</b> film", "--json"]
    assert command(arguments) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out.splitlines()[-1])["measurements"][0]
    assert found["key"] == "anchored_words"
    assert [figure["name"] for figure in found["figures"]] == ["unuseful words", "anchored words", "non-robust words"]
    assert command(["measure", str(run.path), "--measure", "anchored_words", "--text", "a <b>fine</b> film"]) == 0
    captured = capsys.readouterr()
    assert "measured before" in captured.out
    assert "useful and stable" in captured.out
    assert command(["report", str(run.path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "non-robust words" in captured.err  # the table, beside the object
    assert json.loads(captured.out.splitlines()[-1])["measures"]["anchored_words"]["figures"] == found["figures"]
    page = Path(run.report_path).read_text()
    assert "anchored_words</h3>" in page
    assert "<b>fine" not in page
    assert command(["measure", str(run.path), "--epochs", "some"]) == 2


def test_no_figure_outlives_its_measurement(run):
    """A kill between the measurement and its figure must not leave the figure of the one before."""
    from isthmus.report.measure.files import write_figures

    asked = {"measures": ("calibration",), "asked": Asked()}
    (first,) = measure(request(run, **asked))
    drawn = write_figures(first)
    assert all(path.is_file() for path in drawn)
    held = read_record(run.measures_path)
    held["calibration"]["stamp"]["."]["model"] = "other weights"
    write_record(run.measures_path, held)
    measure(request(run, **asked))
    assert not any(path.exists() for path in drawn)
    (again,) = measure(request(run, **asked))
    assert again.was_there
    assert write_figures(again) == drawn
    assert all(path.is_file() for path in drawn)
