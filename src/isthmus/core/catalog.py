"""Finds the methods of every family by file name, and reads their descriptions without importing them.

In a family's folders every file but ``base.py`` and files that start with ``_`` is one method: the class whose
lower-cased name equals the file's name without underscores (``label_smoothing.py`` holds ``LabelSmoothing``). There is
no registry: a new method is one new file. Docstrings and parameters are read by `ast`, so listing a hundred methods
imports none of them; `Entry.load` imports one. Methods of other packages are found by `isthmus.core.extensions`, and
their source is read in the same way.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core import extensions
from isthmus.core.errors import IsthmusError, UnknownName, UsageError
from isthmus.core.extensions import Extension
from isthmus.core.parameter_values import check, convert

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "attacks": ("attacks/words", "attacks/gradient"),
    "defences": ("defences",),
    "measures": ("measures",),
    "certificates": ("certificates",),
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
    """One method: its place, and what its source says about it."""

    family: str
    name: str
    path: Path
    module: str
    class_name: str
    docstring: str
    parameters: tuple[Parameter, ...]
    extension: Extension | None = None
    """Where it comes from, if not from this package."""
    bases: tuple[str, ...] = ()
    """Names of the classes it is made from, its own last, as far as the source tells."""

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, on one line."""
        paragraph = self.docstring.split("\n\n")[0]
        return " ".join(paragraph.split())

    @property
    def kind(self) -> str:
        """The folder that holds it: `words` and `gradient` are kinds of attacks."""
        if self.extension is not None:
            return "gradient" if "GradientAttack" in self.bases else "words"
        return self.path.parent.name

    @property
    def address(self) -> str:
        """The prefix of a parameter for this method: ``freelb`` in ``freelb.steps``."""
        return self.name if self.extension is None else self.class_name

    def load(self) -> type[Any]:
        """Import the module and return the class; of another package this runs that package's code."""
        if self.extension is not None:
            outside = self.extension.load()
            if not isinstance(outside, type):
                raise UsageError(f"{self.extension.spec} is not a class, and a {_SINGULAR[self.family]} is one")
            return outside
        loaded = getattr(importlib.import_module(self.module), self.class_name)
        assert isinstance(loaded, type)
        return loaded


def names(family: str) -> tuple[str, ...]:
    """Sorted names of the methods of a family that come with isthmus."""
    return tuple(sorted(_find_files(family)))


def entries(family: str) -> tuple[Entry, ...]:
    """Every method of a family that comes with isthmus, sorted by name."""
    return tuple(find(family, name) for name in names(family))


def find_extensions(family: str) -> tuple[Entry, ...]:
    """The methods that installed packages announce, sorted by name; their source is read, not imported."""
    return tuple(_make_extension_entry(family, one) for one in extensions.find_announced(family, _find_files(family)))


def find(family: str, name: str) -> Entry:
    """Find the method called `name`; case, hyphens and underscores do not matter.

    A method of isthmus comes first, then one that an installed package announces. ``package.module:Class`` names a
    class of any package; it is not imported before `Entry.load`.
    """
    files = _find_files(family)
    wanted = extensions.plain_name(name)
    for known, path in files.items():
        if extensions.plain_name(known) == wanted:
            return _parse(family, known, path, path.stat().st_mtime_ns)
    others = extensions.find_announced(family, files)
    for one in others:
        if name == one.name or (one.clashes_with is None and extensions.plain_name(one.name) == wanted):
            return _make_extension_entry(family, one)
    if extensions.is_spec(name):
        return _make_extension_entry(family, extensions.from_spec(name))
    raise UnknownName(_SINGULAR[family], name, {*files, *(one.name for one in others)})


def search(name: str) -> tuple[Entry, ...]:
    """Find the methods called `name` in any family (``pgd`` is an attack and a defence)."""
    found, known = [], set()
    for family in FAMILIES:
        try:
            found.append(find(family, name))
        except UnknownName as error:
            known.update(error.known)
        if found and extensions.is_spec(name):
            break  # A class on the path is shown once, whatever family it is meant for.
    if not found:
        raise UnknownName("method", name, known)
    return tuple(found)


