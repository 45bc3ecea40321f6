#!/usr/bin/env bash
# Ranks on two nodes of Slurm, each a host with a name, a network and shared memory of its own: the job ends with
# the bits of a run of one rank.
. "${PLM_ROOT:?}/tests/stages/slurm/local_slurm.sh"
. "$PLM_ROOT/tests/support/shell/trainer.sh"
if [ ! -e "$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so" ] || ! make_hosts >hosts.log 2>&1; then
  echo "this build has no MPI, or no networks can be made here"
  exit 77
fi
start_cluster apart
trainer_config transformer
sed -i 's/threads: 2/threads: 1/' pipeline.yaml
sed -i 's/  steps: 60/  device: cpu\n  shares: 4\n  steps: 30/' pipeline.yaml
small_corpus corpus 300
sed -i 's/micro_batch_tokens: 256/micro_batch_tokens: 128/' pipeline.yaml
run_undisturbed undisturbed

plm-pipeline slurm -q --cpus 1 --packer-cpus 1 --evaluator-cpus 1 --time 30 --nodes 2 --run apart \
  --set trainer.ranks=4 --output job.sh || fail "plm-pipeline slurm"
job=$(sbatch --parsable job.sh) || fail "sbatch"
ended() { job_is "$job" COMPLETED || job_is "$job" FAILED; }
wait_for 120 ended
job_is "$job" COMPLETED || fail "the job failed: $(tail -n 30 slurm-*.out apart/logs/*.log cluster/n?.log)"
says apart/logs/trainer.0.log '4 ranks, 2 of them on this host'
same_run undisturbed apart 30
