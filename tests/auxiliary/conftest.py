"""The fixture `encoder` is written in tests/models/encoder_toys.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))

from encoder_toys import encoder as encoder
