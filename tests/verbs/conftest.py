"""The fixture `make_row` is written in tests/summaries/row_toys.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "summaries"))
sys.path.insert(0, str(Path(__file__).parent.parent / "training"))

from row_toys import make_row as make_row
