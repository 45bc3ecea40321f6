#!/usr/bin/env bash
# Hosts that differ from the usual: IPv6 only, a clock that jumps, a locale with a decimal comma, a host name that
# does not resolve, a supervisor that was killed. Each run ends with the bits of an undisturbed one.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 200
small_config pipeline.yaml transformer
set -- --set trainer.steps=20 --set trainer.checkpoint.every=10 --set evaluator.max_tokens=300
expect 0 plm-pipeline up pipeline.yaml --run alone "$@"
same() { # RUN WHAT
  cmp "alone/checkpoints/latest/model.safetensors" "$1/checkpoints/latest/model.safetensors" ||
    fail "other bits with $2"
  cmp <(exact_metrics alone/trainer.jsonl) <(exact_metrics "$1/trainer.jsonl") || fail "other metrics with $2"
  [ "$(jq -r 'select(.loss) | .step' "$1/evaluator.jsonl" | sort -n | tail -n 1)" -eq 20 ] ||
    fail "no evaluation with $2"
}

# ---- IPv6 only ----
if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
  sed 's|127\.0\.0\.1|[::1]|g' pipeline.yaml >six.yaml
  expect 0 plm-pipeline up six.yaml --run six "$@"
  grep -q 'tcp://\[::1\]' six/logs/packer.0.log || fail "the packer did not use IPv6"
  same six "IPv6"
else
  echo "no IPv6 on the loopback here: it was not tried"
fi

# ---- the clock jumps an hour back and forth ----
if [[ $(basename "$PLM_BUILD") == build ]] && command -v gcc >/dev/null; then
  cat >jump.c <<'C'
/* The time of day is an hour behind in every other millisecond, so also within a short run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static time_t behind(long nanoseconds) { return nanoseconds / 1000000 % 2 ? 3600 : 0; }
int clock_gettime(clockid_t clock, struct timespec *now)
{
  const int status = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec -= behind(now->tv_nsec);
  return status;
}
time_t time(time_t *out)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
C
  gcc -shared -fPIC -o jump.so jump.c -ldl || fail "the shim does not build"
  expect 0 env LD_PRELOAD="$PWD/jump.so" plm-pipeline up pipeline.yaml --run jump "$@"
  jq -s 'map(.time) | . != sort' jump/trainer.jsonl | matches true || fail "the clock did not jump"
  same jump "a clock that jumps"
  expect 0 env LD_PRELOAD="$PWD/jump.so" plm-pipeline report jump
  expect 0 env LD_PRELOAD="$PWD/jump.so" plm-pipeline runs .
else
  echo "no shim under sanitizers: a clock that jumps was not tried"
fi

# ---- a decimal comma ----
if localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 >/dev/null 2>&1; then
  expect 0 env LOCPATH="$PWD" LC_ALL=de_DE.UTF-8 plm-pipeline up pipeline.yaml --run comma "$@"
  same comma "a decimal comma"
  env LOCPATH="$PWD" LC_ALL=de_DE.UTF-8 plm-pipeline config --set trainer.loss.z_loss=0.25 | matches 'z_loss.*0\.25' ||
    fail "a decimal point was read or written as something else"
else
  echo "no sources of locales here: a decimal comma was not tried"
fi

# ---- the host's name does not resolve ----
if unshare -ru true 2>/dev/null; then
  expect 0 unshare -ru sh -c 'hostname no-such-host.invalid && exec "$@"' sh plm-pipeline up pipeline.yaml --run name "$@"
  same name "a host name that does not resolve"
else
  echo "no namespaces here: a host name that does not resolve was not tried"
fi

# ---- the supervisor is killed; its socket and lock are left ----
stopping_at 'write:*/trainer.jsonl#12' plm-pipeline up pipeline.yaml --run killed "$@" >up.log 2>&1 </dev/null &
up=$!
stopped() { ps -o state=,comm= --ppid "$up" | matches '^T.*plm-trainer'; }
wait_for 30 stopped
trainer=$(ps -o pid=,comm= --ppid "$up" | awk '/plm-trainer/ {print $1}')
kill -KILL "$up"
kill -CONT "$trainer" # it publishes a checkpoint and ends, because its supervisor is gone
wait "$up" 2>/dev/null || true
gone() { ! pgrep -f "plm-(trainer|packer|evaluator).*$PWD/killed" >/dev/null; }
wait_for 30 gone
expect 3 plm-pipeline down --run killed
expect 3 plm-pipeline ps --run killed
expect 0 plm-pipeline up pipeline.yaml --run killed "$@"
same killed "a killed supervisor"
nobody_left "$PLM_TMP"
