#!/usr/bin/env bash
# `plm-pipeline slurm` on a Slurm cluster on this machine: a job that Slurm requeues, and that requeues itself
# after the notice of its time limit, ends with the bits of an undisturbed run; a killed trainer is started
# again; a mistake in the configuration is not.
if [ ! -e "${PLM_BUILD:?}/lib/plm-pipeline/libplm_mpi.so" ]; then
  echo "this build has no MPI"
  exit 77
fi
. "${PLM_ROOT:?}/tests/stages/slurm/local_slurm.sh"
. "$PLM_ROOT/tests/support/shell/trainer.sh"

show_logs() {
  tail -n 30 "$PLM_TMP"/slurm-*.out "$PLM_TMP"/*/logs/*.log "$PLM_TMP"/cluster/*.log
  squeue
}

# submit SCRIPT N: submits a job whose trainer waits for a signal before it records step N of each start. Slurm
# would continue a stopped process.
submit() { PLM_STOP_WAIT=1 stopping_at "write:*/trainer.jsonl#$2" sbatch --parsable "$1"; }
trainer_waits() { pgrep -x waiting >/dev/null; }
last_step() { jq .step "$1/trainer.jsonl" | tail -n 1; }
nobody_runs() { ! pgrep '^(plm-.*|waiting)$' >/dev/null; }
completed() { job_is "$1" COMPLETED; }
script() { plm-pipeline slurm -q --cpus 1 --packer-cpus 1 --evaluator-cpus 1 --time 30 "$@" || fail "plm-pipeline slurm $*"; }

start_cluster
trainer_config transformer
sed -i 's/wait_packers_s: 300/&, keys: keys/; s/threads: 2/threads: 1/' pipeline.yaml
# The evaluator waits this long if it is told to stop together with its packers.
sed -i 's/  steps: 60/  device: cpu\n  shares: 2\n  stop_timeout_s: 5\n  steps: 60/' pipeline.yaml
plm-pipeline keys keys >/dev/null || fail "keys"
small_corpus corpus 300
run_undisturbed undisturbed

# ---- two ranks, and packers on a node of their own; requeued by Slurm, then by the notice ----
script --run requeued --packer-nodes 1 --set packer.instances=2 --set trainer.ranks=2 --output apart.sh
job=$(submit apart.sh 23) || fail "sbatch"
wait_for 60 trainer_waits
scontrol requeue "$job"
wait_for 60 all_pending "$job"
says "slurm-$job.out" 'stopped by Slurm'
! grep 'restarting it' "slurm-$job.out" ||
  fail "a stage that Slurm stopped counts as failed"
[ "$(last_step requeued)" -eq 23 ] || fail "the requeued trainer did not end its step"
[ -e requeued/checkpoints/step_00000023 ] || fail "the requeued trainer published nothing"
start_again "$job"

wait_for 60 trainer_waits
# each packer once, by the name that the trainer knows, and not a second time as one that joined
packers() { plm-pipeline ps --run requeued --json | jq -ce 'map(select(.stage == "packer"))'; }
listed() { packers | jq -e 'length == 2 and all(.state == "ready" and has("standby"))'; }
wait_for 60 listed
scancel --signal=USR1 --batch "$job" # as before the time limit
wait_for 60 all_pending "$job"
says "slurm-$job.out" 'requeueing the job'
! grep 'did not requeue' "slurm-$job.out" || fail "a requeued job says that it is not"
[ "$(last_step requeued)" -eq 46 ] || fail "the trainer did not end its step after the notice"
start_again "$job"

wait_for 120 completed "$job"
[ "$(job_field "$job" Restarts)" -eq 2 ] || fail "restarts: $(job_field "$job" Restarts)"
says "slurm-$job.out" 'start 3, on '
says "slurm-$job.out" 'the run is complete'
same_run undisturbed requeued 60
jq -e -s 'any(.step == 60)' requeued/evaluator.jsonl >/dev/null || fail "step 60 was not evaluated"
[ -s requeued/logs/packer.0.log ] && [ -s requeued/logs/packer.1.log ] || fail "no log of a packer"
wait_for 60 nobody_runs

# ---- everything on one node; one of two ranks is killed ----
script --run killed --set trainer.ranks=2 --output beside.sh
job=$(submit beside.sh 60) || fail "sbatch"
wait_for 60 trainer_waits
pkill -KILL -x waiting
wait_for 120 completed "$job"
says "slurm-$job.out" 'trainer.0 exited with 137; restarting it in'
same_run undisturbed killed 60
[ "$(job_field "$job" Restarts)" -eq 0 ] || fail "requeued after a failure"

# ---- a mistake in the configuration ----
script --run wrong --output wrong.sh
sed -i 's/  steps: 60/  steps: 0/' pipeline.yaml
job=$(sbatch --parsable wrong.sh) || fail "sbatch"
wait_for 120 job_is "$job" FAILED
[ "$(job_field "$job" ExitCode)" = 2:0 ] || fail "exit code $(job_field "$job" ExitCode)"
[ "$(grep -c 'plm: ' "slurm-$job.out")" -eq 2 ] || fail "a mistake in the configuration was tried again"
wait_for 60 nobody_runs

# ---- GPUs: what each step gets, with stand-ins for the programs ----
mkdir fake
cp "$PLM_BIN/plm-pipeline" fake/plm-pipeline
cat >fake/plm-trainer <<'STAGE'
#!/bin/bash
stage=${0##*/plm-}
stopped=''
trap 'stopped=yes' USR1
echo "task $SLURM_PROCID of $SLURM_NTASKS on node $SLURM_NODEID of $SLURM_NNODES: $SLURM_CPUS_PER_TASK CPUs," \
  "GPUs ${CUDA_VISIBLE_DEVICES-none}" >>"$PLM_TMP/fake.$stage"
case $stage in
  trainer) # ends when the others have started
    until [ "$(cat "$PLM_TMP"/fake.evaluator "$PLM_TMP"/fake.packer | wc -l)" -eq 3 ]; do sleep 0.1; done
    mkdir "$PLM_TMP/fake-run/checkpoints"
    cp "$PLM_TMP/undisturbed/DONE" "$PLM_TMP/fake-run/DONE"
    ;;
  evaluator) until [ -e "$PLM_TMP/fake-run/DONE" ]; do sleep 0.1; done ;;
  packer) until [ -n "$stopped" ]; do sleep 0.1; done ;;
esac
STAGE
chmod +x fake/plm-trainer
ln -s plm-trainer fake/plm-evaluator
ln -s plm-trainer fake/plm-packer
sed -i 's/  steps: 0/  steps: 60/; s/  device: cpu/  device: cuda/' pipeline.yaml
fake/plm-pipeline slurm -q --run fake-run --cpus 2 --packer-cpus 1 --evaluator-cpus 3 --set packer.instances=2 \
  --output gpus.sh || fail "plm-pipeline slurm with a GPU"
job=$(sbatch --parsable gpus.sh) || fail "sbatch"
wait_for 60 completed "$job"
sort fake.trainer fake.evaluator fake.packer | diff - <(
  echo "task 0 of 1 on node 0 of 1: 1 CPUs, GPUs none"
  echo "task 0 of 1 on node 0 of 1: 1 CPUs, GPUs none"
  echo "task 0 of 1 on node 0 of 1: 2 CPUs, GPUs 0"
  echo "task 0 of 1 on node 0 of 1: 3 CPUs, GPUs none"
) || fail "the steps got something else"
