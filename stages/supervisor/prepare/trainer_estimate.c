/* Starts plm-trainer for a dry run and reads its answer. */
#include "stages/supervisor/prepare/trainer_estimate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/process/program_run.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"

enum {
  ANSWER_S = 20, /* time for the trainer to estimate its memory */
  ANSWER_LIMIT = 8192,
};

/* The configuration as a file in memory; -1: it could not be written. */
static int write_config(const struct plm_config *config)
{
  char *yaml = plm_config_print(config);
  int file = memfd_create("pipeline.yaml", 0);
  if (file >= 0 && plm_file_write_all(file, yaml, strlen(yaml), "memory", NULL) != PLM_OK) {
    close(file);
    file = -1;
  }
  free(yaml);
  return file;
}

struct cJSON *plm_trainer_estimate_ask(const char *program_directory,
                                       const struct plm_config *config, struct plm_text *said)
{
  char program[PLM_PATH_SIZE], path[64];
  struct plm_program_said answer = {.capture_err = said != NULL};
  if (plm_path_join(program, program_directory, "plm-trainer", NULL) != PLM_OK) return NULL;
  const int file = write_config(config);
  if (file < 0) return NULL;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  const char *const arguments[] = {program, "-c", path, "--dry-run", "--json", "-q", NULL};
  const plm_status status = plm_program_run(arguments, ANSWER_LIMIT, ANSWER_S, &answer, NULL);
  close(file);
  if (said != NULL && answer.err.length > 0)
    plm_text_append(said, answer.err.data, answer.err.length);
  const bool answered = status == PLM_OK && answer.exit_code == 0 && answer.out.length > 0;
  cJSON *estimate = answered ? plm_json_line(answer.out.data) : NULL;
  plm_program_said_deinit(&answer);
  return estimate;
}

double plm_checkpoint_bytes(const struct plm_config *config, const struct cJSON *answer)
{
  /* Weights, the average of the weights if there is one, and two moments of those that are trained,
   * in fp32. Frozen tensors that began in a smaller type keep it and take less. */
  const double all = plm_json_number(answer, "parameter_count", 0.0);
  const double trained = plm_json_number(answer, "trained_count", all);
  return 4.0 * (all * (config->trainer.ema > 0.0 ? 2.0 : 1.0) + 2.0 * trained);
}

double plm_checkpoints_kept(const struct plm_config *config)
{
  const double kept = (double)config->trainer.checkpoint.keep_last +
                      (double)config->trainer.checkpoint.keep_best +
                      (double)config->trainer.checkpoint.max_unevaluated + 1.0;
  const double every = (double)config->trainer.checkpoint.every;
  const double published = every > 0.0 ? (double)config->trainer.steps / every + 2.0 : 2.0;
  return kept < published ? kept : published;
}

void plm_nearest_folder(const char *path, char folder[PLM_PATH_SIZE])
{
  struct stat info;
  snprintf(folder, PLM_PATH_SIZE, "%s", path);
  while (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode)) {
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) {
      snprintf(folder, PLM_PATH_SIZE, slash != NULL ? "/" : ".");
      return;
    }
    *slash = '\0';
  }
}

double plm_disk_free_bytes(const char *path)
{
  char folder[PLM_PATH_SIZE];
  struct statvfs info;
  plm_nearest_folder(path, folder);
  return statvfs(folder, &info) == 0 ? (double)info.f_bavail * (double)info.f_frsize : 0.0;
}
