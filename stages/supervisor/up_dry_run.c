/* Prints everything that `up` would do. */
#include "stages/supervisor/up_dry_run.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include <cjson/cJSON.h>

#include "common/base/process/cgroup.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/run/run.h"
#include "stages/supervisor/gang/gang_command.h"
#include "stages/supervisor/prepare/run_length.h"
#include "stages/supervisor/prepare/run_ports.h"
#include "stages/supervisor/prepare/trainer_estimate.h"

static void say_graph(const struct plm_config *config, const bool chosen[PLM_KIND_COUNT])
{
  printf("graph\n");
  plm_print(stdout, "  corpus        %s\n",
            config->corpus != NULL ? config->corpus : "(that of the packers)");
  for (uint32_t k = 1; k < config->source_count; k++)
    plm_print(stdout, "                %s\n", config->sources[k].path);
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
    PLM_TRY(plm_stage_command_make(run->program_directory, run->config->run, PLM_RUN_CONFIG,
                                   run->fingerprint, (enum plm_stage_index)kind, &command, error));
    if (kind == PLM_KIND_TRAINER) plm_stage_command_add(&command, run->trainer_options);
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
    plm_print(stdout, "  %-24s %s: %s%s%s\n", ports[i].key, ports[i].address,
              ports[i].wrong[0] != '\0' ? "cannot be bound: "
              : ports[i].taken          ? "in use by "
                                        : "free",
              ports[i].wrong, ports[i].owner);
}

/* ---- memory and disk, which the trainer estimates------------------------------------------- */

static void say_device(const cJSON *json)
{
  const bool cuda = strcmp(plm_json_string(json, "device", "cpu"), "cuda") == 0;
  const double free_bytes = plm_json_number(json, "free_bytes", 0.0);
  printf("  trainer       %.1f MB for %.0f parameters",
         1e-6 * plm_json_number(json, cuda ? "device_bytes" : "total", 0.0),
         plm_json_number(json, "parameter_count", 0.0));
  if (cuda) printf(", on the CUDA device");
  struct plm_cgroup_limits limits;
  plm_cgroup_read(&limits);
  if (free_bytes > 0 && !cuda && limits.memory_bytes != UINT64_MAX)
    printf(" (%.1f MB are free; the control group of this process may use %.1f MB)",
           1e-6 * free_bytes, 1e-6 * (double)limits.memory_bytes);
  else if (free_bytes > 0)
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

/* What each rank has and sends; the memory above is that of the rank that needs most. */
static void say_ranks(const cJSON *json)
{
  const double ranks = plm_json_number(json, "ranks", 1.0);
  if (ranks < 2) return;
  printf("ranks\n  %.0f on %.0f host%s; memory is that of the rank that needs most\n", ranks,
         plm_json_number(json, "hosts", 1.0), plm_json_number(json, "hosts", 1.0) > 1 ? "s" : "");
  printf("  the largest part of Muon's work is %.2f times the mean\n",
         plm_json_number(json, "owner_imbalance", 1.0));
  printf("  a rank sends %.2f MB a step within its group of %.0f, and %.2f MB to other groups\n",
         1e-6 * plm_json_number(json, "sent_in_group", 0.0),
         plm_json_number(json, "group_size", ranks),
         1e-6 * plm_json_number(json, "sent_on_rail", 0.0));
}

static void say_memory(const struct plm_dry_run *run)
{
  const struct plm_config *config = run->config;
  cJSON *json = plm_trainer_estimate_ask(run->program_directory, config, NULL);
  plm_run_length_say(config, plm_json_number(json, "parameter_count", 0.0));
  printf("memory\n");
  if (json == NULL) {
    printf("  unknown: plm-trainer did not answer\n");
    return;
  }
  say_device(json);
  say_ranks(json);
  const double files = plm_checkpoint_bytes(config, json);
  const double all = files * plm_checkpoints_kept(config), most = plm_disk_free_bytes(config->run);
  printf("disk\n  checkpoints   at most %.1f MB: %.1f MB each (%.1f MB are free)\n"
         "                %s\n",
         1e-6 * all, 1e-6 * files, 1e-6 * most,
         all < most ? "these fit"
                    : "these do not fit: free some space, choose another place with --run DIR, or "
                      "keep fewer (trainer.checkpoint.keep_last)");
  cJSON_Delete(json);
}

static void say_cores(const struct plm_config *config)
{
  char evaluator[16] = "auto";
  if (config->evaluator.threads != 0) {
    snprintf(evaluator, sizeof evaluator, "%u", config->evaluator.threads);
  }
  plm_print(stdout, "cores\n  %u here; trainer.threads %u%s, evaluator.threads %s\n",
            plm_usable_cores(), config->trainer.threads,
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
