/* Writes the Slurm job script of a run: what it asks Slurm for, and the steps that it starts. */
#include "stages/slurm/slurm_script.h"

#include <stdio.h>
#include <string.h>

#include "common/wire/security.h"
#include "stages/slurm/slurm_body.h"

enum { TRIES = 5 }; /* of a stage, as under the supervisor */

/* ---- checks -------------------------------------------------------------------------------- */

static bool has_control(const char *text)
{
  for (; text != NULL && *text != '\0'; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) return true;
  return false;
}

static plm_status check_text(const char *what, const char *text, struct plm_error *error)
{
  if (!has_control(text)) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "%s has a line break or another control character", what);
}

static plm_status check_list(const char *what, const char *const *list, struct plm_error *error)
{
  for (; list != NULL && *list != NULL; list++) PLM_TRY(check_text(what, *list, error));
  return PLM_OK;
}

static plm_status check_texts(const struct plm_slurm_job *job, struct plm_error *error)
{
  PLM_TRY(check_text("the path of the run folder", job->config->run, error));
  PLM_TRY(check_text("the path of the configuration", job->config->path, error));
  PLM_TRY(check_text("the path of the programs", job->program_directory, error));
  PLM_TRY(check_text("the path of the working directory", job->working_directory, error));
  PLM_TRY(check_text("--time", job->time, error));
  PLM_TRY(check_text("--account", job->account, error));
  PLM_TRY(check_text("--partition", job->partition, error));
  PLM_TRY(check_text("--packer-partition", job->packer_partition, error));
  for (size_t i = 0; i < job->override_count; i++)
    PLM_TRY(check_text("--set", job->overrides[i].value, error));
  PLM_TRY(check_list("--sbatch", job->sbatch, error));
  PLM_TRY(check_list("--packer-sbatch", job->packer_sbatch, error));
  PLM_TRY(check_list("--setup", job->setup, error));
  if (strchr(job->config->run, '%') == NULL) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "the path of the run folder has a %%: %s", job->config->run);
  return plm_error_hint(error,
                        "srun replaces %%t and the like in the names of logs; choose another "
                        "folder");
}

static plm_status check_nodes(const struct plm_slurm_job *job, struct plm_error *error)
{
  const struct plm_config *config = job->config;
  const unsigned packers = config->packer_instances;
  if (config->trainer.ranks % job->nodes != 0) {
    plm_error_set(error, PLM_USAGE, "--nodes %u does not divide trainer.ranks, which is %u",
                  job->nodes, config->trainer.ranks);
    return plm_error_hint(error, "every node has to hold the same number of ranks");
  }
  if (job->packer_nodes > packers) {
    plm_error_set(error, PLM_USAGE, "--packer-nodes %u is above packer.instances, which is %u",
                  job->packer_nodes, packers);
    return plm_error_hint(error, "raise packer.instances, or leave a node out");
  }
  if (job->packer_nodes > 0 && config->network.keys == NULL) {
    plm_error_set(error, PLM_CONFIG,
                  "packers on other nodes need CURVE keys, but network.keys is not set");
    return plm_error_hint(error, "create them with `plm-pipeline keys keys`, and set network.keys "
                                 "to that folder");
  }
  return PLM_OK;
}

/* ---- what the job asks for ----------------------------------------------------------------- */

static unsigned ranks_per_node(const struct plm_slurm_job *job)
{
  return job->config->trainer.ranks / job->nodes;
}

static unsigned trainer_gpus(const struct plm_slurm_job *job) /* on each node */
{
  return job->config->trainer.device == PLM_DEVICE_CUDA ? ranks_per_node(job) : 0;
}

static unsigned evaluator_gpus(const struct plm_slurm_job *job)
{
  return job->evaluator_cpus > 0 && job->config->evaluator.device == PLM_DEVICE_CUDA ? 1 : 0;
}

/* --name=value as a line for sbatch. */
static void put_directive(struct plm_text *text, const char *name, const char *value)
{
  if (value == NULL) return;
  plm_text_printf(text, "#SBATCH --%s=", name);
  plm_text_put_word(text, value);
  plm_text_puts(text, "\n");
}

static void put_list(struct plm_text *text, const char *before, const char *const *list)
{
  for (; list != NULL && *list != NULL; list++) plm_text_printf(text, "%s%s\n", before, *list);
}

/* The name of the run folder, in characters that every tool of Slurm accepts. */
static void put_job_name(struct plm_text *text, const char *run)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const char *slash = strrchr(run, '/');
  const char *name = slash != NULL ? slash + 1 : run;
  plm_text_puts(text, "#SBATCH --job-name=");
  for (; *name != '\0'; name++) plm_text_append(text, strchr(plain, *name) != NULL ? name : "_", 1);
  plm_text_puts(text, "\n");
}

