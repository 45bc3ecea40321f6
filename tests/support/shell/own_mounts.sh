# shellcheck shell=bash
# For a script that mounts file systems, which sources this before anything else: runs the script again in
# a mount namespace of its own, or skips it if there are none here.
# shellcheck disable=SC2086 # words of a command
if [ "${1:-}" != inside ]; then
  for namespace in "unshare -rm" "unshare -m"; do
    if $namespace mount -t tmpfs none "${PLM_TMP:?}" 2>/dev/null; then
      exec $namespace "$BASH" "$0" inside
    fi
  done
  echo "no mount namespaces here"
  exit 77
fi
