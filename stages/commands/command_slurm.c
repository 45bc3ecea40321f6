/* `plm-pipeline slurm`: writes the Slurm job script of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/cli/output_file.h"
#include "stages/commands/command.h"
#include "stages/slurm/slurm_script.h"

enum {
  MOST_CPUS = 4096,
  MOST_NODES = 4096,
  MOST_NOTICE_S = 65535, /* what sbatch takes */
  UNNAMED_CPUS = 8,      /* of a rank if trainer.threads leaves it to the machine */
  LEAST_NOTICE_S = 120,
  NOTICE_EXTRA_S = 60 /* beyond trainer.stop_timeout_s */
};

static const struct plm_option options[] = {
    {.name = "output",
     .argument = "FILE",
     .help = "the script to write (default: standard output)"},
    {.name = "time", .argument = "LIMIT", .help = "time limit of each start (default 24:00:00)"},
    {.name = "account", .argument = "NAME", .help = "account that pays for the job"},
    {.name = "partition", .argument = "NAME", .help = "partition of the job"},
    {.name = "nodes",
     .argument = "N",
     .help = "nodes that share the trainer's ranks equally (default 1)"},
    {.name = "cpus",
     .argument = "N",
     .help = "CPUs of each rank (default: trainer.threads, or 8 if that is 0)"},
    {.name = "evaluator-cpus",
     .argument = "N",
     .help = "CPUs of the evaluator (default: evaluator.threads, or 2 if that is auto)"},
    {.name = "no-evaluator", .help = "leave the evaluator out"},
    {.name = "packer-nodes",
     .argument = "N",
     .help = "run the packers on N nodes of their own, which needs network.keys (default 0: on the "
             "trainer's first node)"},
    {.name = "packer-cpus", .argument = "N", .help = "CPUs of each packer (default 2)"},
    {.name = "packer-partition",
     .argument = "NAME",
     .help = "partition of the packers' nodes (default: that of --partition)"},
    {.name = "notice",
     .argument = "SECONDS",
     .help = "how long before the time limit the trainer is told to stop (default 120, or more if "
             "trainer.stop_timeout_s needs it)"},
    {.name = "sbatch",
     .argument = "OPTION",
     .help = "another option of sbatch, such as --mem=64G; may be repeated"},
    {.name = "packer-sbatch",
     .argument = "OPTION",
     .help = "the same for the packers' nodes; may be repeated"},
    {.name = "setup",
     .argument = "COMMAND",
     .help = "shell command before the stages start, such as 'module load openmpi'; may be "
             "repeated"},
    {0},
};

/* All values of a repeatable option, in an array that ends with NULL; the caller frees it. */
static const char **all_values(const struct plm_arguments *arguments, const char *name)
{
  const char **list = plm_alloc_zeroed(arguments->value_count + 1, sizeof *list);
  size_t used = 0;
  for (size_t i = 0; i < arguments->value_count; i++) {
    if (strcmp(arguments->values[i].option->name, name) == 0)
      list[used++] = arguments->values[i].value;
  }
  return list;
}

static plm_status check_time(const char *time, struct plm_error *error)
{
  if (time[0] != '\0' && time[strspn(time, "0123456789:-")] == '\0') return PLM_OK;
  plm_error_set(error, PLM_USAGE, "--time \"%.40s\" is not a time limit", time);
  return plm_error_hint(error, "give MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS, "
                               "for example 24:00:00");
}

/* An option that changes only something that the script would not have. */
static plm_status check_needed(const struct plm_arguments *arguments,
                               const struct plm_slurm_job *job, struct plm_error *error)
{
  static const char *const of_nodes[] = {"packer-partition", "packer-sbatch"};
  for (size_t i = 0; i < sizeof of_nodes / sizeof of_nodes[0]; i++) {
    if (job->packer_nodes == 0 && plm_arguments_has(arguments, of_nodes[i]))
      return plm_error_set(error, PLM_USAGE, "--%s needs --packer-nodes N", of_nodes[i]);
  }
  if (plm_arguments_has(arguments, "no-evaluator") &&
      plm_arguments_has(arguments, "evaluator-cpus"))
    return plm_error_set(error, PLM_USAGE,
                         "--no-evaluator and --evaluator-cpus contradict each other");
  return PLM_OK;
}

