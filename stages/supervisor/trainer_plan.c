/* Starts plm-trainer for a dry run and reads its answer. */
#include "stages/supervisor/trainer_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/strict_json.h"

enum { ANSWER_S = 20 }; /* time for the trainer to plan its memory */

static size_t read_all(int descriptor, char *text, size_t size)
{
  size_t used = 0;
  for (ssize_t got; used < size - 1; used += (size_t)got) {
    got = read(descriptor, text + used, size - 1 - used);
    if (got <= 0) break;
  }
  text[used] = '\0';
  return used;
}

/* The configuration as a file in memory; -1: it could not be written. */
static int write_config(const struct plm_config *config)
{
  char *yaml = NULL;
  if (plm_config_print(config, &yaml, NULL) != PLM_OK) return -1;
  int file = memfd_create("pipeline.yaml", 0);
  if (file >= 0 && plm_file_write_all(file, yaml, strlen(yaml), "memory", NULL) != PLM_OK) {
    close(file);
    file = -1;
  }
  free(yaml);
  return file;
}

static void become_trainer(const char *program, int config, int out, int err)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", config);
  dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  alarm(ANSWER_S);
  execl(program, program, "-c", path, "--dry-run", "--json", "-q", (char *)NULL);
  _exit(127);
}

struct cJSON *plm_trainer_plan_ask(const char *program_directory, const struct plm_config *config,
                                   struct plm_text *said)
{
  char program[PLM_PATH_SIZE], answer[8192], words[4096];
  int ends[2] = {-1, -1}, status = 0;
  if (plm_path_join(program, program_directory, "plm-trainer", NULL) != PLM_OK) return NULL;
  const int file = write_config(config);
  const int err = said != NULL ? memfd_create("standard error", 0) : -1;
  if (file < 0 || (said != NULL && err < 0) || pipe(ends) != 0) {
    if (file >= 0) close(file);
    if (err >= 0) close(err);
    return NULL;
  }
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    become_trainer(program, file, ends[1], err);
  }
  close(ends[1]);
  close(file);
  read_all(ends[0], answer, sizeof answer);
  close(ends[0]);
  if (child > 0) waitpid(child, &status, 0);
  if (err >= 0) {
    if (lseek(err, 0, SEEK_SET) == 0)
      plm_text_append(said, words, read_all(err, words, sizeof words));
    close(err);
  }
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? plm_json_line(answer) : NULL;
}

double plm_checkpoint_bytes(const struct plm_config *config, const struct cJSON *answer)
{
  /* weights and moments in fp32, and the average of the weights if there is one */
  return plm_json_number(answer, "parameter_count", 0.0) * 4.0 *
         (config->trainer.ema > 0.0 ? 4.0 : 3.0);
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
