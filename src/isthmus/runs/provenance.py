"""Where a result comes from: versions of what computed it, and the machine, without anything personal."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import isthmus

LIBRARIES = ("torch", "transformers", "accelerate", "numpy", "scipy", "safetensors", "tokenizers")
_MODEL_FILES = (".safetensors", ".json", ".txt", ".model", ".onnx")


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
    """The processor's marketing name where the system tells it."""
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
    """Physical memory, where the system tells it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def now() -> str:
    """The present moment in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()


def fingerprint(path: Path) -> str | None:
    """16 hex digits over the files that make up a local model, so that rows of two models are never mixed.

    None where `path` is not a local file or folder.
    """
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix in _MODEL_FILES)
    else:
        return None
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        digest.update(f"{file.relative_to(path) if path.is_dir() else file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def peak_memory_mib() -> float | None:
    """The most memory this process has held, where the system tells it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
