"""The fixture `make_row` is written in row_toys.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from row_toys import make_row as make_row
