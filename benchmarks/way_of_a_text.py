"""How many rooms one attacked text passes through: functions and files from the command to the written row.

    python benchmarks/way_of_a_text.py                                a toy model, trained for it in a temporary folder
    python benchmarks/way_of_a_text.py --run runs/demo --attack pwws  another model, another attack
    python benchmarks/way_of_a_text.py --functions                    every function on the way, and which are short

One example is attacked by `isthmus attack` in this process, while a profile hook notes every function of isthmus that
is entered. A function is its definition: however often it is called, and a generator however often it is resumed, it
counts once. Comprehensions, lambdas, class bodies and what `dataclass` generates are not counted. The way has parts:

    start       everything but the way of the text: command line, data and model found and loaded, figures, printing
    text        from the example that is handed out to its row in the file
    library     of the way of the text what `attack(victim, examples)` of Python does as well

A function that is entered in both is part of the way of the text. Beside that the source is counted: functions per
1,000 lines, type names that are defined in more than one file, functions whose name begins with a participle, and lines
of comment.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

_found = importlib.util.find_spec("isthmus")  # It is imported under the tracer's eyes.
assert _found is not None
assert _found.origin is not None
SOURCE = Path(_found.origin).parent
LETTERS = "abcdefghijklmnopqrstuvwxyz"
REVIEWS = [
    (f"the {noun} was {word} and {other}", label)
    for label, words in (
        ("positive", ("good", "great", "lovely", "fine")),
        ("negative", ("bad", "awful", "dull", "poor")),
    )
    for noun in ("film", "plot", "cast", "music", "scene")
    for word in words
    for other in words
]
WORK, LIBRARY = "RowsJob._make", "AttackRun.__iter__"
"""What is on the stack while rows are made, and while the library attacks."""
_GENERATED = ("<module>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_OPTIMIZED = 0x1  # Not set for the body of a class.
_PARTICIPLES = frozenset((
    "begun", "bound", "built", "chosen", "cut", "drawn", "done", "found", "given", "gone", "held", "hidden",
    "kept", "known", "laid", "left", "lost", "made", "met", "paid", "read", "said", "seen", "sent", "set",
    "shown", "shut", "spent", "split", "spoken", "spoilt", "spun", "stood", "taken", "told", "thrown", "torn",
    "written",
))  # fmt: skip
_VERBS_IN_ED = frozenset(("embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"))


# ------------------------------------------------------------------ the way


@dataclass(frozen=True, order=True)
class Function:
    """A definition in the source."""

    file: str
    line: int
    name: str


class Tracer:
    """Notes the functions under `root` that are entered, apart for every set of marks that are on the stack then."""

    def __init__(self, root: Path, marks: Iterable[str] = ()) -> None:
        self.root, self.marks = str(root), frozenset(marks)
        self.entered: dict[Function, set[frozenset[str]]] = {}
        self._known: dict[CodeType, Function | None] = {}
        self._stacks = threading.local()

    def __enter__(self) -> Tracer:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._known:
            self._known[code] = self._function(code)
        function = self._known[code]
        if function is None:
            return
        if not hasattr(self._stacks, "open"):
            self._stacks.open = Counter[str]()
        stack: Counter[str] = self._stacks.open
        if event == "call":
            if function.name in self.marks:
                stack[function.name] += 1
            self.entered.setdefault(function, set()).add(frozenset(mark for mark, depth in stack.items() if depth > 0))
        elif function.name in self.marks:
            stack[function.name] -= 1

    def _function(self, code: CodeType) -> Function | None:
        own = code.co_filename.startswith(self.root) and code.co_name not in _GENERATED
        if not (own and code.co_flags & _OPTIMIZED):
            return None
        file = str(Path(code.co_filename).relative_to(self.root))
        return Function(file, code.co_firstlineno, code.co_qualname.replace("<locals>.", ""))


@dataclass(frozen=True)
class Part:
    """Functions, and the files they stand in."""

    functions: int
    files: int

    @classmethod
    def of(cls, functions: Iterable[Function]) -> Part:
        found = set(functions)
        return cls(len(found), len({function.file for function in found}))


def divide(entered: Mapping[Function, set[frozenset[str]]]) -> dict[str, set[Function]]:
    """The parts of the way, by the marks under which its functions were entered."""
    text = {function for function, under in entered.items() if any(WORK in marks for marks in under)}
    library = {function for function, under in entered.items() if any({WORK, LIBRARY} <= marks for marks in under)}
    return {"whole": set(entered), "start": set(entered) - text, "text": text, "library": library}


def trace_command(arguments: list[str]) -> dict[str, set[Function]]:
    """Run a command line in this process; the parts of its way."""
    with Tracer(SOURCE, (WORK, LIBRARY)) as tracer:
        from isthmus.cli.app import run

        code = run(arguments)
    if code:
        raise SystemExit(f"isthmus {' '.join(arguments)} ended with exit code {code}")
    return divide(tracer.entered)


def require_attacked(run: Path) -> None:
    """A text that the model got wrong is not attacked, and passes through next to nothing."""
    outcomes = [json.loads(line)["outcome"] for path in run.glob("attacks/*.jsonl") for line in path.open()]
    if not outcomes or not set(outcomes) <= {"succeeded", "failed"}:
        raise SystemExit(f"no text was attacked: {outcomes}")


def train_toy(folder: Path) -> Path:
    """A run folder with a model of some hundred weights."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    data, backbone, run = folder / "reviews.csv", folder / "backbone", folder / "toy"
    data.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in REVIEWS), encoding="utf-8")
    words = sorted({word for text, _ in REVIEWS for word in text.split()})
    pieces = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *words, *LETTERS, *(f"##{each}" for each in LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=48,
    )  # fmt: skip
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(backbone)
    BertTokenizer(vocab=vocabulary).save_pretrained(backbone)
    options = ["--epochs", "4", "--batch-size", "8", "--learning-rate", "0.02", "--device", "cpu", "-q"]
    command = ["train", "--data", str(data), "--backbone", str(backbone), *options, "--out", str(run)]
    subprocess.run([sys.executable, "-m", "isthmus", *command], check=True, stdout=sys.stderr)
    return run