def build(family: str, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
    """Make an instance of the method with its `parameters`; strings are converted by the parameter's annotation."""
    entry = find(family, name)
    known = {parameter.name: parameter for parameter in entry.parameters}
    for key in parameters or {}:
        if key not in known:
            hint = "" if known else f"{entry.name} takes none."
            raise UnknownName(f"parameter of {entry.name}", key, known, hint)
    given = {
        key: (convert if isinstance(value, str) else check)(value, known[key].annotation, f"{entry.name}: {key}")
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
    """The name by which a method of `family` is found: its file's name, or the class's name for a class of your own."""
    package, _, name = type(method).__module__.rpartition(".")
    folders = [f"{_PACKAGE}/{folder}".replace("/", ".") for folder in FAMILIES[family]]
    return name if package in folders else type(method).__name__


def _find_files(family: str) -> dict[str, Path]:
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


@functools.lru_cache(maxsize=512)
def _parse(family: str, name: str, path: Path, _modified: int) -> Entry:
    tree = _tree(path, _modified)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    matching = [found for found in classes if found.lower() == name.replace("_", "")]
    if len(matching) != 1:
        raise RuntimeError(f"{path} should define one class whose name is {name!r} without case and underscores")
    node = classes[matching[0]]
    docstring = ast.get_docstring(node) or ast.get_docstring(tree) or ""
    module = ".".join([_PACKAGE, *path.relative_to(_ROOT).with_suffix("").parts])
    return Entry(family, name, path, module, node.name, docstring, tuple(_parameters(node, classes, tree)))


def _make_extension_entry(family: str, extension: Extension) -> Entry:
    """Describe a class of another package from its source."""
    path = extension.path
    if path is None:
        hint = f"There is no module {extension.module} with a source on the Python path, or in this folder."
        raise UnknownName(_SINGULAR[family], extension.name, (), hint)
    return _parse_outside(family, extension, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=512)
def _parse_outside(family: str, extension: Extension, path: Path, _modified: int) -> Entry:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except (SyntaxError, ValueError, OSError) as error:
        raise UsageError(f"{extension.spec}: {path} cannot be read ({error})") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    node = classes.get(extension.attribute)
    if node is None:
        imported = _find_imported(extension.attribute, tree)
        if imported is None:
            raise UnknownName(f"class in {path.name}", extension.attribute, classes)
        tree = imported[1]
        classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
        node = classes.get(imported[0])
        if node is None:
            raise UnknownName(f"class in {path.name}", extension.attribute, classes)
    docstring = ast.get_docstring(node) or ast.get_docstring(tree) or ""
    parameters = tuple(_parameters(node, classes, tree))
    bases = tuple(_bases(node, classes, tree))
    return Entry(
        family, extension.name, path, extension.module, extension.attribute, docstring, parameters, extension, bases
    )


def _bases(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], tree: ast.Module) -> list[str]:
    found: list[str] = []
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
        if name in classes:
            found += _bases(classes[name], classes, tree)
        elif (imported := _find_imported(name, tree)) is not None:
            others = {each.name: each for each in imported[1].body if isinstance(each, ast.ClassDef)}
            if imported[0] in others:
                found += _bases(others[imported[0]], others, imported[1])
        found.append(name)
    return [*found, node.name]


def _parameters(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], tree: ast.Module) -> list[Parameter]:
    """Dataclass fields of the class and its bases, in the order of dataclasses: bases first."""
    found: dict[str, Parameter] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            for inherited in _find_inherited(base.id, classes, tree):
                found[inherited.name] = inherited
    for position, statement in enumerate(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            parameter = _field(statement, node.body[position + 1 : position + 2], tree)
            if parameter is not None:
                found[parameter.name] = parameter
    return list(found.values())


def _find_inherited(name: str, classes: Mapping[str, ast.ClassDef], tree: ast.Module) -> list[Parameter]:
    if name in classes:
        return _parameters(classes[name], classes, tree)
    imported = _find_imported(name, tree)
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
    imported = _find_imported(annotation.id, tree)
    return annotation if imported is None else _without_alias(ast.Name(imported[0]), imported[1])


def _find_imported(name: str, tree: ast.Module) -> tuple[str, ast.Module] | None:
    """Original name and parsed module of an import from this package, or from one that extends it."""
    for module, original in _imports(tree).get(name, ()):
        path = _source(module, original)
        if path is not None:
            return original, _tree(path, path.stat().st_mtime_ns)
    return None


@functools.lru_cache(maxsize=512)
def _tree(path: Path, _modified: int) -> ast.Module:
    """The parsed source of a module; cached, since every method of a family reads its base's module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.lru_cache(maxsize=512)
def _imports(tree: ast.Module) -> dict[str, list[tuple[str, str]]]:
    """For every imported name, the module it comes from and its name there."""
    found: dict[str, list[tuple[str, str]]] = {}
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            for alias in statement.names:
                found.setdefault(alias.asname or alias.name, []).append((statement.module, alias.name))
    return found


def _source(module: str, name: str) -> Path | None:
    """The file that defines what ``from module import name`` imports, as far as it can be told without importing."""
    package, *inner = module.split(".")
    if package in sys.stdlib_module_names:
        return None
    if package != _PACKAGE:
        return extensions.source_of(module)
    path = _ROOT.joinpath(*inner).with_suffix(".py")
    if path.is_file():
        return path
    # A family's front page hands out its classes: from isthmus.defences import FreeLB.
    for family, folders in FAMILIES.items():
        if "/".join(inner) in (family, *folders, *(folder.split("/")[0] for folder in folders)):
            wanted = extensions.plain_name(name)
            files = _find_files(family)
            found = [file for known, file in files.items() if extensions.plain_name(known) == wanted]
            bases = [_ROOT.joinpath(*folder.split("/"), "base.py") for folder in folders]
            bases += [_ROOT.joinpath(folders[0].split("/")[0], "base.py")]
            places = [file for file in [*found, *bases] if file.is_file()]
            return next((file for file in places if f"class {name}" in file.read_text(encoding="utf-8")), None)
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
