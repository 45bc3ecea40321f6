#!/usr/bin/env bash
# The benchmark of large corpora runs to its end with a few documents and prints all rows.
. "$PLM_ROOT/tests/support/shell/lib.sh"
expect 0 env TMPDIR="$PLM_TMP" python3 "$PLM_ROOT/tests/bench/bench_corpus.py" 6000 3
says out '^\| `ingest --jobs 1` \| [0-9.]+ s \| [0-9]+ MB/s \|'
[ "$(grep -c '^| `ingest --jobs' out)" -eq 2 ] || fail "not two rows of ingest: $(cat out)"
says out '^\| from the start of `up` to the end of step 1 \| [0-9.]+ s \|$'
says out '^\| packer after 20 steps \| [0-9]+ MB of its own, [0-9]+ MB pages of files \|$'
