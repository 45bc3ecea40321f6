#!/usr/bin/env bash
# Packs the libraries and tools that building and running need into a folder, for a machine with a GPU that has
# neither these libraries nor a network; run `make gpu-check LIBS=FOLDER` there. Needs apt-get, dpkg-deb,
# python3 and objdump. The other machine's C library must be at least as new as this one's. In the end
# it looks whether the folder has everything that its libraries need. About 56 MB, and 18 MB as a tar.gz.
#
#   tests/gpu/pack.sh FOLDER
set -euo pipefail
[ "$#" -eq 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
needs=$(dirname "$0")/check_needs.py
mkdir -p "$1"
folder=$(cd "$1" && pwd)
debs=$(mktemp -d)
trap 'rm -rf "$debs"' EXIT
mapfile -t packages < <(python3 "$needs" --packages)
[ "${#packages[@]}" -gt 0 ] || exit 1

# The packages that these depend on, without those that a machine with a compiler has (the C and C++
# runtimes) or that are not needed (headers of unused libraries, OpenCL).
depends() {
  apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "$@" | sed -n 's/^ *|\{0,1\}Depends: \([a-z0-9][a-z0-9.+-]*\)$/\1/p' | sort -u |
    grep -vE '^(libc6|libc6-dev|libc-dev|libgcc-s1|libstdc\+\+6|gcc.*|debconf.*|dpkg.*)$' |
    grep -vE '^(init-system-helpers|perl.*|usrmerge|usr-is-merged)$' |
    grep -vE '^(libpgm-dev|libnorm-dev|libkrb5-dev|libbsd-dev|libopencl.*|mesa.*|nvidia.*)$' || true
}
all=("${packages[@]}")
count=0
while [ "$count" -lt "${#all[@]}" ]; do # until no package adds another one
  count=${#all[@]}
  mapfile -t all < <({ printf '%s\n' "${all[@]}"; depends "${all[@]}"; } | sort -u)
done

echo "pack: ${#all[@]} packages" >&2
(cd "$debs" && apt-get download -qq -o APT::Sandbox::User=root "${all[@]}")
for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$folder"; done
(cd "$folder" && rm -rf usr/share etc var usr/lib/*/krb5)
find "$folder" -name '*.a' -delete
# make absolute links relative, so that they point into the folder
while IFS= read -r link; do
  target=$folder$(readlink "$link")
  if [ -e "$target" ]; then ln -sfnr "$target" "$link"; else rm "$link"; fi
done < <(find "$folder" -type l -lname '/*')
python3 "$needs" --packed "$folder" || { echo "pack: $folder is incomplete" >&2; exit 1; }
du -sh "$folder" >&2
