/* The table of stages, and their command lines. */
#include "stages/supervisor/prepare/supervisor_table.h"

#include <stdio.h>
#include <string.h>

#include "common/run/run.h"

static const char *const trainer_binds[] = {"feed", "announcements", NULL};
static const char *const evaluator_binds[] = {"evaluation_feed", NULL};
static const char *const nothing[] = {NULL};

const struct plm_stage_kind plm_stage_kinds[PLM_KIND_COUNT] = {
    [PLM_KIND_TRAINER] = {"trainer", "plm-trainer", 0, trainer_binds, 10.0},
    [PLM_KIND_EVALUATOR] = {"evaluator", "plm-evaluator", 10, evaluator_binds, 10.0},
    [PLM_KIND_PACKER] = {"packer", "plm-packer", 10, nothing, 5.0},
};

enum plm_stage_index plm_stage_kind_find(const char *name)
{
  for (int i = 0; i < PLM_KIND_COUNT; i++) {
    if (strcmp(plm_stage_kinds[i].name, name) == 0) return (enum plm_stage_index)i;
  }
  return PLM_KIND_COUNT;
}

unsigned plm_stage_instances(const struct plm_config *config, enum plm_stage_index kind)
{
  return kind == PLM_KIND_PACKER ? config->packer_instances : 1;
}

enum plm_restart plm_stage_restart(const struct plm_config *config, enum plm_stage_index kind)
{
  switch (kind) {
  case PLM_KIND_TRAINER: return config->trainer.restart;
  case PLM_KIND_EVALUATOR: return config->evaluator.restart;
  default: return config->packer_restart;
  }
}

void plm_stage_forget_endpoints(const char *run, enum plm_stage_index kind)
{
  const char *const *key = plm_stage_kinds[kind].binds;
  if (*key != NULL) plm_peers_remove(run, plm_stage_kinds[kind].name);
  for (; *key != NULL; key++) plm_endpoint_remove(run, *key);
}

plm_status plm_stage_command_make(const char *program_directory, const char *run,
                                  const char *config_file, const char *fingerprint,
                                  enum plm_stage_index kind, struct plm_stage_command *command,
                                  struct plm_error *error)
{
  *command = (struct plm_stage_command){0};
  PLM_TRY(plm_path_join(command->program, program_directory, plm_stage_kinds[kind].program, error));
  PLM_TRY(plm_path_join(command->config, run, config_file, error));
  snprintf(command->run, sizeof command->run, "%s", run);
  snprintf(command->fingerprint, sizeof command->fingerprint, "%s", fingerprint);
  size_t used = 0;
  command->argv[used++] = command->program;
  command->argv[used++] = (char *)"-c";
  command->argv[used++] = command->config;
  command->argv[used++] = (char *)"--run";
  command->argv[used++] = command->run;
  if (kind == PLM_KIND_TRAINER && fingerprint[0] != '\0') {
    command->argv[used++] = (char *)"--fingerprint";
    command->argv[used++] = command->fingerprint;
  }
  command->argv[used] = NULL;
  return PLM_OK;
}

void plm_stage_command_add(struct plm_stage_command *command, const char *const *arguments)
{
  size_t used = 0;
  while (command->argv[used] != NULL) used++;
  for (; arguments != NULL && *arguments != NULL; arguments++) {
    PLM_ASSERT(used + 1 < PLM_STAGE_ARGUMENTS);
    command->argv[used++] = (char *)(uintptr_t)*arguments;
  }
  command->argv[used] = NULL;
}
