#!/usr/bin/env bash
# The benchmark of clusters runs to its end with a few documents and prints all four rows.
. "$PLM_ROOT/tests/support/shell/lib.sh"
expect 0 python3 "$PLM_ROOT/tests/bench/bench_clusters.py" 3000 1000
[ "$(grep -c '^| [0-9]' out)" -eq 4 ] || fail "not four rows: $(cat out)"
says out '^\| 600 \| 200 \| `--clusters` \|'
says out '^\| 3,000 \| 1,000 \| `--clusters` \|'
