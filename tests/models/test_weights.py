"""Weights are safetensors inside their folder, or are not read; a pickle is converted without being run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_toys import CONFIGS, tiny_tokenizer
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from isthmus import load_model
from isthmus.core.errors import IsthmusError, ModelError, UsageError
from isthmus.models.convert import convert
from isthmus.models.victims import load_victim

Change = Callable[[Path], object]


class Bomb:
    """Unpickled by anybody who trusts it, it makes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier as transformers saves it."""
    folder = tmp_path_factory.mktemp("saved")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = CONFIGS["bert"]()
        config.num_labels = 2
        model = AutoModelForSequenceClassification.from_config(config)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def scores(folder: Path) -> Any:
    return load_victim(folder, device="cpu").scores([{"text": "a good film"}, {"text": "not so bad"}])


def as_pickle(folder: Path, name: str = "pytorch_model.bin") -> dict[str, torch.Tensor]:
    """The weights as the pickle that older versions of transformers wrote."""
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / name)
    (folder / "model.safetensors").unlink()
    return weights


def as_shards(folder: Path, ending: str, index: str) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        shard = f"part-{number}{ending}"
        torch.save({name: weights[name] for name in part}, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_pickle_is_refused_and_the_message_names_the_command(folder: Path) -> None:
    as_pickle(folder)
    with pytest.raises(ModelError, match=r"pickle.*isthmus convert .*model --out NEW"):
        load_model(folder)


@pytest.mark.parametrize("hostile", ["pytorch_model.bin", "index of safetensors"])
def test_a_hostile_pickle_runs_nowhere(folder: Path, tmp_path: Path, hostile: str) -> None:
    trace, name = tmp_path / "ran", "pytorch_model.bin"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(trace), protocol=2))
    if hostile == "index of safetensors":
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": {"classifier.weight": name}})
        )
    with pytest.raises(ModelError, match="isthmus convert"):
        load_model(folder)
    with pytest.raises(ModelError, match="was not run"):
        convert(folder, tmp_path / "new")
    assert not trace.exists()
    assert not (tmp_path / "new").exists()
    pickle.loads((folder / name).read_bytes())
    assert trace.exists()  # So it was a live one.


def test_an_index_cannot_lead_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    shutil.move(folder / "model.safetensors", outside)
    names = dict.fromkeys(load_file(outside), "../outside.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    with pytest.raises(ModelError, match=r"names '\.\./outside\.safetensors'"):
        load_model(folder)
    for path in (str(outside), "..\\outside.safetensors", "sub/x.safetensors", "..", ""):
        index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, path)}))
        with pytest.raises(ModelError, match="names"):
            load_model(folder)


def test_a_link_cannot_lead_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "model.safetensors", tmp_path / "elsewhere")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="outside of its folder"):
        load_model(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [("null", "weight_map"), ('{"weight_map": {"a": 1}}', "weight_map"), ("{", "index"), ('{"weight_map": {}}', "map")],
)
def test_an_index_that_is_none_is_named(folder: Path, content: str, said: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=said):
        load_model(folder)


def test_entries_that_name_weights_elsewhere_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": "adapter_model.bin"}))
    with pytest.raises(ModelError, match="transformers_weights"):
        load_model(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    with pytest.raises(ModelError, match="adapter"):
        load_model(folder)


def test_shards_of_safetensors_are_read(folder: Path, saved: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert (scores(folder) == scores(saved)).all()


def snapshot(saved: Path, cache: Path) -> Path:
    """The model as the hub's library keeps it: blobs by hash, a snapshot of links to them."""
    repository = cache / "models--somebody--model"
    place = repository / "snapshots" / "0123abcd"
    place.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, file in enumerate(sorted(saved.iterdir())):
        shutil.copy(file, repository / "blobs" / f"{number:064x}")
        (place / file.name).symlink_to(Path("../../blobs") / f"{number:064x}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    return place


def test_the_hubs_own_cache_may_link_to_its_blobs(saved: Path, tmp_path: Path) -> None:
    assert (scores(snapshot(saved, tmp_path)) == scores(saved)).all()


def test_a_hub_name_is_held_to_the_same(saved: Path, tmp_path: Path) -> None:
    place = snapshot(saved, tmp_path)
    given = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    script = """
import sys
from isthmus import load_model
for line in sys.stdin:  # One process for every load: its start takes longer than they do.
    try:
        print(load_model("somebody/model").labels, flush=True)
    except Exception as error:
        print(str(error).replace("\\n", " "), flush=True)
"""
    command = [sys.executable, "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=given, stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def load() -> str:
            asked.write("again\n")
            asked.flush()
            return told.readline()

        assert "LABEL_1" in load()
        (place / "model.safetensors").unlink()
        assert "isthmus convert FOLDER --out NEW" in load()
        (place / "evil.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "ran"), protocol=2))
        index = {"metadata": {}, "weight_map": {"classifier.weight": "evil.bin"}}
        (place / "model.safetensors.index.json").write_text(json.dumps(index))
        assert "not a safetensors" in load()
        asked.close()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        as_pickle,
        lambda folder: as_pickle(folder, "weights.pt"),
        lambda folder: as_shards(folder, ".bin", "pytorch_model.bin.index.json"),
        lambda folder: as_shards(folder, ".bin", "model.safetensors.index.json"),
    ],
)
def test_a_converted_model_answers_the_same(folder: Path, saved: Path, tmp_path: Path, change: Change) -> None:
    change(folder)
    done = convert(folder, tmp_path / "new")
    assert done.tensors == len(load_file(saved / "model.safetensors"))
    assert (scores(tmp_path / "new") == scores(saved)).all()
    assert not list((tmp_path / "new").rglob("*.bin"))


def test_tied_weights_are_written_out(tmp_path: Path) -> None:
    model = AutoModelForMaskedLM.from_config(CONFIGS["bert"]())
    (tmp_path / "old").mkdir()
    model.config.save_pretrained(tmp_path / "old")
    state = model.state_dict()
    shared = [
        name for name in state if state[name].data_ptr() == state["bert.embeddings.word_embeddings.weight"].data_ptr()
    ]
    assert len(shared) == 2
    state["slice"] = state["bert.embeddings.word_embeddings.weight"].t()[1:3]
    torch.save(state, tmp_path / "old" / "pytorch_model.bin")
    convert(tmp_path / "old", tmp_path / "new")
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert set(written) == set(state)
    assert all(torch.equal(written[name], state[name]) for name in state)


def test_code_and_links_stay_behind(folder: Path, tmp_path: Path) -> None:
    as_pickle(folder)
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    done = convert(folder, tmp_path / "new")
    assert "1_Pooling/config.json" in done.copied
    assert not list((tmp_path / "new").rglob("*.py"))
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "notes.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ModelError, match="outside of its folder"):
        convert(folder, tmp_path / "newer")
    assert not (tmp_path / "newer").exists()


def test_what_cannot_be_converted_is_named(folder: Path, tmp_path: Path) -> None:
    cases: list[tuple[Change, type[IsthmusError], str]] = [
        (lambda _: None, UsageError, "already"),
        (lambda place: (place / "model.safetensors").unlink(), ModelError, "no weights to convert"),
        (lambda place: torch.save({"epoch": 3}, place / "pytorch_model.bin"), ModelError, "'epoch'"),
        (lambda place: torch.save([1], place / "pytorch_model.bin"), ModelError, "list"),
        (lambda place: (place / "pytorch_model.bin").write_bytes(b"PK junk"), ModelError, "was not run"),
        (lambda place: (place / "pytorch_model.bin").write_bytes(b""), ModelError, "plain file of weights"),
    ]
    for change, kind, said in cases:
        change(folder)
        with pytest.raises(kind, match=said):
            convert(folder, tmp_path / "new")
        assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="there already"):
        convert(folder, tmp_path / "there")
    with pytest.raises(ModelError, match="no model folder"):
        convert(tmp_path / "nowhere", tmp_path / "new")
