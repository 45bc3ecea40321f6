#!/usr/bin/env bash
# The copy engine reads a map of tiles only in a kernel's parameters. nvcc copies a parameter whose
# address is taken to a thread's own memory, unless it is `const __grid_constant__`, and says nothing.
# The emulation cannot see the difference, so this test reads the kernels' declarations.
set -euo pipefail
cd "$PLM_ROOT"

# The parameters of kernels in FILES that hold a map and are not declared so.
wrong() {
  sed -s '$a\\' "$@" | tr '\n' ' ' | grep -oP '__global__[^;{]*\([^;{]*\)\s*\{' | sed 's/^[^(]*([0-9A-Z_, ]*)//' |
    tr ',({' '\n' | grep 'plm_tile_map' | grep -v 'const PLM_GRID_CONSTANT plm_tile_map ' || true
}

mapfile -t files < <(find kernels/cuda tests/emulation -name '*.cu' -o -name 'planted*.cc')
grep -l 'const PLM_GRID_CONSTANT plm_tile_map' "${files[@]}" >"$PLM_TMP/with_maps"
[ "$(wc -l <"$PLM_TMP/with_maps")" -ge 3 ] || { echo "the kernels with maps are not where this test looks"; exit 1; }
found=$(wrong "${files[@]}")
[ -z "$found" ] || { echo "a map of tiles is not const PLM_GRID_CONSTANT: $found"; exit 1; }

# The test finds a parameter without it, in each of these files.
while read -r file; do
  for without in 's/const PLM_GRID_CONSTANT plm_tile_map/const plm_tile_map/' \
    's/const PLM_GRID_CONSTANT plm_tile_map/PLM_GRID_CONSTANT plm_tile_map/'; do
    sed "$without" "$file" >"$PLM_TMP/mutant"
    [ -n "$(wrong "$PLM_TMP/mutant")" ] || { echo "not found in $file after $without"; exit 1; }
  done
done <"$PLM_TMP/with_maps"