# ------------------------------------------------------------------ the source

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """What is counted in the files of a package."""

    files: int
    lines: int
    functions: int
    type_names: int
    types_in_several_files: tuple[str, ...]
    participles: tuple[str, ...]
    comment_lines: int

    @property
    def functions_per_1000_lines(self) -> float:
        return 1000 * self.functions / max(1, self.lines)

    @property
    def share_in_several_files(self) -> float:
        return len(self.types_in_several_files) / max(1, self.type_names)

    @property
    def share_of_comments(self) -> float:
        return self.comment_lines / max(1, self.lines)


def count_source(root: Path) -> Source:
    """Count in every Python file under `root`."""
    lines = functions = comments = 0
    places: dict[str, set[Path]] = {}
    participles: list[str] = []
    paths = sorted(root.rglob("*.py"))
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines += len(text.splitlines())
        comments += _count_comments(path)
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                functions += 1
                if is_participle(node.name) and not _is_property(node):
                    participles.append(node.name)
        for name in type_names(tree):
            places.setdefault(name, set()).add(path)
    several = tuple(sorted(name for name, where in places.items() if len(where) > 1))
    return Source(len(paths), lines, functions, len(places), several, tuple(sorted(participles)), comments)


def type_names(tree: ast.Module) -> Iterator[str]:
    """Classes, and names at the top of a module that stand for a type: ``Keys = NDArray[np.uint64]``, ``A | B``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for each in tree.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if ast.unparse(each.annotation).endswith("TypeAlias"):
                yield each.target.id
        elif isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            name = each.targets[0].id
            is_type = isinstance(each.value, ast.Subscript) or (
                isinstance(each.value, ast.BinOp) and isinstance(each.value.op, ast.BitOr)
            )
            if is_type and name.lstrip("_")[:1].isupper() and not name.isupper():
                yield name


def is_participle(name: str) -> bool:
    """Whether the name of a function begins with a participle: ``packed``, ``forwarded_rows``, ``told``."""
    first = name.strip("_").split("_")[0]
    return first in _PARTICIPLES or (len(first) > 3 and first.endswith("ed") and first not in _VERBS_IN_ED)


def _is_property(node: Definition) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _count_comments(path: Path) -> int:
    """Lines that are a comment and nothing else."""
    with tokenize.open(path) as stream:
        tokens = tokenize.generate_tokens(stream.readline)
        return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


@dataclass(frozen=True)
class Short:
    """A function that says little: the lines of its body, and how often its name is used in the package."""

    function: Function
    body: int
    uses: int


def short_functions(root: Path, functions: Iterable[Function], most: int = 3) -> list[Short]:
    """Those with a body of at most `most` lines, docstring apart; the least used first."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))}
    uses = Counter[str]()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
    sizes: dict[tuple[str, int], int] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, Definition):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                sizes[str(path.relative_to(root)), first] = _count_body(node)
    found = [
        Short(function, sizes[function.file, function.line], uses[function.name.rsplit(".", 1)[-1]])
        for function in functions
        if (function.file, function.line) in sizes
    ]
    return sorted((each for each in found if each.body <= most), key=lambda each: (each.uses, each.function))


