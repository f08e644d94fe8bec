"""The origin of a result: versions of the software, and the machine, without anything personal."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import mmap
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import isthmus

LIBRARIES = ("torch", "transformers", "accelerate", "numpy", "scipy", "safetensors", "tokenizers")
_WEIGHTS = (".safetensors", ".json", ".txt")
_VOCABULARY = (".bpe", ".codes", ".model", ".spm", ".tiktoken", ".tokenizer", ".vocab")
_BESIDE_ONNX = ("added_tokens", "config", "merges", "special_tokens", "tokenizer", "vocab")
"""How the names of files begin that an ONNX file's tokenizer and classes are read from; other files may lie there."""
_LOCATION = re.compile(rb"\x0a\x08location\x12")
"""How an ONNX file names a file that holds tensors: an entry of a map with the key "location"; its value follows."""


def versions() -> dict[str, str]:
    """Versions of isthmus, Python and the libraries that compute, without importing them."""
    found = {"isthmus": isthmus.__version__, "python": platform.python_version()}
    for name in LIBRARIES:
        version = library_version(name)
        if version is not None:
            found[name] = version
    return found


def library_version(name: str) -> str | None:
    """The installed version of a library, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine(device: str | None = None) -> dict[str, Any]:
    """System, processor, cores, memory and device; no host or user name."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor_name(),
        "cores": usable_cores(),
        "memory_gib": memory_gib(),
    }
    if device is not None:
        found["device"] = device
    return found


def processor_name() -> str:
    """The processor's marketing name, if the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float | None:
    """Physical memory, if the system tells it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def now() -> str:
    """The current time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()


def fingerprint(path: Path) -> str | None:
    """16 hex digits over the files of a local model, so that rows of two models are never mixed.

    Of a folder: weights, tokenizer and configuration. Of an ONNX file: the files it keeps its tensors in, and the
    tokenizer and configuration beside it. None where `path` is not a local file or folder.
    """
    if path.is_dir():
        # Only what lies right in the folder: nothing deeper is ever read.
        read = (*_WEIGHTS, *_VOCABULARY)
        files = {file.name: file for file in path.iterdir() if file.suffix in read and file.is_file()}
    elif path.is_file():
        files = {path.name: path} if path.suffix != ".onnx" else _onnx_files(path)
    else:
        return None
    digest = hashlib.blake2b(digest_size=8)
    for name, file in sorted(files.items()):
        digest.update(f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def hash_named_files(method: Any, *more: str | None) -> dict[str, str]:
    """Hash the local files and model folders named by the fields of a method, and `more`, each by its content."""
    values = [getattr(method, each.name) for each in dataclasses.fields(method)] + list(more)
    found = {}
    for value in values:
        path = Path(value).expanduser() if isinstance(value, str) and value and "\0" not in value else None
        with contextlib.suppress(OSError):  # A text that is no path: too long, say.
            if path is not None and (path.is_file() or (path / "config.json").is_file()):
                found[str(value)] = fingerprint(path) or ""
    return found


def _onnx_files(file: Path) -> dict[str, Path]:
    """An ONNX file with all files that decide its answers, by name."""
    found = {file.name: file}
    for place in (file.parent, file.parent.parent):
        beside = {each.name: each for each in place.iterdir() if each.is_file() and _is_beside_onnx(each)}
        if beside.keys() & {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}:
            found |= {f"tokenizer/{name}": each for name, each in beside.items()}
            break
    for location in _tensor_files(file):
        outside = file.parent / location
        if outside.is_file():
            found[f"tensors/{location}"] = outside
    return found


def _is_beside_onnx(file: Path) -> bool:
    return file.suffix in _VOCABULARY or (file.name.startswith(_BESIDE_ONNX) and file.suffix in _WEIGHTS)


def _tensor_files(file: Path) -> set[str]:
    """The files with the tensors of an ONNX file, by their names in it."""
    if not file.stat().st_size:
        return set()
    found = set()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for match in _LOCATION.finditer(content):
            size, place = 0, match.end()
            for shift in range(0, 35, 7):  # A variable-length integer, the lowest seven bits first.
                byte = content[place] if place < len(content) else 0
                size, place = size | (byte & 0x7F) << shift, place + 1
                if byte < 0x80:
                    break
            if 0 < size <= 4096:
                found.add(content[place : place + size].decode(errors="surrogateescape"))
    return {location for location in found if "\0" not in location}
