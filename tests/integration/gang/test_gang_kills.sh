#!/usr/bin/env bash
# Either rank, or mpirun, is killed while rank 1 is within an exchange of gradients; and the other rank, or mpirun, while
# rank 0 writes a checkpoint: the newest checkpoint is intact, neither processes nor files are left, and the run continues
# to the bits of an undisturbed one. That the death of who publishes leaves no half of a checkpoint, whenever it comes, is
# what tests/chaos/test_kill_trainer_unet.sh shows without ranks.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/gang.sh"
small_corpus corpus
small_config pipeline.yaml transformer
# matrices of 256 x 256 have an owner; the ranks exchange only these
sed -i 's/  steps: 12/  ranks: 2\n  restart: "no"\n  steps: 12/; s/size: 64/size: 256/' pipeline.yaml

shared() { find /dev/shm -maxdepth 1 -newer pipeline.yaml -name 'vader_segment.*' | sort; }

run=whole
begin whole trainer packer
up_ends 0
weights() { (cd "$1/checkpoints/step_00000012" && sha256sum ./*.safetensors); }
weights whole >whole.sums

# killed_at RANK CALL VICTIM STEP: kills it when the rank stops there; STEP is the newest checkpoint
killed_at() {
  local rank=$1 where=$2 victim=$3 left newest
  run=killed
  rm -rf killed
  # mpirun waits this long, twice, before it kills the other ranks; in that time, rank 0 can finish its checkpoint
  local patience=0
  [ "$victim" != 1 ] || patience=1
  OMPI_MCA_odls_base_sigkill_timeout=$patience begin_until "$rank" "$where" killed trainer packer
  folder=$(folder_of killed)
  [ -d "$folder" ] || fail "mpirun has no folder of its own: $folder"
  [ ! -e killed/DONE ] || fail "the run was complete at $where"
  case $victim in
    mpirun) kill -KILL "$(mpirun_of killed)" ;;
    *) kill -KILL "$(rank_of killed "$victim")" ;;
  esac
  up_ends 1
  says killed.err 'failed: trainer.0 (lost a rank to|was killed by) signal 9'
  nothing_left
  left=$(shared)
  [ -z "$left" ] || fail "shared memory is left: $left"
  newest=$(readlink killed/checkpoints/latest)
  case $victim-$newest in
    *-step_0000000$4) ;;
    # mpirun continues stopped ranks before it ends them, so rank 0 may finish its checkpoint.
    1-step_00000008 | mpirun-step_00000008) ;;
    *) fail "latest is $newest, not that of step $4, after $where and the death of $victim" ;;
  esac
  expect 0 plm-pipeline checkpoints --verify killed
  begin killed trainer packer
  up_ends 0
  same_as_whole killed
  weights killed | diff whole.sums - || fail "the weights after $where differ from those of an undisturbed run"
  nothing_left
}

for victim in 0 1 mpirun; do killed_at 1 'exchange:*#20' $victim 0; done
for victim in 1 mpirun; do killed_at 0 'write:*step_00000008/optimizer.safetensors#1' $victim 4; done
