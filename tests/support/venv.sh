#!/usr/bin/env bash
# Makes build/venv with tests/requirements.txt (about 5 GB), once and again whenever that file
# changes. PLM_VENV names another place.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${PLM_VENV:-build/venv}
stamp=$venv/requirements.txt
cmp -s tests/requirements.txt "$stamp" && exit 0
echo "venv: installing $(grep -vcE '^(#|$)' tests/requirements.txt) Python packages and what they need (about 5 GB) into $venv" >&2
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
cp tests/requirements.txt "$stamp"
