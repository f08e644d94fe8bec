"""Pages that a site has beside those of this folder: the reference, made from the code, and pages of the repository.

They are written to `reference/` and `project/` before Sphinx looks for pages, and only where their text has changed, so
that a second build reads nothing twice. The navigation is here, too: pages stay plain Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NAVIGATION: Mapping[str, tuple[str, ...]] = {
    "": ("start",),
    "Guides": (
        "guides/attack",
        "guides/harden",
        "guides/certify",
        "guides/ci",
        "randomised-models",
        "python",
    ),
    "Topics": (
        "attacks",
        "defences",
        "composition",
        "augmentation",
        "certificates",
        "evaluate",
        "report",
        "measures",
        "explanations",
        "victims",
        "images",
        "gradient-attacks",
        "question-answering",
        "extensions",
        "exit-codes",
        "intervals",
    ),
    "Reference": ("reference/commands/index", "reference/api/index"),
    "Results": tuple(sorted(f"results/{page.stem}" for page in (ROOT / "docs/results").glob("*.md"))),
    "How it is built": (
        "architecture",
        "reliability",
        "project/contributing",
        "project/security",
        "project/benchmarks",
        "project/changelog",
    ),
}
"""What the side bar shows, part by part."""
COPIED = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "README.md": "index.md",
}
"""Pages of the repository, and where the site has them; a link to the front page leads to the site's own."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


# Pages of the repository


def move_links(text: str, place: str, to: str) -> str:
    """A page's text with links that lead where the site has their target.

    `place` is the page in the repository, `to` its place in the site. A link to a file that the site does not have
    becomes the file's name.
    """

    def moved(link: re.Match[str]) -> str:
        mark, words, target, heading = link[1], link[2], link[3], link[4] or ""
        if "://" in target or not target:
            return link[0]
        path = ((ROOT / place).parent / target).resolve().relative_to(ROOT).as_posix()
        found = COPIED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if found is None:
            return words if words.startswith("`") else f"{words} (`{path}`)" if path != words else f"`{path}`"
        return f"{mark}[{words}](/{found}{heading})" if found != to else f"[{words}]({heading})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def copied_pages() -> Iterator[tuple[str, str]]:
    """Pages from outside this folder."""
    for place, to in COPIED.items():
        if to != "index.md":
            yield to, move_links((ROOT / place).read_text(encoding="utf-8"), place, to)


# The command line


def command_pages() -> Iterator[tuple[str, str]]:
    """One page for every verb, and one that lists them."""
    from typer.main import get_command

    from isthmus.cli.app import app

    program: Any = get_command(app)
    panels: dict[str, list[Any]] = {}
    for name, verb in program.commands.items():
        panels.setdefault(verb.rich_help_panel or "", []).append(verb)
        yield f"reference/commands/{name}.md", _verb_page(verb, program)
    lines = ["# Command line", "", "Made from the program itself: the same texts as `isthmus --help`.", ""]
    for panel, verbs in panels.items():
        lines += [f"## {panel}", "", "| verb | |", "|---|---|"]
        lines += [f"| [`{verb.name}`]({verb.name}.md) | {_cell(_paragraphs(verb)[0])} |" for verb in verbs]
        lines.append("")
    lines += ["## For every verb", "", *_table(program.params), ""]
    lines += ["```{toctree}", ":hidden:", "", *program.commands, "```", ""]
    yield "reference/commands/index.md", "\n".join(lines)


def _paragraphs(verb: Any) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(verb.help or "").split("\n\n") if part.strip()]


