"""Models, word lists and data sets by name: what is there, fetched and verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UsageError

if TYPE_CHECKING:
    from isthmus.assets import AssetStatus, Report


def list_assets(*names: str) -> list[AssetStatus]:
    """Where models, word lists and data sets stand: ``ready``, ``missing`` or ``damaged``; without names all of them.

    >>> from isthmus import list_assets
    >>> [status.name for status in list_assets("minilm", "wordnet")]
    ['minilm', 'wordnet']
    """
    from isthmus import assets

    return [assets.status(name) for name in assets.expand(_check_names(names) or ("all",))]


def fetch_assets(*names: str, force: bool = False, progress: Report | None = None) -> dict[str, Path]:
    """Fetch models, word lists and data sets, and return their folders; what is whole is kept unless `force`.

    ``default`` is what the README needs, ``all`` is everything. `progress` is told how far each is.

    >>> from isthmus import IsthmusError, fetch_assets
    >>> try:
    ...     fetch_assets("wordnt")
    ... except IsthmusError as error:
    ...     print(error)  # doctest: +ELLIPSIS
    no asset named 'wordnt'. Did you mean 'wordnet'?...
    """
    from isthmus import assets

    if not names:
        raise UsageError("no asset named: fetch_assets('default'), or any of " + ", ".join(assets.names()))
    found: dict[str, Path] = {}
    for name in assets.expand(_check_names(names)):
        own = None if force else assets.user_folder(name)
        found[name] = own if own is not None else assets.fetch(name, progress, force=force)
    return found


def verify_assets(*names: str) -> list[AssetStatus]:
    """Hash every file again and say where the assets stand; without names those that are there.

    >>> from isthmus import verify_assets
    >>> [status.name for status in verify_assets("wordnet")]
    ['wordnet']
    """
    from isthmus import assets

    every = [name for name in assets.names() if assets.available(name)]
    return [assets.verify(name) for name in (assets.expand(_check_names(names)) if names else every)]


def _check_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"assets are named one by one, such as 'minilm', 'wordnet'; {name!r:.80} is no name")
    return names
