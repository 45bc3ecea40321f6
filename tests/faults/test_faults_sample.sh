#!/usr/bin/env bash
# About forty faults, spread evenly over all calls that touch the disk (doc/faults.md). `make faults`
# tries every call.
[ -e "${PLM_BUILD:?}/tests/lib/faults.so" ] || { echo "no faults.so under sanitizers"; exit 77; }
sample() {
  python3 -B "$PLM_ROOT/tests/faults/faults.py" --jobs 2 "$@" || exit 1
}
sample trainer resume ingest up --sample 28
sample never back --sample 10
sample evaluator --how lost --how torn --sample 4
