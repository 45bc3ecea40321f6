#!/usr/bin/env bash
# confined.sh FOLDER... -- COMMAND...: runs the command in namespaces of its own. It is the first process there, with
# whose end all others end. It can write only below these folders, to an empty one for sockets, and to file systems that
# are not on a disk (/dev, /proc, /run), except /tmp. A fault may be in code that makes or removes files, so without this
# it could remove those of the user. Exit 125: no such namespaces can be made.
set -euo pipefail
if [ "${1-}" != --inside ]; then
  own=() # others than root need a user namespace for it
  [ "$(id -u)" -eq 0 ] || own=(--map-root-user)
  own+=(--mount --propagation private --pid --fork --kill-child --mount-proc)
  unshare "${own[@]}" true || exit 125
  exec unshare "${own[@]}" "$0" --inside "$@"
fi
shift
sockets=/tmp/plm-$(id -u) # where the programs put them without XDG_RUNTIME_DIR
[ -d "$sockets" ] || mkdir -m 700 "$sockets"
while read -r _ _ _ _ place _; do
  place=$(printf %b "$place")
  case $place in
    /dev | /dev/* | /proc | /proc/* | /sys | /sys/* | /run | /run/*) continue ;;
  esac
  mount -o remount,bind,ro "$place" 2>/dev/null || [[ ,$(findmnt -no OPTIONS "$place"), == *,ro,* ]] || exit 125
done </proc/self/mountinfo
mount -t tmpfs -o mode=700 sockets "$sockets"
while [ "$1" != -- ]; do
  mount --bind "$1" "$1"
  mount -o remount,bind,rw "$1"
  shift
done
shift
exec "$@"
