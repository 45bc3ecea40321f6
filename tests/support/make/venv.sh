#!/usr/bin/env bash
# venv.sh [python|torch|transformers|esm-cpp|streaming]: makes build/venv, once and again whenever its list of packages changes.
# `python` is what most Python tests need (tests/requirements.txt, seconds), `torch` also has PyTorch and the libraries
# with which users read the project's files (tests/requirements-torch.txt, about 5 GB), and `transformers` also the
# oldest and the newest 4.x of transformers that the exported model supports. Two are for `make bench-cpu`, in folders of
# the first one: `esm-cpp` of that program alone, and `streaming` of mosaicml-streaming beside PyTorch. PLM_VENV names
# another place.
set -euo pipefail
cd "$(dirname "$0")/../../.."
venv=${PLM_VENV:-build/venv}
# Of 270 MB of Python, most is never imported, so it is compiled when it is.
quietly=(--quiet --disable-pip-version-check --no-compile)
made=$venv/made # a line for each environment: its name and the checksum of its list

is_made() { [ -e "$made" ] && grep -qxF "$1" "$made"; }

# One at a time installs into an environment.
wait_for_others() {
  mkdir -p "$(dirname "$venv")"
  exec 9>"$venv.lock"
  flock 9
}

install() { # NAME LIST SIZE
  local is
  is="$1 $(sha256sum <"$2" | cut -c1-16)"
  ! is_made "$is" || return 0
  wait_for_others
  ! is_made "$is" || return 0
  echo "venv: installing $(grep -vcE '^(#|$)' "$2") Python packages and what they need ($3) into $venv" >&2
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install "${quietly[@]}" -r "$2"
  { [ ! -e "$made" ] || grep -v "^$1 " "$made" || true; echo "$is"; } >"$made.tmp"
  mv "$made.tmp" "$made"
}

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# An environment in a folder of the first one, for other versions of some of its packages. It sees all others there, so
# it is small.
install_beside() { # NAME LIST SIZE
  local is folder=$venv/$1
  is="$1 $(cat "$2" tests/requirements-torch.txt | sha256sum | cut -c1-16)"
  ! is_made "$is" || return 0
  wait_for_others
  ! is_made "$is" || return 0
  echo "venv: installing $(head -n 1 "$2") and what it needs ($3) into $folder" >&2
  rm -rf "$folder"
  "$venv/bin/python" -m venv --without-pip "$folder"
  echo "import site; site.addsitedir('$(site_packages "$venv")')" >"$(site_packages "$folder")/beside.pth"
  "$folder/bin/python" -m pip install "${quietly[@]}" -r "$2"
  { grep -v "^$1 " "$made" || true; echo "$is"; } >"$made.tmp"
  mv "$made.tmp" "$made"
}

wanted=${1:-torch}
case $wanted in
  python | torch | transformers | esm-cpp | streaming) ;;
  *) echo "venv: no environment is called $wanted" >&2; exit 2 ;;
esac
if [ "$wanted" = esm-cpp ]; then # apart from all others, since its numpy is older than theirs
  venv=$venv/esm-cpp
  made=$venv/made
  install esm-cpp tests/requirements-esm-cpp.txt "about 100 MB"
  exit 0
fi
install python tests/requirements.txt "about 100 MB"
[ "$wanted" != python ] || exit 0
install torch tests/requirements-torch.txt "about 5 GB"
[ "$wanted" != torch ] || exit 0
if [ "$wanted" = streaming ]; then # older versions of numpy and transformers than those beside it
  install_beside streaming tests/requirements-streaming.txt "about 600 MB"
  exit 0
fi
for list in tests/requirements-transformers-*.txt; do
  version=${list#tests/requirements-}
  install_beside "${version%.txt}" "$list" "about 150 MB"
done
