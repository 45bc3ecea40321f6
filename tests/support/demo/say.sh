# shellcheck shell=bash
# A heading of a demonstration, bold in a terminal. Sourced by the demo scripts.
bold='' plain=''
[ ! -t 1 ] || [ -n "${NO_COLOR-}" ] || bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
