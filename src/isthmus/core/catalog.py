"""Finds methods of every family by file name, and reads about them without importing them.

In a family's folders every file but ``base.py`` and files that start with ``_`` is one method: the class whose
lower-cased name equals the file's name without underscores (``label_smoothing.py`` holds ``LabelSmoothing``). There is
no registry: a new method is one new file. Docstrings and parameters are read by `ast`, so listing a hundred methods
imports none of them; `Entry.load` imports one.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core._convert import convert
from isthmus.core.errors import IsthmusError, UnknownName, UsageError

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "attacks": ("attacks/words", "attacks/gradient"),
    "defences": ("defences",),
    "measures": ("measures",),
    "certificates": ("certify",),
    "explanations": ("explanations",),
}
_SINGULAR = {
    "attacks": "attack", "defences": "defence", "measures": "measure", "certificates": "certificate",
    "explanations": "explanation",
}  # fmt: skip
_ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = __name__.split(".")[0]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyper-parameter of a method, as its source states it."""

    name: str
    annotation: str
    default: str | None
    """Source text of the default; None where the parameter must be given."""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: where it is, and what its source says about it."""

    family: str
    name: str
    path: Path
    module: str
    class_name: str
    docstring: str
    parameters: tuple[Parameter, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, on one line."""
        paragraph = self.docstring.split("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def kind(self) -> str:
        """The folder it lies in: `words` and `gradient` are kinds of attacks."""
        return self.path.parent.name

    @property
    def address(self) -> str:
        """What stands before a parameter that is meant for this method: ``freelb`` in ``freelb.steps``."""
        return self.name

    def load(self) -> type[Any]:
        """Import the module and return the class."""
        loaded = getattr(importlib.import_module(self.module), self.class_name)
        assert isinstance(loaded, type)
        return loaded


def names(family: str) -> tuple[str, ...]:
    """Sorted names of the methods of a family."""
    return tuple(sorted(_files(family)))


def entries(family: str) -> tuple[Entry, ...]:
    """Every method of a family, sorted by name."""
    return tuple(find(family, name) for name in names(family))


def find(family: str, name: str) -> Entry:
    """The method called `name`; case, hyphens and underscores do not matter."""
    files = _files(family)
    wanted = _plain(name)
    for known, path in files.items():
        if _plain(known) == wanted:
            return _read(family, known, path)
    raise UnknownName(_SINGULAR[family], name, files)


def search(name: str) -> tuple[Entry, ...]:
    """The methods called `name` in any family (``pgd`` is an attack and a defence)."""
    found = [find(family, name) for family in FAMILIES if _plain(name) in map(_plain, _files(family))]
    if not found:
        raise UnknownName("method", name, {known for family in FAMILIES for known in _files(family)})
    return tuple(found)


def build(family: str, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """An instance of the method with its `parameters`; strings are converted by the parameter's annotation."""
    entry = find(family, name)
    known = {parameter.name: parameter for parameter in entry.parameters}
    for key in parameters or {}:
        if key not in known:
            hint = "" if known else f"{entry.name} takes none."
            raise UnknownName(f"parameter of {entry.name}", key, known, hint)
    given = {
        key: convert(value, known[key].annotation, f"{entry.name}: {key}") if isinstance(value, str) else value
        for key, value in (parameters or {}).items()
    }
    missing = [key for key, parameter in known.items() if parameter.default is None and key not in given]
    if missing:
        raise UsageError(f"{entry.name} needs {', '.join(missing)}: give {missing[0]}=VALUE")
    try:
        return entry.load()(**given)
    except IsthmusError:
        raise
    except (TypeError, ValueError) as error:
        raise UsageError(f"{entry.name}: {error}") from error


def name_of(method: object, family: str) -> str:
    """The name by which a method of `family` is found: its file's, or its class's where it is somebody's own."""
    package, _, name = type(method).__module__.rpartition(".")
    folders = [f"{_PACKAGE}/{folder}".replace("/", ".") for folder in FAMILIES[family]]
    return name if package in folders else type(method).__name__


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _files(family: str) -> dict[str, Path]:
    if family not in FAMILIES:
        raise UnknownName("family of methods", family, FAMILIES)
    found: dict[str, Path] = {}
    for folder in FAMILIES[family]:
        for path in sorted((_ROOT / folder).glob("*.py")):
            if path.stem != "base" and not path.stem.startswith("_"):
                if path.stem in found:
                    raise RuntimeError(f"{found[path.stem]} and {path} have the same name")
                found[path.stem] = path
    return found


def _read(family: str, name: str, path: Path) -> Entry:
    return _parse(family, name, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=512)
def _parse(family: str, name: str, path: Path, _modified: int) -> Entry:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    matching = [found for found in classes if found.lower() == name.replace("_", "")]
    if len(matching) != 1:
        raise RuntimeError(f"{path} should define one class whose name is {name!r} without case and underscores")
    node = classes[matching[0]]
    docstring = ast.get_docstring(node) or ast.get_docstring(tree) or ""
    module = ".".join([_PACKAGE, *path.relative_to(_ROOT).with_suffix("").parts])
    return Entry(family, name, path, module, node.name, docstring, tuple(_parameters(node, classes, tree)))


def _parameters(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], tree: ast.Module) -> list[Parameter]:
    """Dataclass fields of the class and of its bases, bases first, as dataclasses order them."""
    found: dict[str, Parameter] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            for inherited in _inherited(base.id, classes, tree):
                found[inherited.name] = inherited
    for position, statement in enumerate(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            parameter = _field(statement, node.body[position + 1 : position + 2], tree)
            if parameter is not None:
                found[parameter.name] = parameter
    return list(found.values())


def _inherited(name: str, classes: Mapping[str, ast.ClassDef], tree: ast.Module) -> list[Parameter]:
    if name in classes:
        return _parameters(classes[name], classes, tree)
    imported = _imported(name, tree)
    if imported is None:
        return []
    original, other = imported
    others = {node.name: node for node in other.body if isinstance(node, ast.ClassDef)}
    return _parameters(others[original], others, other) if original in others else []


def _without_alias(annotation: ast.expr, tree: ast.Module) -> ast.expr:
    """Follow ``Semantics = Literal[...]`` in this module or the one it is imported from, so that users see choices."""
    if not isinstance(annotation, ast.Name):
        return annotation
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == annotation.id:
            return statement.value
    imported = _imported(annotation.id, tree)
    return annotation if imported is None else _without_alias(ast.Name(imported[0]), imported[1])


def _imported(name: str, tree: ast.Module) -> tuple[str, ast.Module] | None:
    """Original name and parsed module of something imported from this package."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            for alias in statement.names:
                if (alias.asname or alias.name) == name and statement.module.split(".")[0] == _PACKAGE:
                    path = _ROOT.joinpath(*statement.module.split(".")[1:]).with_suffix(".py")
                    if path.is_file():
                        return alias.name, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return None


def _field(statement: ast.AnnAssign, following: list[ast.stmt], tree: ast.Module) -> Parameter | None:
    assert isinstance(statement.target, ast.Name)
    annotation = ast.unparse(_without_alias(statement.annotation, tree))
    if statement.target.id.startswith("_") or annotation.startswith(("ClassVar", "typing.ClassVar", "InitVar")):
        return None
    default = ast.unparse(statement.value) if statement.value is not None else None
    if isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func).endswith("field"):
        keywords = {keyword.arg: keyword.value for keyword in statement.value.keywords}
        if "init" in keywords and ast.unparse(keywords["init"]) == "False":
            return None
        stated = keywords.get("default") or keywords.get("default_factory")
        default = None if stated is None else ast.unparse(stated) + ("()" if "default_factory" in keywords else "")
    return Parameter(statement.target.id, annotation, default, _doc_under(following))


def _doc_under(following: list[ast.stmt]) -> str:
    if following and isinstance(following[0], ast.Expr) and isinstance(following[0].value, ast.Constant):
        text = following[0].value.value
        return inspect.cleandoc(text) if isinstance(text, str) else ""
    return ""