def _count_body(node: Definition) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return sum((statement.end_lineno or statement.lineno) - statement.lineno + 1 for statement in body)


# ------------------------------------------------------------------ what is printed


def describe(parts: Mapping[str, set[Function]], source: Source) -> str:
    says = {
        "whole": "the whole command",
        "start": "start, loading, figures",
        "text": "way of the text",
        "library": "of that, the library",
    }
    rows = [(text, Part.of(parts[key])) for key, text in says.items()]
    lines = [f"{'':28}{'functions':>10}{'files':>8}"]
    lines += [f"{text:28}{part.functions:10}{part.files:8}" for text, part in rows]
    figures: list[tuple[str, str]] = [
        ("files", f"{source.files}"),
        ("lines", f"{source.lines}"),
        ("functions per 1,000 lines", f"{source.functions_per_1000_lines:.1f}"),
        ("type names in more than one file", f"{source.share_in_several_files:.1%}"),
        ("functions named by a participle", f"{len(source.participles)}"),
        ("lines of comment", f"{source.share_of_comments:.1%}"),
    ]
    return "\n".join([*lines, "", *(f"{name:36}{value:>10}" for name, value in figures)])


def to_json(parts: Mapping[str, set[Function]], source: Source) -> dict[str, Any]:
    return {
        "way": {name: asdict(Part.of(functions)) for name, functions in parts.items()},
        "source": {
            **asdict(source),
            "functions_per_1000_lines": round(source.functions_per_1000_lines, 1),
            "share_in_several_files": round(source.share_in_several_files, 4),
            "share_of_comments": round(source.share_of_comments, 4),
        },
    }


def print_functions(parts: Mapping[str, set[Function]], say: Callable[[str], None] = print) -> None:
    short = {each.function: each for each in short_functions(SOURCE, parts["whole"])}
    for function in sorted(parts["whole"]):
        part = next(name for name in ("library", "text", "start") if function in parts[name])
        small = short.get(function)
        note = f"  {small.body} lines, {small.uses} uses" if small is not None else ""
        say(f"{part:8} {function.file}:{function.line} {function.name}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder to attack (default: a toy, trained for it)")
    parser.add_argument("--attack", default="deepwordbug", help="the attack")
    parser.add_argument("--functions", action="store_true", help="list every function on the way")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = given.run or train_toy(Path(name))
        # Rows of another run go to a folder of their own, so that the example has none yet.
        out = run if given.run is None else Path(name) / "out"
        options = ["--n", "1", "--device", "cpu", "--no-label-check", "-q", "--out", str(out)]
        parts = trace_command(["attack", str(run), "--attack", given.attack, *options])
        require_attacked(out)
    source = count_source(SOURCE)
    if given.functions:
        print_functions(parts)
    print(json.dumps(to_json(parts, source), indent=1) if given.json else describe(parts, source))


if __name__ == "__main__":
    main()
