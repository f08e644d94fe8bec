import sys
from pathlib import Path

_TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(_TESTS / folder) for folder in ("training", "attacks", "engine")]
