#!/usr/bin/env bash
# `up` with a rank on another host, over real ssh: an sshd of the test's own, with keys of its own, listens on the
# loopback interface. The gang trains, stops and survives the death of mpirun, and leaves no process behind.
# shellcheck disable=SC2154 # up: gang.sh sets it
if [ "$(id -u)" -eq 0 ] && [ "${1:-}" != inside ]; then
  # As root, sshd wants /run/sshd, and refuses users whose password is locked. Both are so only in here.
  unshare -m true 2>/dev/null || {
    echo "no mount namespaces here, and sshd wants /run/sshd"
    exit 77
  }
  exec unshare -m "$BASH" -c 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd &&
    sed "s/^root:!*:/root:*:/" /etc/shadow >"$PLM_TMP/shadow" && mount --bind "$PLM_TMP/shadow" /etc/shadow &&
    exec "$BASH" "$0" inside' "$0"
fi
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/gang.sh"
sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) && command -v ssh >/dev/null || {
  echo "openssh-server or openssh-client is not installed"
  exit 77
}

# ---- the server ----
unset SSH_AUTH_SOCK
for key in server user; do ssh-keygen -q -t ed25519 -N '' -C "$key" -f "$PLM_TMP/$key"; done
listens() { grep -q '^Server listening' sshd.log; }
listens_or_ended() { listens || ! kill -0 "$server" 2>/dev/null; }
for _ in {1..20}; do # until a port is free
  port=$((20000 + RANDOM))
  cat >sshd_config <<CONFIG
ListenAddress 127.0.0.1
Port $port
HostKey $PLM_TMP/server
AuthorizedKeysFile $PLM_TMP/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
CONFIG
  "$sshd" -D -e -f "$PLM_TMP/sshd_config" 2>sshd.log </dev/null &
  server=$!
  wait_for 60 listens_or_ended
  ! listens || break
done
listens || fail "sshd does not start: $(cat sshd.log)"
cat >ssh_config <<CONFIG
Host plm-other
  HostName 127.0.0.1
  Port $port
  User $(id -un)
  IdentityFile $PLM_TMP/user
  IdentitiesOnly yes
  UserKnownHostsFile $PLM_TMP/known
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  BatchMode yes
CONFIG
printf '[127.0.0.1]:%d %s\n' "$port" "$(cut -d ' ' -f 1,2 server.pub)" >known
ssh -F ssh_config plm-other true || fail "ssh cannot log in: $(cat sshd.log)"
export OMPI_MCA_plm_rsh_agent="ssh -F $PLM_TMP/ssh_config"

# ---- the runs ----
small_corpus corpus
small_config pipeline.yaml unet
sed -i 's/  steps: 12/  ranks: 2\n  steps: 40/; s/every: 4/every: 20/' pipeline.yaml
both=(--set "trainer.hosts=localhost:1,plm-other:1")
logins() { grep -c '^Accepted publickey' sshd.log; }

# job_of RUN: by which number mpirun and its daemons call the gang
job_of() { variable_of "$(rank_of "$1" 0)" PMIX_NAMESPACE; }
# all_gone RUN: neither ranks nor daemons of mpirun nor sessions of ssh are left on either host
all_gone() {
  ! pgrep -f "plm-trainer.*$PLM_TMP/$1( |$)" && ! pgrep -f "orted.* ess_base_jobid $((job - 1))( |$)" && ! pgrep -P "$server"
}
# rank_there RUN: the rank that ssh started
rank_there() {
  local process
  for process in $(pgrep -f "plm-trainer.*$PLM_TMP/$1( |$)"); do
    [ "$(variable_of "$process" OMPI_COMM_WORLD_RANK)" != 1 ] || echo "$process"
  done
}

run=whole
begin whole
up_ends 0
nothing_left

# a kill of mpirun while the gang trains, then its end
run=killed
before=$(logins)
begin_stopping 25 killed "${both[@]}"
job=$(job_of killed)
[ "$(logins)" -eq $((before + 1)) ] || fail "mpirun did not log in once: $(cat sshd.log)"
away=$(rank_there killed)
{ tr '\0' '\n' <"/proc/$away/environ"; } | matches '^SSH_CONNECTION=127.0.0.1 ' || fail "rank 1 was not started over ssh"
! { tr '\0' '\n' <"/proc/$away/environ"; } | matches -E '^PLM_(GANG_FOLDER|SUPERVISED)=' || fail "rank 1 has variables of this host"
kill -KILL "$(mpirun_of killed)"
go_on
up_ends 0
says killed.err 'trainer.0 was killed by signal 9 .*; restarting it in'
same_as_whole killed
nothing_left
wait_for 60 all_gone killed
[ "$(logins)" -eq $((before + 2)) ] || fail "the second gang did not log in once: $(cat sshd.log)"

# the rank over there is killed
run=lost
begin_stopping 25 lost "${both[@]}"
job=$(job_of lost)
kill -KILL "$(rank_there lost)"
go_on
up_ends 0
says lost.err 'trainer.0 lost a rank to signal 9 .*; restarting it in'
same_as_whole lost
nothing_left
wait_for 60 all_gone lost

# a stop, and the next start
run=stopped
begin_waiting 10 stopped "${both[@]}"
job=$(job_of stopped)
kill -TERM $up
up_ends 143
says stopped.err 'stopped; `plm-pipeline up --run stopped` with the same --set will continue from step'
! grep -q 'while it was stopping' stopped.err || fail "the stop was no clean one: $(cat stopped.err)"
nothing_left
wait_for 60 all_gone stopped
begin stopped "${both[@]}"
up_ends 0
same_as_whole stopped
nothing_left

# a host that is not the one it was
ssh-keygen -q -t ed25519 -N '' -C intruder -f "$PLM_TMP/intruder"
printf '[127.0.0.1]:%d %s\n' "$port" "$(cut -d ' ' -f 1,2 intruder.pub)" >known
run=unknown
begin unknown "${both[@]}" --set trainer.restart=no
up_ends 1
says unknown.err '^ *[|] .*Host key verification failed'
nothing_left
