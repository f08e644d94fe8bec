"""The program: its verbs, and how errors are shown.

An error isthmus raises on purpose is one message on stderr and its exit code. Anything else is a fault of ours: one
line, and the traceback in a file (or on stderr with ``--debug``).
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli import (
    assets,
    attack,
    certify,
    convert,
    doctor,
    evaluate,
    explain,
    export,
    measure,
    report,
    show,
    show_words,
    train,
)  # fmt: skip
from isthmus.cli import list as list_verb
from isthmus.core.errors import ExitCode, IsthmusError, IsthmusWarning, RunError, UsageError, VictimError
from isthmus.core.files import explain_error as explained
from isthmus.core.redaction import redact

app = typer.Typer(
    name="isthmus",
    help="Make text classifiers hard to fool, and prove how hard.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _verb(name: str, panel: str, verb: Callable[..., None]) -> None:
    """Add a verb. Whatever ends it early is an error: foreign code must not choose the exit code.

    A verb of ours returns, or raises `typer.Exit` with a code other than 0. A model or a library that calls
    ``sys.exit(0)`` would otherwise end the command with the code that means "passed".
    """

    @functools.wraps(verb)
    def run_guarded(*given: Any, **options: Any) -> None:
        try:
            verb(*given, **options)
        except SystemExit as stop:
            raise VictimError(f"the model, or code it calls, ended the process: sys.exit({stop.code!r})") from stop
        except EOFError as error:  # typer would end with "Aborted" and the code of a failed gate.
            raise RuntimeError(f"unexpected end of file: {error}") from error
        except typer.Exit as stop:
            if not stop.exit_code:
                raise VictimError("the model, or code it calls, ended the command before there was a result") from stop
            raise
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # Python itself would end with 1, the code of a failed gate.
            raise VictimError(f"the model, or code it calls, raised {type(error).__name__}: {error}") from error

    app.command(name, rich_help_panel=panel)(run_guarded)


for _name, _panel, _function in (
    ("train", "Work", train.train),
    ("attack", "Work", attack.attack),
    ("evaluate", "Work", evaluate.evaluate),
    ("certify", "Work", certify.certify),
    ("measure", "Work", measure.measure),
    ("explain", "Look", explain.explain),
    ("report", "Look", report.report),
    ("export", "Look", export.export),
    ("list", "Look", list_verb.list_methods),
    ("show", "Look", show.show),
    ("show-words", "Look", show_words.show_words),
    ("convert", "Set up", convert.convert),
    ("assets", "Set up", assets.assets),
    ("doctor", "Set up", doctor.doctor),
):
    _verb(_name, _panel, _function)


def _print_version(wanted: bool) -> None:
    if wanted:
        from isthmus import __version__

        typer.echo(f"isthmus {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Make text classifiers hard to fool, and prove how hard."""


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    from isthmus.cli.streams import steady_streams

    with steady_streams():
        code = _run(arguments)
        try:
            sys.stdout.flush()
        except RunError as error:  # What was not written is lost: this is not "passed".
            _say(f"error: {error}")
            return code or ExitCode.ERROR
        return code


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments or bool(os.environ.get("ISTHMUS_DEBUG"))
    # Wherever it stands: who adds it has just seen an error and appends it to the line.
    arguments = [argument for argument in arguments if argument != "--debug"]
    _prepare_libraries()
    try:
        _refuse_nul(arguments)
        app(arguments, prog_name="isthmus")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except IsthmusError as error:
        if debug:
            _print_traceback()
        _say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:
        return _report_unexpected(error, debug)
    return 0


def _report_unexpected(error: Exception, debug: bool) -> int:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        _say("error: out of memory: attack fewer texts at once (--in-flight), or lower --batch-size or --n")
        return ExitCode.ERROR
    if debug:
        _print_traceback()
        return ExitCode.ERROR
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        # What the system refuses about a file is for the user to mend, wherever it came up.
        _say(f"error: cannot use {str(error.filename)[:200]}: {explained(error)}")
        return ExitCode.ERROR
    handle, name = tempfile.mkstemp(prefix="isthmus-", suffix=".log", text=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
        stream.write(redact(traceback.format_exc()))
    first = (redact(str(error)).splitlines() or [""])[0][:300]
    _say(f"error: {type(error).__name__}: {first}\nThis is a bug in isthmus. The traceback is in {Path(name)}")
    return ExitCode.ERROR


def _refuse_nul(arguments: list[str]) -> None:
    """Refuse NUL characters: a program can pass one, but no file system accepts it."""
    for argument in arguments:
        if "\0" in argument:
            raise UsageError(f"an argument holds a NUL character: {argument!r:.200}")


def _print_traceback() -> None:
    from isthmus.cli.console import to_stderr

    to_stderr(redact(traceback.format_exc()).rstrip())


def _say(message: str) -> None:
    from isthmus.cli.console import to_stderr

    to_stderr(message)


def _prepare_libraries() -> None:
    """Quiet libraries before they are imported: no loading bars, advice, fork warnings or spinning threads."""
    for name, value in {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DATASETS_VERBOSITY": "error",
        # Threads that wait for each other sleep instead of spinning: on a busy machine, or in a container that may use
        # fewer cores than it sees, spinning made a forward pass ten times slower. On an idle one it is no loss.
        "OMP_WAIT_POLICY": "PASSIVE",
    }.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        import warnings

        warnings.simplefilter("ignore")
        warnings.simplefilter("always", IsthmusWarning)
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
