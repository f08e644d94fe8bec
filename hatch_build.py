"""Compiles `src/isthmus/core/_compiled.c` where there is a C compiler; where there is none it is left out.

    python hatch_build.py       compile in place, for a checkout that is used without being installed

isthmus works without it, more slowly (`isthmus doctor` says which). One file, made with Python's stable interface,
serves Python 3.11 and later. ISTHMUS_PURE=1 leaves it out of a build, too.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCE = "src/isthmus/core/_compiled.c"
TARGET = "src/isthmus/core/_compiled.abi3.so"


def compile_extension(root: Path = ROOT) -> Path | None:
    """The compiled module beside its source; None, and no file, where it cannot be made."""
    target = root / TARGET
    command = _command()
    if command is None:
        target.unlink(missing_ok=True)
        return None
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / target.name
        # The source is named from the root, so that no path of this machine gets into the file.
        digest = hashlib.sha256((root / SOURCE).read_bytes()).hexdigest()
        named = f'-DSOURCE_DIGEST="{digest}"'  # By it a file that was made from an older source is known.
        status = subprocess.run([*command, named, SOURCE, "-o", str(made)], cwd=root, capture_output=True, check=False)
        if status.returncode or not _loads(made):
            target.unlink(missing_ok=True)
            return None
        # A process that has the old file open keeps it.
        beside = target.with_suffix(f".{os.getpid()}")
        shutil.copyfile(made, beside)
        beside.chmod(0o755)
        beside.replace(target)
    return target


def _command() -> list[str] | None:
    """The compiler with its options; None where there is none, or none for this Python."""
    if os.environ.get("ISTHMUS_PURE", "") not in ("", "0") or os.name != "posix":
        return None
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    headers = sysconfig.get_path("include")
    if shutil.which(compiler[0]) is None or not (Path(headers) / "Python.h").exists():
        return None
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared", "-Wl,-s"]
    return [*compiler, "-std=c99", "-O2", "-fPIC", "-fvisibility=hidden", *link, f"-I{headers}"]


def _loads(path: Path) -> bool:
    """Whether Python takes the file, tried in a process of its own."""
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('_compiled', sys.argv[1]); "
        "s.loader.exec_module(u.module_from_spec(s))"
    )
    return not subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False).returncode


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # Called by hand.
    pass
else:

    class CompiledPart(BuildHookInterface):  # type: ignore[type-arg]
        """Puts the compiled module into a wheel, and beside its source for an editable installation."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile, and say so in the wheel's name."""
            if self.target_name != "wheel" or compile_extension(Path(self.root)) is None:
                return
            build_data["artifacts"].append(TARGET)
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"


if __name__ == "__main__":
    made = compile_extension()
    print(made.relative_to(ROOT) if made else "not compiled: no C compiler, or no headers of this Python")