def _verb_page(verb: Any, program: Any) -> str:
    context = program.make_context("isthmus", [], resilient_parsing=True)
    usage = verb.make_context(verb.name, [], parent=context, resilient_parsing=True)
    lines = [f"# isthmus {verb.name}", "", *_prose(_paragraphs(verb))]
    lines += ["```text", " ".join(["isthmus", verb.name, *verb.collect_usage_pieces(usage)]), "```", ""]
    panels: dict[str, list[Any]] = {}
    for parameter in verb.params:
        if not getattr(parameter, "hidden", False):
            is_option = parameter.param_type_name == "option"
            panel = getattr(parameter, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
            panels.setdefault(panel, []).append(parameter)
    for panel in sorted(panels, key=lambda each: ("Arguments", "Options", each).index(each)):
        lines += [f"## {panel}", "", *_table(panels[panel]), ""]
    return "\n".join(lines)


def _prose(paragraphs: list[str]) -> Iterator[str]:
    """Sentences as they are, examples as code."""
    for paragraph in paragraphs:
        yield from (["```sh", paragraph, "```", ""] if paragraph.startswith("isthmus ") else [paragraph, ""])


def _table(parameters: list[Any]) -> Iterator[str]:
    yield from ("| | default | |", "|---|---|---|")
    for parameter in parameters:
        yield f"| {_spelling(parameter)} | {_default(parameter)} | {_cell(getattr(parameter, 'help', None) or '')} |"


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    takes = "" if parameter.is_flag else f" `{parameter.metavar or _type(parameter)}`"
    return ", ".join(names) + takes


def _type(parameter: Any) -> str:
    """What an option takes, in the words of ``--help``."""
    annotation = parameter.type_descriptor.annotation
    return {int: "INTEGER", float: "FLOAT"}.get(annotation, "TEXT")


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value == [] or callable(value) or parameter.required or "default:" in (parameter.help or ""):
        return ""
    if getattr(parameter, "is_flag", False):
        return "on" if value else ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# Python


def api_pages() -> Iterator[tuple[str, str]]:
    """One page for every public module, and one for the functions of the package itself."""
    import isthmus

    modules = [name for name in isthmus.__all__ if inspect.ismodule(getattr(isthmus, name))]
    names = [name for name in isthmus.__all__ if name not in modules]
    lines = ["# Python", "", "Public names, with their docstrings. `import isthmus` loads nothing heavy.", ""]
    lines += ["| module | |", "|---|---|"]
    for module in modules:
        lines.append(f"| [`isthmus.{module}`]({module}.md) | {_cell(_first(getattr(isthmus, module)))} |")
        yield f"reference/api/{module}.md", _module_page(f"isthmus.{module}", getattr(isthmus, module))
    # What a module offers as well is described there, once.
    homes = {
        id(getattr(getattr(isthmus, home), name)): home for home in modules for name in getattr(isthmus, home).__all__
    }
    own = [name for name in names if id(getattr(isthmus, name)) not in homes]
    elsewhere = [(name, homes[id(getattr(isthmus, name))]) for name in names if name not in own]
    if elsewhere:
        links = ", ".join(f"[`{name}`]({home}.md)" for name, home in elsewhere)
        lines += ["", f"Described with their modules: {links}."]
    lines += ["", *_autodoc("isthmus", isthmus, own), "```{toctree}", ":hidden:", "", *modules, "```", ""]
    yield "reference/api/index.md", "\n".join(lines)


def _first(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _module_page(name: str, module: Any) -> str:
    lines = [f"# {name}", "", _first(module), ""]
    return "\n".join([*lines, *_autodoc(name, module, sorted(module.__all__, key=str.casefold))])


def _autodoc(place: str, module: Any, names: list[str]) -> Iterator[str]:
    for name in names:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            bases = ["   :show-inheritance:"] if thing.__bases__ != (object,) else []
            directive = [f".. autoclass:: {place}.{name}", "   :members:", *bases]
        elif callable(thing):
            directive = [f".. autofunction:: {place}.{name}"]
        else:
            directive = [f".. autodata:: {place}.{name}"]
        yield from (f"## {name}", "", "```{eval-rst}", *directive, "```", "")


# Sphinx


def write_pages(folder: Path) -> None:
    """Write all pages that are made, and remove those that were made before and are no more."""
    made = {folder / name: text for pages in (copied_pages(), command_pages(), api_pages()) for name, text in pages}
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for part in ("reference", "project"):
        for path in (folder / part).rglob("*.md"):
            if path not in made:
                path.unlink()


def navigation() -> str:
    """The side bar, for the end of the front page."""
    lines = []
    for caption, pages in NAVIGATION.items():
        lines += ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```"]
    return "\n".join([*lines, ""])


def setup(app: Any) -> dict[str, bool]:
    """Write the pages first, and mend links while pages are read."""

    def begin(app: Any, config: object) -> None:
        del config
        write_pages(Path(app.srcdir))

    def read(app: Any, name: str, source: list[str]) -> None:
        del app
        if not name.startswith(("reference/", "project/")):
            source[0] = move_links(source[0], f"docs/{name}.md", f"{name}.md")
        if name == "index":
            source[0] += navigation()

    app.connect("config-inited", begin)
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
