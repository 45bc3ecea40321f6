/* Looking for signs of life, and killing who gives none. */
#include "stages/supervisor/supervisor_watchdog.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/text/strict_json.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "stages/views/run_activity.h"

enum {
  LOOK_MS = 1000,
  PROBE_BYTES = 4096,
  SILENT_STEPS = 20,
  MILLISECOND_BITS = 42, /* of a time in ms since 1970 */
};

/* ---- signs of life --------------------------------------------------------------------------- */

struct signs {
  uint64_t mark;
  bool starts;
  double limit_s;
};

static struct signs of_trainer(const struct stages *stages)
{
  struct plm_activity activity;
  const struct plm_config_supervisor *settings = &stages->config->supervisor;
  plm_activity_read(stages->config->run, &activity);
  return (struct signs){.mark = (activity.step << MILLISECOND_BITS) + activity.sign.written_ms,
                        .starts = !activity.stepped,
                        .limit_s = activity.stepped
                                       ? fmax(settings->silent_s, SILENT_STEPS * activity.step_s)
                                       : settings->silent_start_s};
}

static struct signs of_evaluator(const struct stages *stages)
{
  struct plm_activity activity;
  const struct plm_config_supervisor *settings = &stages->config->supervisor;
  plm_activity_read_evaluator(stages->config->run, &activity);
  const bool starts = !activity.pulsed || activity.sign.patient;
  return (struct signs){.mark = activity.sign.written_ms,
                        .starts = starts,
                        .limit_s =
                            starts ? settings->silent_start_s
                                   : fmax(settings->silent_s, SILENT_STEPS * activity.sign.pace_s)};
}

/* The packers that both consumers list; the caller deletes them. NULL: no consumer reports. */
static void read_peers(const struct stages *stages, cJSON *peers[2])
{
  static const char *const consumers[2] = {"trainer", "evaluator"};
  for (int i = 0; i < 2; i++) {
    char *text = NULL;
    peers[i] = NULL;
    if (plm_peers_read(stages->config->run, consumers[i], &text, NULL) != PLM_OK) continue;
    peers[i] = plm_json_line(text);
    free(text);
  }
}

static bool is_listed(const cJSON *peers, const struct supervised *stage)
{
  const cJSON *peer;
  cJSON_ArrayForEach(peer, peers)
  {
    if (supervised_is_peer(stage, peer)) return true;
  }
  return false;
}

/* A packer that a consumer should hear may turn its loop as it likes: it must be heard. */
static struct signs of_packer(const struct stages *stages, struct supervised *stage,
                              cJSON *const peers[2])
{
  struct plm_run_sign sign;
  const bool listed = is_listed(peers[0], stage) || is_listed(peers[1], stage);
  (void)supervised_packer_sign(stages, stage, &sign);
  const bool speaks = sign.written_ms != stage->spoken_ms;
  stage->spoken_ms = sign.written_ms;
  stage->heard |= listed;
  stage->listing = stage->heard && (peers[0] != NULL || peers[1] != NULL);
  return (struct signs){.mark = stage->pulse.mark + (listed || (speaks && !stage->listing)),
                        .limit_s = stages->config->supervisor.silent_s};
}

/* A packer that was launched on another host says in its first sign of life where it is. */
static void look_for_launched(const struct stages *stages, struct supervised *stage)
{
  struct plm_run_sign sign;
  if (!supervised_packer_sign(stages, stage, &sign)) return;
  stage->launched_pid = sign.pid;
  memcpy(stage->launched_host, sign.host, sizeof stage->launched_host);
}

/* ---- what follows ---------------------------------------------------------------------------- */

/* On a full or broken disk, the stages cannot show that they live. */
static bool can_write(const char *run)
{
  static const char bytes[PROBE_BYTES];
  char path[PLM_PATH_SIZE];
  if (plm_path_join(path, run, "supervisor.probe", NULL) != PLM_OK) return false;
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool written = write(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
  unlink(path);
  return close(file) == 0 && written;
}

static void kill_silent(const struct watchdog *watchdog, struct supervised *stage, double silent_s,
                        const char *setting)
{
  char name[64];
  screen_say(watchdog->screen,
             "%s has given no sign of life for %.0f s (supervisor.%s): killing it",
             supervised_name(stage, name), silent_s, setting);
  stage->silent = true;
  supervised_signal_kill(stage);
}

static void supervisor_watchdog_look(const struct watchdog *watchdog, struct supervised *stage,
                                     int64_t now_ms, cJSON *const peers[2])
{
  const struct signs signs = stage->kind == PLM_KIND_TRAINER ? of_trainer(watchdog->stages)
                             : stage->kind == PLM_KIND_EVALUATOR
                                 ? of_evaluator(watchdog->stages)
                                 : of_packer(watchdog->stages, stage, peers);
  const bool off =
      watchdog->stages->config->supervisor.silent_s <= 0.0; /* then only ages are kept */
  const int64_t limit_ms = off ? 0 : (int64_t)(1000.0 * signs.limit_s);
  if (!plm_pulse_is_lost(&stage->pulse, now_ms, signs.mark, limit_ms)) return;
  if (can_write(watchdog->stages->config->run))
    kill_silent(watchdog, stage, 1e-3 * (double)(now_ms - stage->pulse.since_ms),
                signs.starts ? "silent_start_s" : "silent_s");
  else
    stage->pulse.begun = false;
}

void watchdog_turn(struct watchdog *watchdog, int64_t now_ms)
{
  cJSON *peers[2];
  if (watchdog->stages->draining) return;
  if (watchdog->looked_ms != 0 && now_ms - watchdog->looked_ms < LOOK_MS) return;
  watchdog->looked_ms = now_ms;
  read_peers(watchdog->stages, peers);
  for (size_t i = 0; i < watchdog->stages->count; i++) {
    struct supervised *stage = &watchdog->stages->all[i];
    const bool works = stage->state == PLM_STAGE_READY || stage->state == PLM_STAGE_STARTING;
    if (!works || stage->pid <= 0 || stage->silent) continue;
    const bool launched = stage->kind == PLM_KIND_PACKER && stage->launch != NULL;
    if (launched && stage->launched_pid == 0) look_for_launched(watchdog->stages, stage);
    if (!launched || stage->launched_pid != 0)
      supervisor_watchdog_look(watchdog, stage, now_ms, peers);
  }
  cJSON_Delete(peers[0]);
  cJSON_Delete(peers[1]);
}
