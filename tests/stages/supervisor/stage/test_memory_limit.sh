#!/usr/bin/env bash
# A run in a control group that has less memory than the trainer takes: the dry run and doctor say so, and a
# trainer that is killed for it is said to be. Needs the right to make a group.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# The group of this shell, below which a new one is made, and the files that limit its memory.
if [ -d /sys/fs/cgroup/memory ]; then
  parent=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory:\(.*\)$/\1/p' /proc/self/cgroup)
  limit=memory.limit_in_bytes swap=memory.memsw.limit_in_bytes
else
  parent=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
  limit=memory.max swap=memory.swap.max
fi
group=$parent/plm-test.$$
remove_group() {
  local status=$?
  set +e
  wait
  rmdir "$group" || status=1
  return $status # for end_children, which exits with it
}
mkdir "$group" 2>/dev/null && trap 'remove_group; end_children' EXIT
if ! { echo 120000000 >"$group/$limit"; } 2>/dev/null; then
  echo "no control group can be made here, or none that limits memory"
  exit 77
fi
if [ $swap = memory.swap.max ]; then amount=0; else amount=120000000; fi
{ echo $amount >"$group/$swap"; } 2>/dev/null || true # without swap there is no such file

in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$@"); }

small_corpus corpus 120
small_config pipeline.yaml transformer
sed -i 's/hidden_size: 64/hidden_size: 256/; s/num_hidden_layers: 2/num_hidden_layers: 8/
  s/batch_tokens: .*/batch_tokens: 4096/' pipeline.yaml

bytes=$(cat "$group/$limit") # the kernel rounds it to whole pages
megabytes=$(awk -v bytes="$bytes" 'BEGIN { printf "%.1f", bytes / 1e6 }')
in_group plm-pipeline up --dry-run pipeline.yaml >out 2>err || fail "dry run: $(cat err)"
says out "MB are free; the control group of this process may use $megabytes MB\)"
says out 'no micro-batch fits|this does not fit'
in_group plm-pipeline doctor pipeline.yaml >out 2>err && fail "doctor finds no problem"
says out '^problem memory .* of the 0\.12 GB of the control group are free$'
says out 'fix: .*(a container with more memory|micro_batch_tokens)'

in_group plm-pipeline up pipeline.yaml --set trainer.restart=no >out 2>err && fail "the run has ended well"
says err 'failed: trainer\.0 was killed by signal 9 \(Killed\), probably for lack of memory$'
says err "  its control group may use $megabytes MB \($group\): give the container more, or set"

# Without the limit the same run is not said to have too little.
plm-pipeline doctor pipeline.yaml >out 2>err || true
! grep -q 'problem memory' out || fail "doctor counts a group that this process is not in"
