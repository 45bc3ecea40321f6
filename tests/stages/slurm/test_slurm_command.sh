#!/usr/bin/env bash
# The scripts that `plm-pipeline slurm` prints: their syntax, and two of them in full. What options change, and which do
# not fit: test_slurm_script.c and tests/stages/commands/test_command_jobs.c.
. "${PLM_ROOT:?}/tests/support/shell/lib.sh"

here="$PLM_TMP/a folder with a ' in it"
mkdir "$here"
cd "$here"
cat >pipeline.yaml <<'YAML'
version: 1
run: runs/my run
corpus: corpus
trainer: {device: cpu, threads: 3, ranks: 4}
packer: {instances: 2}
YAML

# prints OPTION...: the script is in ./job.sh, and what it asks for in ./asked
prints() {
  expect 0 plm-pipeline slurm --output job.sh "$@"
  says err 'submit it with `sbatch job.sh`'
  bash -n job.sh || fail "not a script of bash: slurm $*"
  if command -v shellcheck >/dev/null; then shellcheck -S warning job.sh || fail "shellcheck: slurm $*"; fi
  grep '^#SBATCH' job.sh | grep -vE -- '--(chdir|output|open-mode|requeue|signal)' >asked
}
asks() { diff asked - || fail "the script asks for something else"; }

prints
says job.sh '^#SBATCH --requeue$'
says job.sh '^#SBATCH --open-mode=append$'
says job.sh '^#SBATCH --signal=B:USR1@120$'
says job.sh ' --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=3 --kill-on-bad-exit=1 --mpi=pmix"$'
says job.sh "^  --set 'network.feed=tcp://127.0.0.1:\*'$"
asks <<'END_ASKED'
#SBATCH --job-name=my_run
#SBATCH --time=24:00:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=18
END_ASKED

# the words of the script are those of the command line
PATH=/usr/bin:/bin bash -c '
  srun() { printf "%s\n" "$@"; }
  eval "$(sed "/^say()/,\$d" "$1")"; printf "%s\n" "${up[@]}"' bash job.sh >words
says words "^$here/pipeline.yaml$"
says words "^$here/runs/my run$"

# ---- two scripts in full, except for the shell functions that are the same in all of them ----
quoted="'${here//\'/\'\\\'\'}'"
quoted_config="${quoted%\'}/pipeline.yaml'"
quoted_run="${quoted%\'}/runs/my run'"
# prints_in_full OPTION...: the script, up to its functions, is standard input
prints_in_full() {
  prints "$@"
  diff <(sed '/^say()/,$d' job.sh) - || fail "the script differs: slurm $*"
}
prints_in_full --set trainer.device=cuda --set evaluator.device=cuda --set evaluator.restart=no --set trainer.stop_timeout_s=300 \
  --cpus 16 --evaluator-cpus 4 --packer-cpus 1 --account lab --partition gpu --time 2-12 --sbatch --mem=64G \
  --setup 'module load cuda' --setup 'ulimit -l unlimited' <<END_SCRIPT
#!/bin/bash
# A run of plm-pipeline as a Slurm job: start it with sbatch. Written by \`plm-pipeline slurm\`.
#SBATCH --job-name=my_run
#SBATCH --chdir=$quoted
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGUSR1 comes this many seconds before the time limit, for a last checkpoint.
#SBATCH --signal=B:USR1@360
#SBATCH --time=2-12
#SBATCH --account=lab
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=70
#SBATCH --gres=gpu:5
#SBATCH --mem=64G

module load cuda
ulimit -l unlimited
run=$quoted_run
mkdir -p "\$run/logs" || exit 1
options=(
  -c $quoted_config --run "\$run"
  --set trainer.device=cuda
  --set evaluator.device=cuda
  --set evaluator.restart=no
  --set trainer.stop_timeout_s=300
  --set 'network.feed=tcp://127.0.0.1:*'
  --set 'network.evaluation_feed=tcp://127.0.0.1:*'
  --set 'network.announcements=tcp://127.0.0.1:*'
)

