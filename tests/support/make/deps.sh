#!/usr/bin/env bash
# Installs the Debian packages that building and testing need and those named as arguments, if any of
# them is missing. PRODUCTS=cblas (`make PRODUCTS=cblas`) installs a BLAS instead of oneDNN.
# Without root and sudo it names them. It fails then only if a package is missing that every build needs; what can
# be built and tested with the others is.
set -euo pipefail

case ${PRODUCTS:-dnnl} in
  cblas) products=libopenblas-pthread-dev ;;
  *) products=libdnnl-dev ;;
esac
every_build=(
  build-essential
  liblmdb-dev libzmq3-dev libzstd-dev libyaml-dev libcjson-dev libxxhash-dev libsodium-dev zlib1g-dev libcsv-dev
  "$products"
)
packages=(
  "${every_build[@]}" pkg-config git libcmocka-dev libopenmpi-dev openmpi-bin
  jq zstd gzip iproute2 procps ca-certificates python3-venv python3-dev
)
packages+=("$@")
if ! command -v dpkg-query >/dev/null; then
  echo "deps: this system has no dpkg, so nobody knows what is missing. The build needs what these Debian packages have:" >&2
  echo "  ${packages[*]}" >&2
  exit 0
fi
missing=()
needed= # is one of those missing that every build needs?
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$state" != "install ok installed" ] || continue
  missing+=("$package")
  [[ " ${every_build[*]} " != *" $package "* ]] || needed=1
done
[ "${#missing[@]}" -eq 0 ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "deps: these packages are missing, and only root may install them: apt-get install ${missing[*]}" >&2
    [ -z "$needed" ] || { echo "deps: the build needs some of them" >&2; exit 1; }
    echo "deps: continuing without them; tests that need them are skipped" >&2
    exit 0
  }
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
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
if [ "${#daemons[@]}" -gt 0 ] && command -v systemctl >/dev/null; then
  "${sudo[@]}" systemctl disable -q "${daemons[@]}"
fi
