/* A supervisor in any state; see supervisor_case.h. */
#include "tests/support/cases/supervisor_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/run/run.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

struct open_case {
  struct plm_supervisor supervisor; /* first, so that its address is the case's */
  struct plm_config config;
  char run[PLM_PATH_SIZE], logs[PLM_PATH_SIZE], programs[PLM_PATH_SIZE];
};

struct plm_supervisor *supervisor_case_open(const char *yaml)
{
  static unsigned number;
  struct plm_error error = {0};
  struct open_case *opened = must(calloc(1, sizeof *opened));
  struct plm_supervisor *supervisor = &opened->supervisor;
  char name[32];
  snprintf(name, sizeof name, "run-%u", number++);
  snprintf(opened->run, sizeof opened->run, "%s", scratch_path(name));
  snprintf(opened->programs, sizeof opened->programs, "%s", scratch_path("bin"));
  if (plm_path_join(opened->logs, opened->run, PLM_RUN_LOGS, &error) != PLM_OK ||
      plm_directory_make(opened->logs, &error) != PLM_OK ||
      plm_config_load_text(yaml, strlen(yaml), &opened->config, &error) != PLM_OK) {
    fprintf(stderr, "%s\n", error.what);
    exit(1);
  }
  free(opened->config.run);
  opened->config.run = must(strdup(opened->run));
  struct plm_supervisor_options options = {.config = &opened->config,
                                           .program_directory = opened->programs,
                                           .fingerprint = "",
                                           .started_fd = -1};
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) options.chosen[kind] = true;
  supervisor_init(supervisor, &options, must(calloc(SUPERVISED_MAX, sizeof(struct supervised))));
  supervisor->screen.live.stages = &supervisor->stages; /* as screen_open does on a terminal */
  return supervisor;
}

void supervisor_case_close(struct plm_supervisor *supervisor)
{
  struct open_case *opened = (struct open_case *)supervisor;
  while (wait(NULL) > 0) continue; /* programs that it has started and that ended at once */
  for (size_t i = 0; i < CLIENTS_MAX; i++)
    if (supervisor->requests.clients[i].descriptor >= 0)
      close(supervisor->requests.clients[i].descriptor);
  free(supervisor->stages.all);
  plm_config_deinit(&opened->config);
  free(opened);
}

struct supervised *supervisor_case_add(struct plm_supervisor *supervisor, enum plm_stage_index kind,
                                       enum plm_stage_state state)
{
  unsigned instance = 0;
  for (size_t i = 0; i < supervisor->stages.count; i++)
    instance += supervisor->stages.all[i].kind == kind;
  struct supervised *stage = supervised_add(&supervisor->stages, kind, instance);
  stage->state = state;
  return stage;
}
