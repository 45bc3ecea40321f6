#!/usr/bin/env bash
# About a hundred faults, spread evenly over all calls that touch the disk (doc/faults.md). `make faults`
# tries every call.
[ -e "${PLM_BUILD:?}/tests/lib/faults.so" ] || { echo "no faults.so under sanitizers"; exit 77; }
sample() {
  python3 -B "$PLM_ROOT/tests/faults/faults.py" --jobs 4 "$@" || exit 1
}
sample trainer resume ingest up --sample 90
sample never back --sample 24
sample evaluator --how lost --sample 6
sample evaluator --how torn --sample 6