static void put_trainer_request(const struct plm_slurm_job *job, struct plm_text *text)
{
  const unsigned packers = job->packer_nodes == 0 ? job->config->packer_instances : 0;
  const unsigned cpus =
      ranks_per_node(job) * job->cpus + job->evaluator_cpus + packers * job->packer_cpus;
  const unsigned gpus = trainer_gpus(job) + evaluator_gpus(job);
  put_directive(text, "time", job->time);
  put_directive(text, "account", job->account);
  put_directive(text, "partition", job->partition);
  plm_text_printf(text, "#SBATCH --nodes=%u\n#SBATCH --ntasks=%u\n#SBATCH --cpus-per-task=%u\n",
                  job->nodes, job->nodes, cpus);
  if (gpus > 0) plm_text_printf(text, "#SBATCH --gres=gpu:%u\n", gpus);
  put_list(text, "#SBATCH ", job->sbatch);
}

static void put_packer_request(const struct plm_slurm_job *job, struct plm_text *text)
{
  const char *partition = job->packer_partition != NULL ? job->packer_partition : job->partition;
  plm_text_puts(text, "# The packers.\n#SBATCH hetjob\n");
  put_directive(text, "time", job->time);
  put_directive(text, "account", job->account);
  put_directive(text, "partition", partition);
  plm_text_printf(text, "#SBATCH --nodes=%u\n#SBATCH --ntasks=%u\n#SBATCH --cpus-per-task=%u\n",
                  job->packer_nodes, job->config->packer_instances, job->packer_cpus);
  put_list(text, "#SBATCH ", job->packer_sbatch);
}

static void put_request(const struct plm_slurm_job *job, struct plm_text *text)
{
  plm_text_puts(text, "#!/bin/bash\n"
                      "# A run of plm-pipeline as a Slurm job: start it with sbatch. Written by "
                      "`plm-pipeline slurm`.\n");
  put_job_name(text, job->config->run);
  put_directive(text, "chdir", job->working_directory);
  plm_text_puts(text, "#SBATCH --output=slurm-%j.out\n"
                      "#SBATCH --open-mode=append\n"
                      "#SBATCH --requeue\n");
  plm_text_printf(text,
                  "# SIGUSR1 comes this many seconds before the time limit, for a last "
                  "checkpoint.\n#SBATCH --signal=B:USR1@%u\n",
                  job->notice_s);
  if (job->packer_nodes > 0) plm_text_puts(text, "# The trainer and the evaluator.\n");
  put_trainer_request(job, text);
  if (job->packer_nodes > 0) put_packer_request(job, text);
}

/* ---- the steps ----------------------------------------------------------------------------- */

/* Jobs share hosts, so the system chooses ports on the loopback interface; the stages find each
 * other in the run folder. Packers on other nodes need an address of this one. */
