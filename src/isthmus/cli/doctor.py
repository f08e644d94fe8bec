"""``isthmus doctor``: what is installed, which device, which assets, what is missing and how to get it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import options
from isthmus.core.errors import ExitCode

_CORE = ("torch", "transformers", "accelerate", "numpy", "scipy", "safetensors", "typer", "rich")
_EXTRAS = {
    "report": (("jinja2", "matplotlib"), "the HTML report"),
    "data": (("datasets", "pyarrow"), "hub data sets, parquet files"),
    "images": (("pillow",), "folders of images, fetching cifar10"),
    "onnx": (("onnxruntime",), "attacking ONNX files"),
    "sklearn": (("scikit-learn",), "attacking scikit-learn pipelines"),
    "spacy": (("spacy",), "the part-of-speech tagger 'spacy'"),
}


@dataclass(frozen=True)
class Finding:
    """One line: the state of one part, and the remedy if it is missing or bad."""

    section: str
    name: str
    state: str
    """ok, missing, or bad; bad means isthmus cannot work."""
    detail: str
    remedy: str = ""


def doctor(
    network: Annotated[
        bool, typer.Option("--network", help="Also check whether the model hub can be reached.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say what is installed, which device and assets there are, and how to get what is missing."""
    from isthmus.cli.console import print_json, results

    findings = list(examine(network))
    if as_json:
        print_json({"findings": [vars(finding) for finding in findings], "ok": not _is_broken(findings)})
    else:
        _print(results(as_json=False), findings)
    if _is_broken(findings):
        raise typer.Exit(ExitCode.FAILED)


def _is_broken(findings: list[Finding]) -> bool:
    return any(finding.state == "bad" for finding in findings)


def examine(network: bool = False) -> Iterator[Finding]:
    """Check everything about this installation."""
    yield from _libraries()
    yield from _extras()
    yield from _check_machine()
    yield from _assets()
    yield from check_resources()
    yield from _check_places()
    if network:
        from isthmus.assets.hub import reachable

        if reachable():
            yield Finding("places", "model hub", "ok", "can be reached")
        else:
            yield Finding(
                "places", "model hub", "missing", "cannot be reached", "assets are fetched from your package index"
            )


def _libraries() -> Iterator[Finding]:
    import platform

    import isthmus
    from isthmus.core import compiled
    from isthmus.runs.provenance import library_version

    yield Finding("installed", "isthmus", "ok", isthmus.__version__)
    yield Finding("installed", "python", "ok", platform.python_version())
    if compiled.part is None:
        remedy = "speeds up attacks on a GPU: install isthmus from source with a C compiler available"
        yield Finding("installed", "compiled part", "missing", f"not used: {compiled.why_not()}", remedy)
    else:
        yield Finding("installed", "compiled part", "ok", "used by the attack engine")
    for name in _CORE:
        version = library_version(name)
        if version is None:
            yield Finding("installed", name, "bad", "not installed", f"pip install {name}")
        else:
            yield Finding("installed", name, "ok", version)


