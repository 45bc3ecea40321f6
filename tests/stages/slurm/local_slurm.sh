# shellcheck shell=bash
# A Slurm cluster of two nodes, n1 and n2, on this machine: munged, slurmctld and two slurmd, in namespaces of
# their own, so that they disturb nobody and end with the test. A script sources this before anything else;
# it then runs again inside, or is skipped (exit 77).
if [ "${1:-}" != inside ]; then
  for program in munged slurmctld slurmd sbatch srun scontrol scancel; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && continue
    echo "Slurm is not installed (no $program); make test-all installs it"
    exit 77
  done
  own=(unshare --net --uts --pid --mount-proc --fork --kill-child)
  if ! "${own[@]}" true 2>/dev/null; then
    echo "a Slurm cluster needs namespaces of its own, which only root has here"
    exit 77
  fi
  "${own[@]}" "$BASH" "$0" inside
  status=$?
  if pgrep -f "$PLM_TMP/cluster"; then
    echo "FAILED: these processes of the cluster are left"
    exit 1
  fi
  exit "$status"
fi
export PATH=$PATH:/usr/sbin:/sbin
export SLURM_CONF=$PLM_TMP/cluster/slurm.conf

# In the configuration: the nodes have more CPUs than the machine, and two devices that every machine has stand for
# GPUs. The scheduler looks every second. Processes are followed without cgroups. A task that does not end on
# SIGTERM, as when another rank is killed, is killed after 10 s.
# write_cluster HOSTS: how Slurm reaches the nodes
write_cluster() {
  local at=$PLM_TMP/cluster
  mkdir -m 700 "$at" "$at/munge" "$at/state" "$at/n1" "$at/n2" "$at/tmp-n1" "$at/tmp-n2"
  head -c 128 /dev/urandom >"$at/munge/key"
  chmod 400 "$at/munge/key"
  printf 'NodeName=n[1-2] Name=gpu File=/dev/%s\n' null zero >"$at/gres.conf"
  cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=localhost(10.7.7.7)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$at/munge/socket
StateSaveLocation=$at/state
SlurmdSpoolDir=$at/%n
SlurmctldPidFile=$at/slurmctld.pid
SlurmdPidFile=$at/%n.pid
SlurmctldLogFile=$at/slurmctld.log
SlurmdLogFile=$at/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MinJobAge=3600
GresTypes=gpu
TmpFS=$at/tmp-%n
NodeName=n[1-2] $1 CPUs=8 RealMemory=8000 Gres=gpu:2
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
CONF
}

nodes_idle() { [ "$(sinfo -h -N -o '%T' | grep -c idle)" -eq 2 ]; }

# make_host NODE: a host name, a network and shared memory of its own for n1 or n2; its process is in ${host[NODE]}
make_host() {
  unshare --net --uts --mount sleep infinity &
  host[$1]=$!
  until [ "$(readlink "/proc/${host[$1]}/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.05; done
  ip link add "v$1" type veth peer name v0 netns "${host[$1]}"
  ip link set "v$1" master nodes up
  on_host "$1" hostname "n$1"
  on_host "$1" ip link set lo up
  on_host "$1" ip addr add "10.7.7.$1/24" dev v0
  on_host "$1" ip link set v0 up
  on_host "$1" mount -t tmpfs none /dev/shm
}
on_host() { nsenter --target "${host[$1]}" --net --uts --mount "${@:2}"; }

# make_hosts: a host for each node, connected by a bridge
make_hosts() {
  declare -ga host
  printf '%s\n' '127.0.0.1 localhost' '10.7.7.1 n1' '10.7.7.2 n2' >"$PLM_TMP/hosts"
  mount --make-rprivate /
  mount --bind "$PLM_TMP/hosts" /etc/hosts
  ip link add nodes type bridge || return 1
  ip addr add 10.7.7.7/24 dev nodes
  ip link set nodes up
  make_host 1 && make_host 2
}

# start_cluster [apart]: with `apart`, after make_hosts, each node is on its host
start_cluster() {
  local at=$PLM_TMP/cluster node start
  ip link set lo up
  hostname localhost
  if [ "${1:-}" = apart ]; then
    write_cluster 'NodeAddr=10.7.7.[1-2]'
  else
    ip addr add 10.7.7.7/32 dev lo # Slurm resolves no name on a host that has only loopback addresses
    write_cluster 'NodeHostname=localhost NodeAddr=10.7.7.7 Port=[7002-7003]'
  fi
  munged --force --key-file="$at/munge/key" --socket="$at/munge/socket" --pid-file="$at/munge/pid" \
    --log-file="$at/munge/log" --seed-file="$at/munge/seed" </dev/null >"$at/munge/start.log" 2>&1 ||
    fail "munged: $(cat "$at/munge/start.log")"
  slurmctld </dev/null >"$at/start.log" 2>&1 || fail "slurmctld: $(cat "$at/start.log")"
  for node in 1 2; do
    start=(slurmd -N "n$node")
    [ "${1:-}" != apart ] || start=(on_host "$node" "${start[@]}")
    "${start[@]}" </dev/null >>"$at/start.log" 2>&1 || fail "slurmd: $(cat "$at/start.log")"
  done
  wait_for 30 nodes_idle
}

# job_field JOB FIELD: one value of `scontrol show job`, of the job's first component
job_field() { scontrol show job "$1" | grep -oE "(^| )$2=[^ ]*" | head -n 1 | cut -d = -f 2; }
# job_is JOB STATE
job_is() { [ "$(job_field "$1" JobState)" = "$2" ]; }

# all_pending JOB: whether every component of the job waits
all_pending() { [ "$(squeue -h -j "$1" -o %T | sort -u)" = PENDING ]; }
pushed() {
  all_pending "$1" || return 0
  scontrol update JobId="$1" StartTime=now # also wakes the scheduler
  sleep 1
  return 1
}
# start_again JOB: starts a requeued job, which Slurm would hold back for two minutes. In the second in which a start
# ended, the nodes refuse the next one.
start_again() {
  sleep 1.1
  wait_for 60 pushed "$1"
}