static void put_endpoints(const struct plm_slurm_job *job, struct plm_text *text)
{
  const struct plm_config_network *network = &job->config->network;
  const struct {
    const char *key, *endpoint;
    bool packers_connect;
  } rows[] = {{"network.feed", network->feed, true},
              {"network.evaluation_feed", network->evaluation_feed, true},
              {"network.announcements", network->announcements, false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (job->packer_nodes > 0 && rows[i].packers_connect)
      plm_text_printf(text, "  --set \"%s=tcp://$address:*\"\n", rows[i].key);
    else if (strncmp(rows[i].endpoint, "tcp://", 6) == 0 && plm_endpoint_is_local(rows[i].endpoint))
      plm_text_printf(text, "  --set '%s=tcp://127.0.0.1:*'\n", rows[i].key);
  }
}

static void put_options(const struct plm_slurm_job *job, struct plm_text *text)
{
  plm_text_puts(text, "options=(\n  -c ");
  plm_text_put_word(text, job->config->path);
  plm_text_puts(text, " --run \"$run\"\n");
  for (size_t i = 0; i < job->override_count; i++) {
    const struct plm_config_override *override = &job->overrides[i];
    struct plm_text assignment = {0};
    if (strcmp(override->key, "run") == 0) continue;
    plm_text_printf(&assignment, "%s=%s", override->key, override->value);
    plm_text_puts(text, "  --set ");
    if (!assignment.failed) plm_text_put_word(text, assignment.data);
    plm_text_puts(text, "\n");
    text->failed |= assignment.failed;
    plm_text_deinit(&assignment);
  }
  put_endpoints(job, text);
  plm_text_puts(text, ")\n");
}

/* What all steps have. --mem=0 lets the steps of a node share the memory of the job. */
static void put_step(const struct plm_slurm_job *job, const char *stage, unsigned component,
                     struct plm_text *text)
{
  plm_text_printf(text, "%s=(\n  srun --job-name=%s", stage, stage);
  if (job->packer_nodes > 0) plm_text_printf(text, " --het-group=%u", component);
  plm_text_puts(text, " --exact --mem=0 --open-mode=append\n");
}

static void put_program(const struct plm_slurm_job *job, const char *stage, struct plm_text *text)
{
  struct plm_text path = {0};
  plm_text_printf(&path, "%s/plm-%s", job->program_directory, stage);
  plm_text_puts(text, "  ");
  if (!path.failed) plm_text_put_word(text, path.data);
  plm_text_puts(text, " \"${options[@]}\"\n)\n");
  text->failed |= path.failed;
  plm_text_deinit(&path);
}

static void put_trainer(const struct plm_slurm_job *job, struct plm_text *text)
{
  const unsigned ranks = job->config->trainer.ranks;
  put_step(job, "trainer", 0, text);
  plm_text_printf(text,
                  "  --nodes=%u --ntasks=%u --ntasks-per-node=%u --cpus-per-task=%u "
                  "--kill-on-bad-exit=1",
                  job->nodes, ranks, ranks_per_node(job), job->cpus);
  if (ranks > 1) plm_text_puts(text, " --mpi=pmix");
  if (trainer_gpus(job) > 0) plm_text_printf(text, " --gres=gpu:%u", trainer_gpus(job));
  plm_text_puts(text, "\n  --output=\"$run/logs/trainer.0.log\"\n");
  put_program(job, "trainer", text);
}

/* Steps without a GPU say so, because a step gets all of the job's GPUs otherwise. */
static void put_gpus(const struct plm_slurm_job *job, unsigned gpus, struct plm_text *text)
{
  if (gpus > 0)
    plm_text_printf(text, " --gres=gpu:%u", gpus);
  else if (trainer_gpus(job) + evaluator_gpus(job) > 0)
    plm_text_puts(text, " --gres=none");
}

static void put_evaluator(const struct plm_slurm_job *job, struct plm_text *text)
{
  if (job->evaluator_cpus == 0) {
    plm_text_puts(text, "evaluator=()\n");
    return;
  }
  put_step(job, "evaluator", 0, text);
  plm_text_printf(text,
                  "  --nodes=1 --relative=0 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=%u",
                  job->evaluator_cpus);
  put_gpus(job, evaluator_gpus(job), text);
  plm_text_puts(text, "\n  --output=\"$run/logs/evaluator.0.log\"\n");
  put_program(job, "evaluator", text);
}

/* A packer that dies must not end the others, whatever the cluster's KillOnBadExit says. */
static void put_packers(const struct plm_slurm_job *job, struct plm_text *text)
{
  const unsigned packers = job->config->packer_instances;
  if (packers == 0) {
    plm_text_puts(text, "packer=()\n");
    return;
  }
  put_step(job, "packer", job->packer_nodes > 0 ? 1 : 0, text);
  if (job->packer_nodes > 0)
    plm_text_printf(text, "  --nodes=%u", job->packer_nodes);
  else
    plm_text_printf(text, "  --nodes=1 --relative=0 --ntasks-per-node=%u", packers);
  plm_text_printf(text, " --ntasks=%u --cpus-per-task=%u --kill-on-bad-exit=0 --wait=0", packers,
                  job->packer_cpus);
  if (job->packer_nodes == 0) put_gpus(job, 0, text);
  plm_text_puts(text, "\n  --output=\"$run/logs/packer.%t.log\"\n");
  put_program(job, "packer", text);
}

static unsigned tries(enum plm_restart restart)
{
  return restart == PLM_RESTART_NO ? 1 : TRIES;
}

plm_status plm_slurm_script(const struct plm_slurm_job *job, struct plm_text *text,
                            struct plm_error *error)
{
  const struct plm_config *config = job->config;
  PLM_TRY(check_texts(job, error));
  PLM_TRY(check_nodes(job, error));
  put_request(job, text);
  plm_text_puts(text, "\n");
  put_list(text, "", job->setup);
  plm_text_puts(text, "run=");
  plm_text_put_word(text, config->run);
  plm_text_puts(text, "\nmkdir -p \"$run/logs\" || exit 1\n");
  if (job->packer_nodes > 0)
    plm_text_puts(text, "# The address by which the packers' nodes reach this one.\n"
                        "address=$(srun --het-group=1 --nodes=1 --ntasks=1 --exact --mem=0 "
                        "printenv SLURM_LAUNCH_NODE_IPADDR) || exit 1\n");
  put_options(job, text);
  put_trainer(job, text);
  put_evaluator(job, text);
  put_packers(job, text);
  plm_text_printf(text,
                  "trainer_attempts=%u evaluator_attempts=%u packer_attempts=%u wait_s=%.0f\n",
                  tries(config->trainer.restart), tries(config->evaluator.restart),
                  tries(config->packer_restart), config->supervisor.wait_s);
  plm_text_puts(text, strchr(plm_slurm_body, '\n') + 1);
  return text->failed ? plm_error_set(error, PLM_NO_MEMORY, "out of memory") : PLM_OK;
}