static plm_status read_job(const struct plm_arguments *arguments, const struct plm_config *config,
                           struct plm_slurm_job *job, struct plm_error *error)
{
  const unsigned stop_s = (unsigned)config->trainer.stop_timeout_s + NOTICE_EXTRA_S;
  job->config = config;
  job->nodes = 1;
  job->cpus = config->trainer.threads > 0 ? config->trainer.threads : UNNAMED_CPUS;
  job->evaluator_cpus = config->evaluator.threads > 0 ? config->evaluator.threads : 2;
  job->packer_cpus = 2;
  job->notice_s = stop_s > LEAST_NOTICE_S ? stop_s : LEAST_NOTICE_S;
  if (job->notice_s > MOST_NOTICE_S) job->notice_s = MOST_NOTICE_S;
  PLM_TRY(plm_arguments_within(arguments, "nodes", 1, MOST_NODES, &job->nodes, error));
  PLM_TRY(plm_arguments_within(arguments, "cpus", 1, MOST_CPUS, &job->cpus, error));
  PLM_TRY(
      plm_arguments_within(arguments, "evaluator-cpus", 1, MOST_CPUS, &job->evaluator_cpus, error));
  PLM_TRY(
      plm_arguments_within(arguments, "packer-nodes", 0, MOST_NODES, &job->packer_nodes, error));
  PLM_TRY(plm_arguments_within(arguments, "packer-cpus", 1, MOST_CPUS, &job->packer_cpus, error));
  PLM_TRY(plm_arguments_within(arguments, "notice", 1, MOST_NOTICE_S, &job->notice_s, error));
  if (plm_arguments_has(arguments, "no-evaluator")) job->evaluator_cpus = 0;
  job->time = plm_arguments_get(arguments, "time");
  if (job->time == NULL) job->time = "24:00:00";
  job->account = plm_arguments_get(arguments, "account");
  job->partition = plm_arguments_get(arguments, "partition");
  job->packer_partition = plm_arguments_get(arguments, "packer-partition");
  PLM_TRY(check_needed(arguments, job, error));
  return check_time(job->time, error);
}

/* What may surprise the user, on standard error. */
static void slurm_advise(const struct plm_command_context *context, const struct plm_slurm_job *job)
{
  const char *path = plm_arguments_get(context->arguments, "output");
  if (job->config->trainer.device == PLM_DEVICE_AUTO)
    plm_warning("trainer.device is auto, so the job asks for no GPU: set it to cuda for one for "
                "each rank, or to cpu");
  if (job->config->packer_instances == 0)
    plm_warning("packer.instances is 0, so the job starts no packer");
  if (path != NULL && !plm_output_is_stream(path)) plm_info("submit it with `sbatch %s`", path);
}

static plm_status make_script(const struct plm_command_context *context,
                              const struct plm_config *config, struct plm_error *error)
{
  const struct plm_arguments *arguments = context->arguments;
  const char *path = plm_arguments_get(arguments, "output");
  char here[PLM_PATH_SIZE];
  struct plm_config_override *overrides;
  struct plm_text text = {0};
  struct plm_slurm_job job = {.program_directory = context->program_directory,
                              .working_directory = here};
  if (getcwd(here, sizeof here) == NULL)
    return plm_error_errno(error, "cannot find the working directory");
  PLM_TRY(plm_output_check_inputs("--output", path, (const char *const *)config->files,
                                  config->file_count, error));
  PLM_TRY(read_job(arguments, config, &job, error));
  PLM_TRY(plm_arguments_overrides(arguments, &overrides, &job.override_count, error));
  const char **sbatch = all_values(arguments, "sbatch");
  const char **packer_sbatch = all_values(arguments, "packer-sbatch");
  const char **setup = all_values(arguments, "setup");
  job.overrides = overrides;
  job.sbatch = sbatch;
  job.packer_sbatch = packer_sbatch;
  job.setup = setup;
  plm_status status = plm_slurm_script(&job, &text, error);
  if (status == PLM_OK)
    status = plm_output_write(path != NULL ? path : "-", text.data, text.length, false, error);
  if (status == PLM_OK) slurm_advise(context, &job);
  free(sbatch);
  free(packer_sbatch);
  free(setup);
  plm_arguments_overrides_free(overrides, job.override_count);
  plm_text_deinit(&text);
  return status;
}

static plm_status slurm(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config;
  const struct plm_arguments *arguments = context->arguments;
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *file = arguments->positionals[0]; /* or NULL */
  PLM_TRY(plm_arguments_load_config(arguments, file, true, &config, error));
  const plm_status status = make_script(context, &config, error);
  plm_config_deinit(&config);
  return status;
}

const struct plm_command plm_command_slurm = {
    .name = "slurm",
    .sets = true,
    .operands = "[FILE]",
    .summary = "write a Slurm job script for a run",
    .details =
        "The job runs the trainer, the evaluator and the packers as steps. Before its time limit, "
        "the trainer publishes a checkpoint and the job requeues itself, until the run is "
        "complete. A job that Slurm preempts or requeues continues in the same way.\n\n"
        "FILE, the programs and the run folder have to be at the same paths on every node. --set "
        "and --run are kept in the script; PLM_* variables reach the job through the environment "
        "of sbatch. doc/slurm.md explains the script.",
    .options = options,
    .run = slurm,
};
