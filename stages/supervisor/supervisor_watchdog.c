/* Kills stages that hang, so that they are started again. What is expected of a stage:
 *
 *   trainer    a step, or pulse.trainer.json: until its first step, and whenever it waits
 *   evaluator  pulse.evaluator.json
 *   packer     that a consumer lists it, once one has done so and while one reports its packers;
 *              otherwise pulse.packer.N.json
 *
 * The thread that computes writes these files, also while it waits for packers or for a checkpoint
 * to be written. That it waits is only believed as long as it says so.
 *
 * What a stage does while it starts may take longer (supervisor.silent_start_s).
 * All of these are files in the run folder. If nothing can be written there, nothing is expected.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/progress.h"
#include "common/base/strict_json.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "stages/supervisor/supervisor_internal.h"
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

static struct signs of_trainer(const struct plm_supervisor *supervisor)
{
  struct plm_activity activity;
  const struct plm_config_supervisor *settings = &supervisor->stages.config->supervisor;
  plm_activity_read(supervisor->stages.config->run, &activity);
  return (struct signs){.mark = (activity.step << MILLISECOND_BITS) + activity.sign.written_ms,
                        .starts = !activity.stepped,
                        .limit_s = activity.stepped
                                       ? fmax(settings->silent_s, SILENT_STEPS * activity.step_s)
                                       : settings->silent_start_s};
}

static struct signs of_evaluator(const struct plm_supervisor *supervisor)
{
  struct plm_activity activity;
  const struct plm_config_supervisor *settings = &supervisor->stages.config->supervisor;
  plm_activity_read_evaluator(supervisor->stages.config->run, &activity);
  const bool starts = !activity.pulsed || activity.sign.patient;
  return (struct signs){.mark = activity.sign.written_ms,
                        .starts = starts,
                        .limit_s =
                            starts ? settings->silent_start_s
                                   : fmax(settings->silent_s, SILENT_STEPS * activity.sign.pace_s)};
}

/* The packers that both consumers list; the caller deletes them. NULL: no consumer reports. */
static void read_peers(const struct plm_supervisor *supervisor, cJSON *peers[2])
{
  static const char *const consumers[2] = {"trainer", "evaluator"};
  for (int i = 0; i < 2; i++) {
    char *text = NULL;
    peers[i] = NULL;
    if (plm_peers_read(supervisor->stages.config->run, consumers[i], &text, NULL) != PLM_OK)
      continue;
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
static struct signs of_packer(const struct plm_supervisor *supervisor, struct supervised *stage,
                              cJSON *const peers[2])
{
  struct plm_run_sign sign;
  char role[PACKER_ROLE_SIZE];
  const bool listed = is_listed(peers[0], stage) || is_listed(peers[1], stage);
  supervised_packer_role(stage, role);
  (void)plm_run_pulse_read_of(supervisor->stages.config->run, role, stage->pid, &sign);
  const bool speaks = sign.written_ms != stage->spoken_ms;
  stage->spoken_ms = sign.written_ms;
  stage->heard |= listed;
  stage->listing = stage->heard && (peers[0] != NULL || peers[1] != NULL);
  return (struct signs){.mark = stage->pulse.mark + (listed || (speaks && !stage->listing)),
                        .limit_s = supervisor->stages.config->supervisor.silent_s};
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

static void kill_silent(struct plm_supervisor *supervisor, struct supervised *stage,
                        double silent_s, const char *setting)
{
  char name[64];
  supervised_name(stage, name);
  screen_say(&supervisor->screen,
             "%s has given no sign of life for %.0f s (supervisor.%s): killing it", name, silent_s,
             setting);
  stage->silent = true;
  kill(stage->pid, SIGKILL);
  plm_process_signal_all(plm_stage_kinds[stage->kind].name, stage->instance, stage->pid, SIGKILL);
}

static void look(struct plm_supervisor *supervisor, struct supervised *stage, int64_t now_ms,
                 cJSON *const peers[2])
{
  const struct signs signs = stage->kind == PLM_KIND_TRAINER ? of_trainer(supervisor)
                             : stage->kind == PLM_KIND_EVALUATOR
                                 ? of_evaluator(supervisor)
                                 : of_packer(supervisor, stage, peers);
  const bool off =
      supervisor->stages.config->supervisor.silent_s <= 0.0; /* then only ages are kept */
  const int64_t limit_ms = off ? 0 : (int64_t)(1000.0 * signs.limit_s);
  if (!plm_pulse_is_lost(&stage->pulse, now_ms, signs.mark, limit_ms)) return;
  if (can_write(supervisor->stages.config->run))
    kill_silent(supervisor, stage, 1e-3 * (double)(now_ms - stage->pulse.since_ms),
                signs.starts ? "silent_start_s" : "silent_s");
  else
    stage->pulse.begun = false;
}

void supervisor_watch(struct plm_supervisor *supervisor, int64_t now_ms)
{
  cJSON *peers[2];
  if (supervisor->stages.draining) return;
  if (supervisor->watched_ms != 0 && now_ms - supervisor->watched_ms < LOOK_MS) return;
  supervisor->watched_ms = now_ms;
  read_peers(supervisor, peers);
  for (size_t i = 0; i < supervisor->stages.count; i++) {
    struct supervised *stage = &supervisor->stages.all[i];
    const bool works = stage->state == PLM_STAGE_READY || stage->state == PLM_STAGE_STARTING;
    if (works && stage->pid > 0 && !stage->silent) look(supervisor, stage, now_ms, peers);
  }
  cJSON_Delete(peers[0]);
  cJSON_Delete(peers[1]);
}
