/* The table's entries, and their names, signs of life and remedies in words. */
#include "stages/supervisor/supervised.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/stage/supervisor_process.h"

struct supervised *supervised_add(struct stages *stages, enum plm_stage_index kind,
                                  unsigned instance)
{
  PLM_ASSERT(stages->count < SUPERVISED_MAX);
  struct supervised *stage = &stages->all[stages->count++];
  char file[80], name[64], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE] = "";
  *stage = (struct supervised){.kind = kind, .instance = instance, .ready_fd = -1};
  if (stages->launch != NULL) stage->launch = stages->launch[kind];
  if (stage->launch == NULL && plm_stage_is_gang(stages->config, kind)) stage->gang = stages->gang;
  snprintf(file, sizeof file, "%s.log", supervised_name(stage, name));
  /* run paths are far shorter than PLM_PATH_SIZE, and plm_run_prepare has joined them before */
  PLM_ASSERT(plm_path_join(folder, stages->config->run, PLM_RUN_LOGS, NULL) == PLM_OK &&
             plm_path_join(path, folder, file, NULL) == PLM_OK);
  plm_tail_init_last(&stage->tail, path, (struct plm_tail_place){0}, 0);
  return stage;
}

size_t supervised_signal_kill(const struct supervised *stage)
{
  if (stage->pid > 0) kill(stage->pid, SIGKILL);
  if (stage->launch != NULL) return stage->pid > 0;
  return plm_process_signal_all(plm_stage_kinds[stage->kind].name, stage->instance, stage->pid,
                                SIGKILL);
}

bool supervised_has_bound(const struct stages *stages, const struct supervised *stage)
{
  char value[512];
  for (const char *const *key = plm_stage_kinds[stage->kind].binds; *key != NULL; key++)
    if (plm_endpoint_read(stages->config->run, *key, value, NULL) != PLM_OK) return false;
  return true;
}

/* ---- names --------------------------------------------------------------------------------- */

const char *supervised_name(const struct supervised *stage, char name[64])
{
  snprintf(name, 64, "%s.%u", plm_stage_kinds[stage->kind].name, stage->instance);
  return name;
}

void supervised_packer_role(const struct supervised *stage, char role[PACKER_ROLE_SIZE])
{
  snprintf(role, PACKER_ROLE_SIZE, "packer.%u", stage->instance);
}

static bool is_at(const cJSON *packer, const char *host, pid_t pid)
{
  return pid == (pid_t)plm_json_number(packer, "pid", 0.0) &&
         strcmp(plm_json_string(packer, "host", "?"), host) == 0;
}

bool supervised_is_peer(const struct supervised *stage, const cJSON *packer)
{
  char here[256] = "";
  gethostname(here, sizeof here - 1);
  if (stage->kind != PLM_KIND_PACKER) return false;
  if (stage->launch == NULL) return is_at(packer, here, stage->pid);
  return stage->launched_pid != 0 && is_at(packer, stage->launched_host, stage->launched_pid);
}

bool supervised_packer_sign(const struct stages *stages, const struct supervised *stage,
                            struct plm_run_sign *sign)
{
  char role[PACKER_ROLE_SIZE];
  supervised_packer_role(stage, role);
  return plm_run_pulse_read_of(stages->config->run, role,
                               stage->launch != NULL ? stage->launched_pid : stage->pid, sign);
}

void stages_name_packer(const struct stages *stages, const cJSON *packer, char instance[96])
{
  for (size_t i = 0; i < stages->count; i++) {
    const struct supervised *stage = &stages->all[i];
    if (!supervised_is_peer(stage, packer)) continue;
    snprintf(instance, 96, "%u", stage->instance);
    return;
  }
  snprintf(instance, 96, "%.80s:%.0f", plm_json_string(packer, "host", "?"),
           plm_json_number(packer, "pid", 0.0));
}

/* ---- signs of life ------------------------------------------------------------------------ */

double supervised_unheard_s(const struct supervised *stage)
{
  const bool expected = stage->state == PLM_STAGE_READY ||
                        (stage->state == PLM_STAGE_STARTING && stage->kind == PLM_KIND_PACKER);
  if (!expected || !stage->pulse.begun) return -1;
  return 1e-3 * (double)(plm_clock_ms() - stage->pulse.since_ms);
}

void supervised_trouble(const struct stages *stages, const struct supervised *stage,
                        struct supervised_trouble *trouble)
{
  const double unheard_s = supervised_unheard_s(stage);
  const bool silent = stage->kind == PLM_KIND_PACKER && unheard_s >= PACKER_SILENT_S;
  struct plm_run_sign sign;
  char time[32];
  *trouble = (struct supervised_trouble){0};
  if (stage->pid <= 0) return;
  if (plm_process_is_paused(stage->pid)) {
    snprintf(trouble->word, sizeof trouble->word, "stopped by a signal");
    snprintf(trouble->text, sizeof trouble->text, "%s; `kill -CONT` continues it", trouble->word);
  } else if (stage->kind == PLM_KIND_PACKER && stage->listing && unheard_s >= PACKER_UNHEARD_S) {
    snprintf(trouble->word, sizeof trouble->word, "heard by no consumer");
    snprintf(trouble->text, sizeof trouble->text, "%s for %s", trouble->word,
             plm_format_duration(unheard_s, time));
  } else if (silent) {
    const bool spoke = supervised_packer_sign(stages, stage, &sign);
    const char *doing = spoke ? sign.doing : "starting";
    snprintf(trouble->word, sizeof trouble->word, "no sign for: %s", doing);
    snprintf(trouble->text, sizeof trouble->text, "no sign for %s: %s",
             plm_format_duration(unheard_s, time), doing);
  }
}

void supervised_remedy(const struct stages *stages, const struct supervised *stage,
                       char text[REMEDY_SIZE])
{
  char name[64];
  text[0] = '\0';
  if (stage->state != PLM_STAGE_FATAL) return;
  if (stage->kind == PLM_KIND_TRAINER || stages->draining)
    snprintf(text, REMEDY_SIZE, "plm-pipeline up %.200s/%s", stages->config->run, PLM_RUN_CONFIG);
  else
    snprintf(text, REMEDY_SIZE, "plm-pipeline restart %s", supervised_name(stage, name));
}
