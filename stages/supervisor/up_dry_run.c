/* Prints everything that `up` would do. */
#include "stages/supervisor/up_dry_run.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/strict_json.h"
#include "common/config/settings.h"
#include "stages/supervisor/gang_command.h"
#include "stages/supervisor/run_ports.h"

enum { ANSWER_S = 20 }; /* time for the trainer to plan its memory */

static void say_graph(const struct plm_config *config, const bool chosen[PLM_KIND_COUNT])
{
  printf("graph\n");
  plm_print(stdout, "  corpus        %s\n",
            config->corpus != NULL ? config->corpus : "(that of the packers)");
  if (chosen[PLM_KIND_PACKER]) printf("    -> packer x %u\n", config->packer_instances);
  if (chosen[PLM_KIND_TRAINER]) {
    plm_print(stdout, "    -> trainer    feed %s, announcements %s\n", config->network.feed,
              config->network.announcements);
    if (config->trainer.ranks > 1) printf("                  %u ranks\n", config->trainer.ranks);
  }
  if (chosen[PLM_KIND_EVALUATOR]) {
    plm_print(stdout, "    -> evaluator  feed %s\n", config->network.evaluation_feed);
  }
  plm_print(stdout, "  run           %s\n", config->run);
}

static plm_status say_commands(const struct plm_dry_run *run, struct plm_error *error)
{
  static struct plm_stage_command command;
  printf("command lines\n");
  for (int kind = 0; kind < PLM_KIND_COUNT; kind++) {
    if (!run->chosen[kind]) continue;
    PLM_TRY(plm_stage_command_make(run->program_directory, run->config->run, run->fingerprint,
                                   (enum plm_stage_index)kind, &command, error));
    const bool gang = plm_stage_is_gang(run->config, (enum plm_stage_index)kind);
    struct plm_gang_command mpirun = {0};
    const plm_status status =
        gang ? plm_gang_command_make(run->config, command.argv, &mpirun, error) : PLM_OK;
    printf(" ");
    for (char **argument = gang ? mpirun.argv : command.argv; status == PLM_OK && *argument != NULL;
         argument++)
      plm_print(stdout, " %s", *argument);
    plm_gang_command_deinit(&mpirun);
    PLM_TRY(status);
    const unsigned count = plm_stage_instances(run->config, (enum plm_stage_index)kind);
    if (count != 1) printf("   (x %u)", count);
    printf("\n");
  }
  return PLM_OK;
}

static void say_ports(const struct plm_dry_run *run)
{
  struct plm_run_port ports[PLM_RUN_PORTS];
  const size_t count = plm_run_ports(run->config, run->chosen, ports);
  printf("ports\n");
  for (size_t i = 0; i < count; i++)
    plm_print(stdout, "  %-24s %s: %s%s\n", ports[i].key, ports[i].address,
              ports[i].taken ? "in use by " : "free", ports[i].owner);
}

/* ---- memory and disk, which the trainer plans ---------------------------------------------- */

/* Writes the resolved configuration to memory and returns what `plm-trainer --dry-run --json` says
 * about it, or NULL. The caller frees it. */