# The supervisor starts each stage as a step, and again if it fails. --exact gives a step only the CPUs that it asks
# for, and --mem=0 lets the steps share the memory of the job. What the supervisor tells a process on its own host
# means nothing to a step.
step='env -u PLM_SUPERVISED -u PLM_READY_FD -u PLM_LOG_FILE srun --exact --mem=0'
here='' packers=' --relative=0'
up=(
  $PLM_BIN/plm-pipeline up "\${options[@]}" --quiet
  --launch trainer="\$step\$here --job-name=trainer --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=16 --kill-on-bad-exit=1 --mpi=pmix --gres=gpu:4"
  --launch evaluator="\$step\$here --job-name=evaluator --nodes=1 --relative=0 --ntasks=1 --cpus-per-task=4 --gres=gpu:1"
  --launch packer="\$step\$packers --job-name=packer --nodes=1 --ntasks=1 --cpus-per-task=1 --gres=none"
  trainer evaluator packer
)

END_SCRIPT
prints_in_full --nodes 2 --packer-nodes 2 --set network.keys=keys --set data.tokenizer=byte --set network.announcements=ipc://x \
  --partition gpu --packer-partition cpu --packer-sbatch --exclusive --no-evaluator <<END_SCRIPT
#!/bin/bash
# A run of plm-pipeline as a Slurm job: start it with sbatch. Written by \`plm-pipeline slurm\`.
#SBATCH --job-name=my_run
#SBATCH --chdir=$quoted
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGUSR1 comes this many seconds before the time limit, for a last checkpoint.
#SBATCH --signal=B:USR1@120
# The trainer and the evaluator.
#SBATCH --time=24:00:00
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=6
# The packers.
#SBATCH hetjob
#SBATCH --time=24:00:00
#SBATCH --partition=cpu
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=2
#SBATCH --exclusive

run=$quoted_run
mkdir -p "\$run/logs" || exit 1
# The address by which the packers' nodes reach this one.
address=\$(srun --het-group=1 --nodes=1 --ntasks=1 --exact --mem=0 printenv SLURM_LAUNCH_NODE_IPADDR) || exit 1
options=(
  -c $quoted_config --run "\$run"
  --set network.keys=keys
  --set data.tokenizer=byte
  --set network.announcements=ipc://x
  --set "network.feed=tcp://\$address:*"
  --set "network.evaluation_feed=tcp://\$address:*"
)

# The supervisor starts each stage as a step, and again if it fails. --exact gives a step only the CPUs that it asks
# for, and --mem=0 lets the steps share the memory of the job. What the supervisor tells a process on its own host
# means nothing to a step.
step='env -u PLM_SUPERVISED -u PLM_READY_FD -u PLM_LOG_FILE srun --exact --mem=0'
here=' --het-group=0' packers=' --het-group=1'
up=(
  $PLM_BIN/plm-pipeline up "\${options[@]}" --quiet
  --launch trainer="\$step\$here --job-name=trainer --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=3 --kill-on-bad-exit=1 --mpi=pmix"
  --launch packer="\$step\$packers --job-name=packer --nodes=1 --ntasks=1 --cpus-per-task=2"
  trainer packer
)

END_SCRIPT

# to standard output, with the advice on standard error
expect 0 plm-pipeline slurm --set trainer.device=auto --set packer.instances=0
says out '^#!/bin/bash$'
says out '^  trainer evaluator$'
says err 'trainer.device is auto, so the job asks for no GPU'
says err 'packer.instances is 0, so the job starts no packer'

# ---- mistakes ----
refuses() {
  local what=$1
  shift
  expect 2 plm-pipeline slurm "$@"
  says err "$what"
}
printf 'include: pipeline.yaml\n' >including.yaml
for file in including.yaml pipeline.yaml; do # neither is replaced
  cp "$file" before
  refuses "--output $file is also the input" including.yaml --output "$file"
  cmp "$file" before
done
refuses 'nothing.yaml' nothing.yaml
