#!/usr/bin/env bash
# venv.sh [python|torch]: makes build/venv, once and again whenever its list of packages changes. `python` is what
# most Python tests need (tests/requirements.txt, seconds), `torch` also has PyTorch and the libraries with which
# users read the project's files (tests/requirements-torch.txt, about 5 GB). PLM_VENV names another place.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${PLM_VENV:-build/venv}
made=$venv/made # a line for each environment: its name and the checksum of its list

install() { # NAME LIST SIZE
  local is
  is="$1 $(sha256sum <"$2" | cut -c1-16)"
  if [ -e "$made" ] && grep -qxF "$is" "$made"; then return; fi
  echo "venv: installing $(grep -vcE '^(#|$)' "$2") Python packages and what they need ($3) into $venv" >&2
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$2"
  { [ ! -e "$made" ] || grep -v "^$1 " "$made" || true; echo "$is"; } >"$made.tmp"
  mv "$made.tmp" "$made"
}

install python tests/requirements.txt "about 100 MB"
case ${1:-torch} in
  python) ;;
  torch) install torch tests/requirements-torch.txt "about 5 GB" ;;
  *) echo "venv: no environment is called $1" >&2; exit 2 ;;
esac
