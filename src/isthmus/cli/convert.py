"""``isthmus convert``: convert pickled weights to safetensors."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import options


def convert(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A transformers folder with pytorch_model.bin.")],
    out: Annotated[str, typer.Option("--out", metavar="NEW", help="The folder to write; it must not exist yet.")],
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert a model with pickled weights to a folder that isthmus reads: safetensors, configuration, tokenizer.

    Reading a pickle can run code, so no other verb does. Here torch makes tensors of it and refuses everything else;
    convert untrusted files in a sandbox nevertheless.

    isthmus convert old-model --out new-model
    """
    from isthmus.cli.console import print_json, progress_console
    from isthmus.models.convert import convert as write

    done = write(folder, out)
    line = f"{done.folder}: {done.tensors:,} tensors, {done.size / 1e6:,.1f} MB, from {', '.join(done.sources)}"
    progress_console(quiet).print(line, markup=False, soft_wrap=True)
    if as_json:
        print_json(
            {
                "folder": done.folder.as_posix(),
                "sources": list(done.sources),
                "tensors": done.tensors,
                "bytes": done.size,
                "copied": list(done.copied),
            }
        )
