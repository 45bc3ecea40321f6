#!/usr/bin/env bash
# Makes a Debian package of what was built (`make deb`), without root and without network. The Makefile sets:
#   BUILD     the build folder
#   DEB       the folder for the package, and for the files in it (debian/plm-pipeline)
#   MODULES   the shared libraries that the programs load; those that were not built are left out
# The same files and the same changelog make the same package, byte for byte.
set -euo pipefail
: "${BUILD:?}" "${DEB:?}"
umask 022
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.."
room=stages/debian
for tool in dpkg-deb dpkg-shlibdeps dpkg-parsechangelog strip; do
  command -v "$tool" >/dev/null || { echo "deb: $tool is missing: apt-get install dpkg-dev" >&2; exit 1; }
done
[ -x "$BUILD/bin/plm-pipeline" ] || { echo "deb: there is no $BUILD/bin/plm-pipeline; run \`make\` first" >&2; exit 1; }

changelog() { dpkg-parsechangelog -l "$room/changelog" -S "$1"; }
version=$("$BUILD/bin/plm-pipeline" --version | cut -d ' ' -f 2)
if [ "$(changelog Version)" != "$version" ]; then
  echo "deb: the programs have version $version, but the first entry of $room/changelog is for $(changelog Version);" \
    "add an entry" >&2
  exit 1
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(changelog Timestamp)}
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
tree=$DEB/debian/plm-pipeline
documents=$tree/usr/share/doc/plm-pipeline

# ---- the files ----
rm -rf "$DEB/debian"
mkdir -p "$tree/DEBIAN"
BUILD=$BUILD PREFIX=/usr DESTDIR=$tree MODULES=${MODULES-} ZSH_FOLDER=vendor-completions \
  stages/install/install_files.sh install >/dev/null
mapfile -t modules < <(find "$tree/usr/lib/plm-pipeline" -name '*.so' 2>/dev/null | sort)
strip --remove-section=.comment --remove-section=.note "$tree"/usr/bin/*
for module in "${modules[@]}"; do
  strip --strip-unneeded --remove-section=.comment --remove-section=.note "$module"
  chmod 644 "$module" # Debian's policy for what is only loaded
done
rm "$documents/LICENSE" # Debian has it in common-licenses
install -m 644 "$room/copyright" "$documents/copyright"
install -m 644 "$room/changelog" "$documents/changelog"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
gzip -9n "$documents/changelog"

# ---- what the package depends on ----
# dpkg-shlibdeps reads debian/control, and wants to run in the folder above it.
printf 'Source: plm-pipeline\n\nPackage: plm-pipeline\nArchitecture: any\n' >"$DEB/debian/control"
needed=()
for file in "$tree"/usr/bin/* "${modules[@]}"; do
  case $file in
    # Its cuBLAS may be from NVIDIA, and then belongs to no package that dpkg-shlibdeps knows.
    */libplm_cuda.so) kind=Suggests ;;
    *.so) kind=Recommends ;;
    *) kind=Depends ;;
  esac
  needed+=("-d$kind" -e "${file#"$DEB/"}")
done
(cd "$DEB" && dpkg-shlibdeps -O --ignore-missing-info -l"${CUDA_HOME:-/usr/local/cuda}/lib64" "${needed[@]}") \
  >"$DEB/depends" 2>"$DEB/depends.log" || { cat "$DEB/depends.log" >&2; exit 1; }
# of KIND: the packages that dpkg-shlibdeps found for this kind of dependency
of() { sed -n "s/^shlibs:$1=//p" "$DEB/depends"; }
# join FIRST SECOND: with a comma between them if both are there
join() { echo "$1${1:+${2:+, }}$2"; }
recommends=$(of Recommends)
[ -z "$recommends" ] || recommends=$(join "$recommends" openmpi-bin)

# ---- the control files ----
{
  echo "Package: plm-pipeline"
  echo "Version: $version"
  echo "Architecture: $architecture"
  echo "Maintainer: $(changelog Maintainer)"
  echo "Installed-Size: $(du -ks --apparent-size --exclude=DEBIAN "$tree" | cut -f 1)"
  echo "Depends: $(of Depends)"
  [ -z "$recommends" ] || echo "Recommends: $recommends"
  echo "Suggests: $(join "$(of Suggests)" "man-db, openssh-client, slurm-client")"
  cat "$room/description"
} >"$tree/DEBIAN/control"
(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
for script in postinst prerm postrm; do install -m 755 "$room/$script.sh" "$tree/DEBIAN/$script"; done

package=$(realpath "$DEB")/plm-pipeline_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package.part" >/dev/null
mv "$package.part" "$package" # only a whole package has the name
echo "made $package"
echo "  sudo apt install $package"