def _extras() -> Iterator[Finding]:
    from isthmus.runs.provenance import library_version

    for extra, (names, purpose) in _EXTRAS.items():
        versions = {name: library_version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            remedy = f"pip install 'isthmus[{extra}]'"
            yield Finding("extras", extra, "missing", f"{purpose}: no {', '.join(missing)}", remedy)
        else:
            shown = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield Finding("extras", extra, "ok", f"{purpose}: {shown}")


def _check_machine() -> Iterator[Finding]:
    from isthmus.runs.provenance import memory_gib, processor_name, usable_cores

    memory = memory_gib()
    shown = f"{processor_name()}, {usable_cores()} cores" + (f", {memory} GiB" if memory else "")
    yield Finding("machine", "processor", "ok", shown)
    try:
        import torch

        from isthmus.core.hardware import attacks_faster_in_bfloat16, has_fast_bfloat16
    except Exception as error:  # a broken torch fails to import in many ways
        yield Finding("machine", "device", "bad", f"torch cannot be imported: {error}", "reinstall torch")
        return
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield Finding(
                "machine", f"cuda:{index}", "ok", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
            )
        device = "cuda"
    else:
        yield Finding("machine", "device", "ok", f"cpu, {torch.get_num_threads()} threads (no CUDA device)")
        device = "cpu"
    if has_fast_bfloat16(device):
        yield Finding("machine", "bfloat16", "ok", f"native on {device}: --precision bf16 is faster")
    elif attacks_faster_in_bfloat16(device):
        yield Finding("machine", "bfloat16", "ok", "attack --precision bf16 is faster; training uses fp32")
    else:
        yield Finding("machine", "bfloat16", "ok", f"no gain on {device}: fp32 is used")


def _assets() -> Iterator[Finding]:
    from isthmus import assets

    for name in assets.names():
        status, asset = assets.status(name), assets.find(name)
        if status.state == "ready":
            where = "own copy" if status.origin == "user" else "in the cache"
            yield Finding("assets", name, "ok", f"{asset.description} ({where})")
        else:
            detail = f"{asset.description} ({status.size / 1e6:,.0f} MB)"
            detail += f": {status.problem}" if status.problem else ""
            force = " --force" if status.state == "damaged" else ""
            yield Finding("assets", name, "missing", detail, f"isthmus assets fetch {name}{force}")


def check_resources() -> Iterator[Finding]:
    """The lexical resources of attacks, and which of them are stand-ins for a paper's resource."""
    from isthmus.core.errors import AssetError
    from isthmus.lexicon.counterfit import STAND_IN, stand_in_path
    from isthmus.lexicon.neighbours import PUBLISHED, find_published_vectors
    from isthmus.lexicon.perceptron import find_tagger_data
    from isthmus.lexicon.tags import find_spacy_model

    section, published = "lexical resources", find_published_vectors()
    if published is not None:
        yield Finding(section, "word vectors", "ok", f"the published counter-fitted vectors ({published})")
    else:
        when = "built" if stand_in_path().is_file() else "built when first used, from glove and wordnet"
        remedy = f"put the published {PUBLISHED} into {stand_in_path().parent}"
        yield Finding(section, "word vectors", "missing", f"{STAND_IN}; {when}", remedy)
    detail = "minilm with the head shipped with isthmus (stand-in for BERT-base)"
    yield Finding(section, "masked LM", "ok", f"{detail}; another: -P masked_lm=FOLDER")
    detail = "WordNet's sister terms (substitute for HowNet)"
    yield Finding(section, "sememes", "ok", f"{detail}; a table: -P sememes=FILE")
    try:
        yield Finding(section, "tagger nltk", "ok", f"data in {find_tagger_data()}")
    except AssetError:
        remedy = "python -m nltk.downloader averaged_perceptron_tagger_eng"
        yield Finding(section, "tagger nltk", "missing", "no data; the default tagger is wordnet", remedy)
    model = find_spacy_model()
    if model is not None:
        yield Finding(section, "tagger spacy", "ok", model)
    else:
        remedy = "python -m spacy download en_core_web_md, or its folder as $ISTHMUS_ASSETS/spacy_en"
        yield Finding(section, "tagger spacy", "missing", "no English pipeline; the default tagger is wordnet", remedy)


def _check_places() -> Iterator[Finding]:
    import importlib.util
    import os

    from isthmus import assets

    cache = assets.cache_folder()
    holder = next(parent for parent in (cache, *cache.parents) if parent.exists())
    free = shutil.disk_usage(holder).free / 1e9
    if os.access(holder, os.W_OK):
        yield Finding("places", "cache", "ok", f"{cache}, {free:,.0f} GB free")
    else:
        yield Finding("places", "cache", "bad", f"{cache} is not writable", "set ISTHMUS_CACHE to another folder")
    if os.access(Path.cwd(), os.W_OK):
        yield Finding("places", "runs", "ok", str(Path.cwd() / "runs"))
    else:
        yield Finding("places", "runs", "missing", f"{Path.cwd()} is not writable", "give --out another folder")
    if importlib.util.find_spec("pip") is None:
        remedy = "python -m ensurepip, or put files into $ISTHMUS_ASSETS"
        yield Finding(
            "places", "pip", "missing", "not installed: assets cannot be fetched from a package index", remedy
        )


def _print(console: object, findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    assert isinstance(console, Console)
    signs = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "bad": ("✗", "bold red")}
    for section in dict.fromkeys(finding.section for finding in findings):
        console.print(Text(section, style="bold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            if finding.section == section:
                detail = Text(finding.detail)
                if finding.remedy:
                    detail.append(f"\n{finding.remedy}", style="cyan")
                table.add_row(Text(f"  {signs[finding.state][0]}", style=signs[finding.state][1]), finding.name, detail)
        console.print(table)
        console.print()
    missing = sum(finding.state == "missing" for finding in findings)
    if _is_broken(findings):
        console.print(Text("isthmus cannot work: see ✗ above.", style="bold red"))
    elif missing:
        console.print(Text(f"Everything required is installed; {missing} optional parts are missing.", style="dim"))
    else:
        console.print(Text("Everything is installed.", style="dim"))
