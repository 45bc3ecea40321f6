#!/usr/bin/env bash
# Two hosts: network namespaces with a link between them and names of their own. Four ranks on both give the
# bits of one rank, also with unequal numbers of ranks on the hosts; if the link goes down, the ranks on
# either side name one of the other.
# shellcheck disable=SC2086 # words of a command
if [ "${1:-}" != inside ]; then
  for namespace in "unshare -rn" "unshare -n"; do
    if $namespace ip link add va type veth peer name vb 2>/dev/null; then exec $namespace "$BASH" "$0" inside; fi
  done
  echo "no network namespaces here"
  exit 77
fi
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config unet
common=(--set trainer.checkpoint.every=3 --set trainer.micro_batch_tokens=128 --set trainer.batch_tokens=768
  --set trainer.threads=1 --set model.hidden_size=256 --set model.num_attention_heads=4 --set trainer.rank_timeout_s=10)

# this process is on the host near; the holder keeps the other one
unshare -nu sleep 1000 &
far=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
far_net=$(readlink "/proc/$far/ns/net")
on_far() { [ "$(readlink "/proc/$1/ns/net" 2>/dev/null)" = "$far_net" ]; }
# without the link, nobody tells the daemon of mpirun there to end
end_far() {
  local path
  for path in /proc/[0-9]*; do on_far "${path#/proc/}" && kill -9 "${path#/proc/}"; done
}
trap 'status=$?; end_far; (exit "$status"); end_children' EXIT
in_far() { nsenter --target "$far" --net --uts "$@"; }
in_far hostname far
ip link add v0 type veth peer name v0 netns "$far"
ip addr add 10.77.0.1/24 dev v0
in_far ip addr add 10.77.0.2/24 dev v0
for run in "" in_far; do
  $run ip link set lo up
  $run ip link set v0 up
done
# what mpirun calls instead of ssh: OPTION... HOST COMMAND...
cat >"$PLM_TMP/agent" <<AGENT
#!/usr/bin/env bash
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec nsenter --target $far --net --uts bash -c "\$*"
AGENT
chmod +x "$PLM_TMP/agent"

# start_hosts NEAR FAR RUN [ARG...]: a gang with as many ranks on either host
start_hosts() {
  local near_ranks=$1 far_ranks=$2 run=$3
  local ranks=$((near_ranks + far_ranks))
  shift 3
  mpirun --mca plm_rsh_agent "$PLM_TMP/agent" --host "10.77.0.1:$near_ranks,10.77.0.2:$far_ranks" --bind-to none -np $ranks \
    "$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set "trainer.ranks=$ranks" "$@" \
    >>"$PLM_TMP/trainer.log" 2>&1 &
  trainer_pid=$!
}

# shares 4: two on each host; shares 3 and ranks 2 + 1: groups of one rank
for shares in 4 3; do
  whole=$PLM_TMP/whole-$shares both=$PLM_TMP/both-$shares
  few=(--set trainer.steps=4 --set "trainer.shares=$shares")
  [ "$shares" -eq 4 ] && few+=(--set trainer.batch_tokens=512)
  start_packer "$whole"
  run_ranks 1 "$whole" "${common[@]}" "${few[@]}" || fail "one rank with $shares shares ended with $?"
  start_packer "$both"
  start_hosts 2 $((shares - 2)) "$both" "${common[@]}" "${few[@]}"
  wait "$trainer_pid" || fail "$shares ranks on two hosts ended with $?"
  same_run "$whole" "$both" 4
done

# the link goes down: mpirun itself may hang, so its ranks have to end without it
lost=$PLM_TMP/lost
start_packer "$lost"
: >"$PLM_TMP/trainer.log"
start_hosts 1 1 "$lost" "${common[@]}" --set trainer.steps=100000 --set trainer.shares=2
until_lines "$lost" 3
near=$(ranks_of "$trainer_pid")
away=$(pgrep -x plm-trainer | while read -r pid; do on_far "$pid" && echo "$pid"; done)
[ -n "$near" ] && [ -n "$away" ] || fail "there is no rank on one of the hosts: near $near, far $away"
in_far ip link set v0 down
no_rank_left $near $away
grep -q 'rank 1 on far has been silent for [0-9]* s; it was in step' "$PLM_TMP/trainer.log" || fail "nobody names the lost rank"
kill_trainer
plm-pipeline checkpoints --verify "$lost" >"$PLM_TMP/verified.log" 2>&1 || fail "a checkpoint does not verify"
