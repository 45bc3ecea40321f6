#!/usr/bin/env bash
# Runs the operators' tests and a short training run as other processors, under qemu-user: Haswell,
# Nehalem and EPYC-Rome run the programs of this machine, aarch64 those that are cross-compiled here
# against Debian's arm64 packages. Prints a line for each test, the output of those that fail, and a
# closing count. doc/processors.md says what this shows and what it cannot show.
#
#   tests/processors/processors.sh [PATTERN...]    patterns are grep -E expressions on NAME@PROCESSOR
#
# Everything it makes is in build/: the arm64 packages are unpacked into build/aarch64/sysroot, and the
# host's list of architectures and packages stays as it is.
set -euo pipefail
cd "$(dirname "$0")/../.."
jobs=${JOBS:-$(nproc)}
limit_s=${PLM_TEST_LIMIT_S:-900}
cross=build/aarch64
sysroot=$PWD/$cross/sysroot
export limit_s cross sysroot
export PLM_ROOT=$PWD PLM_TEST_QUICK=1 CUDA_VISIBLE_DEVICES='' PLM_ALGORITHM_CACHE=''
unset PLM_CPU_ISA

processors='Haswell Nehalem EPYC-Rome aarch64'
tests='kernels/test_attention kernels/test_ops_cached kernels/test_ops_optimizer kernels/test_ops_products
  kernels/test_ops_rows kernels/test_ops_sums kernels/test_ops_targets kernels/test_processor'
programs='plm-packer plm-trainer'

# What `make deps` installs for this machine, for the other one.
arm_packages='liblmdb-dev libzmq3-dev libzstd-dev libyaml-dev libcjson-dev libxxhash-dev libsodium-dev zlib1g-dev
  libcsv-dev libdnnl-dev libcmocka-dev'

if [ "$(uname -m)" != x86_64 ]; then
  echo "test-processors needs an x86-64 host; here, make test-all has tested the processor itself" >&2
  exit 1
fi

chosen() {
  local name processor pattern
  pattern=$(IFS='|'; echo "$*")
  for processor in $processors; do
    for name in training $tests; do echo "$name@$processor"; done
  done | grep -E -- "${pattern:-.}"
}

# ---- building ----
# A separate apt state, which only knows arm64 and has nothing installed, finds and downloads the
# packages with all that they depend on.
apt_arm() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= \
    -o Dir::State="$PWD/$cross/apt" -o Dir::State::status="$PWD/$cross/apt/status" \
    -o Dir::Cache="$PWD/$cross/apt" -o Acquire::Languages=none "$@"
}

# libc's development files are those of the cross compiler.
make_sysroot() {
  [ -e "$sysroot/complete" ] && return
  local archive
  echo "test-processors: unpacking Debian's arm64 packages into $cross/sysroot" >&2
  rm -rf "$sysroot" "$cross/apt"
  mkdir -p "$sysroot/usr/lib" "$cross/apt/lists/partial" "$cross/apt/archives/partial"
  ln -s usr/lib "$sysroot/lib"
  : >"$cross/apt/status"
  apt_arm update
  # shellcheck disable=SC2086 # a list of words
  apt_arm install -d -y --no-install-recommends $arm_packages >"$cross/apt/log" 2>&1 ||
    { cat "$cross/apt/log" >&2; exit 1; }
  for archive in "$cross"/apt/archives/*.deb; do
    case ${archive##*/} in libc6-dev_* | libc-dev-bin_* | linux-libc-dev_*) continue ;; esac
    dpkg-deb --fsys-tarfile "$archive" | tar -x --keep-directory-symlink -C "$sysroot"
  done
  rm -rf "$cross/apt"
  touch "$sysroot/complete"
}

make_cross() { # TARGET...
  local libraries=$sysroot/usr/lib/aarch64-linux-gnu
  make --no-print-directory -j"$jobs" BUILD="$cross" ARCH=aarch64 PRODUCTS=dnnl CUDA=0 \
    CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ AR=aarch64-linux-gnu-ar \
    CFLAGS="-isystem $sysroot/usr/include -isystem $sysroot/usr/include/aarch64-linux-gnu" \
    LDFLAGS="-L$libraries -Wl,-rpath-link,$libraries" \
    EMULATED_OBJ="$cross/obj/tests/processors/no_emulation.o" "$@"
}

# Only what the chosen tests need.
targets() { # BUILD
  local name program
  sed 's/@.*//' | sort -u | while read -r name; do
    if [ "$name" != training ]; then
      echo "$1/tests/$name"
      continue
    fi
    for program in $programs; do echo "$1/bin/$program"; done
  done
}

list=$(chosen "$@") || { echo "no test matches '$*'" >&2; exit 2; }
native=$(grep -v '@aarch64$' <<<"$list" | targets build) || true
arm=$(grep '@aarch64$' <<<"$list" | targets "$cross") || true
# The training run is compared with one of this machine.
[[ $list == *training@* ]] && native+=" build/bin/plm-packer build/bin/plm-trainer build/bin/plm-pipeline"
packages='qemu-user'
[ -z "$arm" ] || packages+=' gcc-aarch64-linux-gnu g++-aarch64-linux-gnu'
# shellcheck disable=SC2086 # lists of words
{
  tests/support/make/deps.sh $packages
  [ -z "$native" ] || make --no-print-directory -j"$jobs" CUDA=0 $native
  [ -z "$arm" ] || { make_sysroot; make_cross $arm; }
}

# ---- running ----
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export results

one() {
  local name=$1 processor=${1#*@} test=${1%@*} key=${1//\//_} started status
  if [ "$processor" = aarch64 ]; then
    export PLM_EMULATED_BUILD=$PLM_ROOT/$cross
    local qemu=(qemu-aarch64 -L "$sysroot")
  else
    export PLM_EMULATED_BUILD=$PLM_ROOT/build
    local qemu=(qemu-x86_64 -cpu "$processor")
  fi
  export PLM_TMP=$results/tmp-$key
  mkdir "$PLM_TMP"
  started=$(date +%s)
  if [ "$test" = training ]; then
    set -- env PLM_BIN="$PLM_ROOT/build/bin" bash tests/processors/training.sh "${qemu[@]}"
  else
    set -- "${qemu[@]}" "$PLM_EMULATED_BUILD/tests/$test"
  fi
  local cpu_s TIMEFORMAT=%0U
  cpu_s=$({ time setsid --wait timeout -k 10 "$limit_s" "$@" >"$results/$key.log" 2>&1 </dev/null; } 2>&1) &&
    status=0 || status=$?
  local took="$(($(date +%s) - started)) s, $cpu_s s of processor time"
  rm -rf "$PLM_TMP"
  if [ "$status" -eq 0 ]; then
    local said=
    [ "$test" != training ] || said=": $(tail -n 1 "$results/$key.log")"
    echo "ok      $name ($took)$said"
    touch "$results/$key.passed"
  else
    echo "FAILED  $name (exit $status, $took)"
    [ "$status" -ne 124 ] || echo "        stopped after $limit_s s"
    sed 's/^/        | /' "$results/$key.log" | tail -n 60
  fi
}
export -f one

xargs -P "$jobs" -I{} bash -c 'one {}' <<<"$list"
passed=$(find "$results" -name '*.passed' | wc -l)
failed=$(($(wc -l <<<"$list") - passed))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
