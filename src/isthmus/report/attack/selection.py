"""The attacks of a run that a command or a caller names."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.errors import UnknownName, UsageError
from isthmus.report.attack.view import AttackView
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder


def select_attacks(folder: RunFolder, names: Sequence[str] | None = None) -> list[AttackView]:
    """The attacks of these names that have results; all of them where none is named."""
    views = [view for view in read_run(folder).attacks if view.results]
    if not views:
        raise UsageError(f"{folder.path} has no attack results yet: isthmus attack {folder.path}")
    if names is None:
        return views
    known = {view.key: view for view in views}
    for name in names:
        if name not in known:
            raise UnknownName(f"attack in {folder.path}", name, known)
    return [known[name] for name in dict.fromkeys(names)]
