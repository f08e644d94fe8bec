"""The ledger's files and the tables of docs/results that are written from them.

    python benchmarks/tables.py write                      rewrite every table between markers
    python benchmarks/tables.py check                      exit code 1 where a table differs from the ledger
    python benchmarks/tables.py list                       what the ledger holds
    python benchmarks/tables.py merge FOLDER [--prefer ours|theirs]   add the cells of another machine's results

`merge` takes files `<page>.jsonl`, or folders of them, into `results/<page>.jsonl`; cells that contradict what is there
are refused unless one side is preferred. `ledger/pages.py` says how a page names its tables.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from ledger.pages import figures, stale, written
from ledger.store import Ledger, merge

REPOSITORY = Path(__file__).resolve().parents[1]


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("work", choices=("write", "check", "list", "merge"))
    options.add_argument("files", nargs="*", type=Path, help="of merge: files or folders from another machine")
    options.add_argument("--prefer", choices=("neither", "ours", "theirs"), default="neither")
    options.add_argument("--results", type=Path, default=REPOSITORY / "results")
    options.add_argument("--pages", type=Path, default=REPOSITORY / "docs" / "results")
    return options.parse_args()


def main() -> None:
    options = arguments()
    pages = sorted(options.pages.glob("*.md"))
    try:
        if options.work == "write":
            for page in stale(pages, options.results):
                write_atomic(page, written(page.read_text(encoding="utf-8"), options.results))
                print(f"wrote {page.name}")
        elif options.work == "check":
            if found := stale(pages, options.results):
                sys.exit(f"{', '.join(page.name for page in found)}: a table differs from the ledger; run `write`")
        elif options.work == "list":
            for path in sorted(options.results.glob("*.jsonl")):
                print(path.name, *(f"  {count:4} {name}" for name, count in figures(Ledger(path)).items()), sep="\n")
        else:
            take_in(options)
    except IsthmusError as error:
        sys.exit(str(error))


def take_in(options: argparse.Namespace) -> None:
    """Add what came back from another machine."""
    paths = [path for each in options.files for path in (sorted(each.glob("*.jsonl")) if each.is_dir() else [each])]
    if not paths:
        sys.exit("name the files to merge, or a folder that holds some")
    for path in paths:
        added, replaced = merge(Ledger(options.results / path.name), [Ledger(path)], options.prefer)
        print(f"{path.name}: {added} cells added, {replaced} replaced")


if __name__ == "__main__":
    main()
