#!/usr/bin/env bash
# Runs while their processes are killed, stopped and starved and connections break (doc/faults.md#chaos).
# `make chaos` has more.
case $(basename "${PLM_BUILD:?}") in
  asan | tsan) echo "sanitizers do not work with little memory"; exit 77 ;;
esac
python3 -B "${PLM_ROOT:?}/tests/faults/chaos.py" --seed 1 --kills 8 --arrangement hand &&
  python3 -B "${PLM_ROOT:?}/tests/faults/chaos.py" --seed 1 --kills 8 --arrangement up
