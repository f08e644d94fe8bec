import sys
from pathlib import Path

for family in ("certificates", "models"):
    sys.path.insert(0, str(Path(__file__).parent.parent / family))
