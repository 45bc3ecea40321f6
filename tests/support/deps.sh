#!/usr/bin/env bash
# Installs the Debian packages that building and testing need and those named as arguments, if any of
# them is missing. PRODUCTS=cblas (`make PRODUCTS=cblas`) installs a BLAS instead of oneDNN.
set -euo pipefail

case ${PRODUCTS:-dnnl} in
  cblas) products=libopenblas-pthread-dev ;;
  *) products=libdnnl-dev ;;
esac
packages=(
  build-essential pkg-config git
  liblmdb-dev libzmq3-dev libzstd-dev libyaml-dev libcjson-dev libxxhash-dev zlib1g-dev
  libcsv-dev "$products" libcmocka-dev libopenmpi-dev openmpi-bin
  jq zstd gzip iproute2 procps ca-certificates python3-venv python3-dev
)
packages+=("$@")
missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "deps: these packages are missing, and this system has no apt-get: ${missing[*]}" >&2
  echo "  install their equivalents with this system's package manager" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps: not root and no sudo; as root: apt-get install ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "deps: installing ${missing[*]}" >&2

# The tests start the daemons of these packages themselves, so installing them must start none, neither now
# (policy-rc.d) nor at the next boot.
daemons=()
for package in "${missing[@]}"; do
  case $package in
    munge | slurmctld | slurmd | prometheus) daemons+=("$package") ;;
    openssh-server) daemons+=(ssh.service ssh.socket) ;;
  esac
done
policy=/usr/sbin/policy-rc.d
if [ "${#daemons[@]}" -gt 0 ] && [ ! -e "$policy" ]; then
  trap '"${sudo[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
  "${sudo[@]}" chmod 755 "$policy"
fi
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
if [ "${#daemons[@]}" -gt 0 ] && command -v systemctl >/dev/null; then
  "${sudo[@]}" systemctl disable -q "${daemons[@]}"
fi
