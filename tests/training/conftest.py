import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run faster on one thread, and sums come out the same in a child process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def children(tmp_path_factory) -> Path:
    """Where the trainings that need processes of their own have left their folders."""
    root = tmp_path_factory.mktemp("children")
    script = Path(__file__).parents[1] / "support" / "children.py"
    subprocess.run([sys.executable, str(script), str(root)], check=True, timeout=600)
    return root