static char *ask_trainer(const struct plm_dry_run *run, struct plm_error *error)
{
  char program[PLM_PATH_SIZE], path[64], *yaml, answer[8192];
  if (plm_path_join(program, run->program_directory, "plm-trainer", error) != PLM_OK ||
      plm_config_print(run->config, &yaml, error) != PLM_OK) {
    return NULL;
  }
  int ends[2] = {-1, -1};
  const int file = memfd_create("pipeline.yaml", 0);
  const bool written =
      file >= 0 && plm_file_write_all(file, yaml, strlen(yaml), "memory", error) == PLM_OK;
  free(yaml);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  if (!written || pipe(ends) != 0) {
    if (file >= 0) close(file);
    return NULL;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    alarm(ANSWER_S);
    execl(program, program, "-c", path, "--dry-run", "--json", "-q", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  close(file);
  size_t used = 0;
  for (ssize_t size; used < sizeof answer - 1; used += (size_t)size) {
    size = read(ends[0], answer + used, sizeof answer - 1 - used);
    if (size <= 0) break;
  }
  answer[used] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? strdup(answer) : NULL;
}

static double free_disk_bytes(const char *run)
{
  char path[PLM_PATH_SIZE];
  struct statvfs info;
  snprintf(path, sizeof path, "%s", run);
  while (statvfs(path, &info) != 0) { /* the nearest folder that exists */
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) return 0.0;
    *slash = '\0';
  }
  return (double)info.f_bavail * (double)info.f_frsize;
}

static void say_device(const cJSON *json)
{
  const bool cuda = strcmp(plm_json_string(json, "device", "cpu"), "cuda") == 0;
  const double free_bytes = plm_json_number(json, "free_bytes", 0.0);
  printf("  trainer       %.1f MB for %.0f parameters",
         1e-6 * plm_json_number(json, cuda ? "device_bytes" : "total", 0.0),
         plm_json_number(json, "parameter_count", 0.0));
  if (cuda) printf(", on the CUDA device");
  if (free_bytes > 0)
    printf(" (%.1f MB are free)", 1e-6 * free_bytes);
  else
    plm_print(stdout, " (free memory is unknown: %s)",
              plm_json_string(json, "unknown", "no answer"));
  if (cuda) printf("; %.1f MB on the host", 1e-6 * plm_json_number(json, "host_bytes", 0.0));
  const cJSON *fits = cJSON_GetObjectItemCaseSensitive(json, "fits");
  const double largest = plm_json_number(json, "largest_micro_batch_tokens", 0.0);
  if (fits != NULL && largest > 0)
    plm_print(stdout, "\n                %s; largest trainer.micro_batch_tokens that fits: %.0f",
              cJSON_IsTrue(fits) ? "this fits" : "this does not fit", largest);
  else if (fits != NULL)
    printf("\n                no micro-batch fits");
  printf("\n");
}

static void say_memory(const struct plm_dry_run *run)
{
  const struct plm_config *config = run->config;
  struct plm_error error = {0};
  char *answer = ask_trainer(run, &error);
  cJSON *json = answer != NULL ? plm_json_line(answer) : NULL;
  free(answer);
  printf("memory\n");
  if (json == NULL) {
    printf("  unknown: plm-trainer did not answer\n");
    return;
  }
  say_device(json);
  /* weights and moments in fp32, and the average of the weights if there is one */
  const double files =
      plm_json_number(json, "parameter_count", 0.0) * 4.0 * (config->trainer.ema > 0.0 ? 4.0 : 3.0);
  const double kept = (double)config->trainer.checkpoint.keep_last +
                      (double)config->trainer.checkpoint.keep_best +
                      (double)config->trainer.checkpoint.max_unevaluated + 1.0;
  const double every = (double)config->trainer.checkpoint.every;
  const double published = every > 0.0 ? (double)config->trainer.steps / every + 2.0 : 2.0;
  printf("disk\n  checkpoints   at most %.1f MB: %.1f MB each (%.1f MB are free)\n",
         1e-6 * files * (kept < published ? kept : published), 1e-6 * files,
         1e-6 * free_disk_bytes(config->run));
  cJSON_Delete(json);
}

static void say_cores(const struct plm_config *config)
{
  char evaluator[16] = "auto";
  if (config->evaluator.threads != 0) {
    snprintf(evaluator, sizeof evaluator, "%u", config->evaluator.threads);
  }
  plm_print(stdout, "cores\n  %ld here; trainer.threads %u%s, evaluator.threads %s\n",
            sysconf(_SC_NPROCESSORS_ONLN), config->trainer.threads,
            config->trainer.threads == 0 ? " (all)" : "", evaluator);
}

plm_status plm_dry_run(const struct plm_dry_run *run, struct plm_error *error)
{
  const unsigned long long step = run->prepared->step;
  if (run->prepared->complete)
    printf(
        "the run is complete at step %llu; only checkpoints without metrics would be evaluated\n",
        step);
  else if (run->prepared->resumes)
    printf("the run would resume; its newest checkpoint is that of step %llu\n", step);
  else
    printf("a new run would start\n");
  say_graph(run->config, run->chosen);
  PLM_TRY(say_commands(run, error));
  fflush(stdout);
  say_memory(run);
  say_cores(run->config);
  say_ports(run);
  return PLM_OK;
}
