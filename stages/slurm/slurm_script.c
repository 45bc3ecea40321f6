/* Fills in the Slurm job script of a run, whose template is job.sh.in. */
#include "stages/slurm/slurm_script.h"

#include <string.h>

#include "common/base/files/embedded_file.h"
#include "common/wire/security.h"
#include "stages/views/template.h"

extern const char plm_slurm_job_script[];
PLM_EMBED(plm_slurm_job_script, "stages/slurm/job.sh.in");

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

/* ---- the values of the template ------------------------------------------------------------ */

/* A value that may be missing. */
static void give(struct plm_template_values *values, const char *name, const char *word)
{
  plm_template_declare(values, name);
  if (word != NULL) plm_text_put_word(plm_template_add(values, name), word);
}

/* 0: there is none. */
static void give_count(struct plm_template_values *values, const char *name, unsigned count)
{
  plm_template_declare(values, name);
  if (count > 0) plm_text_printf(plm_template_add(values, name), "%u", count);
}

static void give_lines(struct plm_template_values *values, const char *name,
                       const char *const *lines)
{
  plm_template_declare(values, name);
  for (; lines != NULL && *lines != NULL; lines++)
    plm_text_puts(plm_template_add(values, name), *lines);
}

/* The name of the run folder, in characters that every tool of Slurm accepts. */
static void give_job_name(struct plm_template_values *values, const char *run)
{
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const char *slash = strrchr(run, '/');
  const char *name = slash != NULL ? slash + 1 : run;
  struct plm_text *text = plm_template_add(values, "JOB_NAME");
  for (; *name != '\0'; name++) plm_text_append(text, strchr(plain, *name) != NULL ? name : "_", 1);
}

static void give_request(const struct plm_slurm_job *job, struct plm_template_values *values)
{
  const unsigned packers = job->config->packer_instances;
  const unsigned packers_here = job->packer_nodes == 0 ? packers : 0;
  give_job_name(values, job->config->run);
  give(values, "FOLDER", job->working_directory);
  give(values, "TIME", job->time);
  give(values, "ACCOUNT", job->account);
  give(values, "PARTITION", job->partition);
  give(values, "PACKER_PARTITION",
       job->packer_partition != NULL ? job->packer_partition : job->partition);
  give_lines(values, "SBATCH", job->sbatch);
  give_lines(values, "PACKER_SBATCH", job->packer_sbatch);
  give_lines(values, "SETUP", job->setup);
  give_count(values, "NOTICE_S", job->notice_s);
  give_count(values, "NODES", job->nodes);
  give_count(values, "RANKS", job->config->trainer.ranks);
  give_count(values, "NODE_RANKS", ranks_per_node(job));
  give_count(values, "CPUS", job->cpus);
  give_count(values, "EVALUATOR_CPUS", job->evaluator_cpus);
  give_count(values, "PACKERS", packers);
  give_count(values, "PACKER_NODES", job->packer_nodes);
  give_count(values, "PACKER_CPUS", job->packer_cpus);
  give_count(values, "NODE_CPUS",
             ranks_per_node(job) * job->cpus + job->evaluator_cpus +
                 packers_here * job->packer_cpus);
  give_count(values, "NODE_GPUS", trainer_gpus(job) + evaluator_gpus(job));
}

/* Jobs share hosts, so the system chooses ports on the loopback interface; the stages find each
 * other in the run folder. Packers on other nodes need an address of this one. */
static void give_endpoints(const struct plm_slurm_job *job, struct plm_template_values *values)
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
      plm_text_printf(plm_template_add(values, "SETTING"), "\"%s=tcp://$address:*\"", rows[i].key);
    else if (strncmp(rows[i].endpoint, "tcp://", 6) == 0 && plm_endpoint_is_local(rows[i].endpoint))
      plm_text_printf(plm_template_add(values, "SETTING"), "'%s=tcp://127.0.0.1:*'", rows[i].key);
  }
}

static void give_settings(const struct plm_slurm_job *job, struct plm_template_values *values)
{
  give(values, "RUN", job->config->run);
  give(values, "CONFIG", job->config->path);
  plm_template_declare(values, "SETTING");
  for (size_t i = 0; i < job->override_count; i++) {
    const struct plm_config_override *override = &job->overrides[i];
    struct plm_text assignment = {0};
    if (strcmp(override->key, "run") == 0) continue;
    plm_text_printf(&assignment, "%s=%s", override->key, override->value);
    give(values, "SETTING", assignment.data);
    plm_text_deinit(&assignment);
  }
  give_endpoints(job, values);
}

/* Steps without a GPU say so, because a step gets all of the job's GPUs otherwise. */
static void put_gpus(const struct plm_slurm_job *job, unsigned gpus, struct plm_text *text)
{
  if (gpus > 0)
    plm_text_printf(text, " --gres=gpu:%u", gpus);
  else if (trainer_gpus(job) + evaluator_gpus(job) > 0)
    plm_text_puts(text, " --gres=none");
}

/* The options that a step may have or not; they are appended to others. */
static void give_steps(const struct plm_slurm_job *job, struct plm_template_values *values)
{
  const struct plm_config *config = job->config;
  struct plm_text path = {0};
  struct plm_text *trainer = plm_template_add(values, "TRAINER_MORE");
  if (config->trainer.ranks > 1) plm_text_puts(trainer, " --mpi=pmix");
  if (trainer_gpus(job) > 0) put_gpus(job, trainer_gpus(job), trainer);
  put_gpus(job, evaluator_gpus(job), plm_template_add(values, "EVALUATOR_MORE"));
  struct plm_text *packer = plm_template_add(values, "PACKER_MORE");
  if (job->packer_nodes == 0) put_gpus(job, 0, packer);
  plm_text_printf(&path, "%s/plm-pipeline", job->program_directory);
  give(values, "PIPELINE", path.data);
  plm_text_deinit(&path);
  plm_text_printf(plm_template_add(values, "STAGES"), "trainer%s%s",
                  job->evaluator_cpus > 0 ? " evaluator" : "",
                  config->packer_instances > 0 ? " packer" : "");
}

plm_status plm_slurm_script(const struct plm_slurm_job *job, struct plm_text *text,
                            struct plm_error *error)
{
  struct plm_template_values values = {0};
  PLM_TRY(check_texts(job, error));
  PLM_TRY(check_nodes(job, error));
  give_request(job, &values);
  give_settings(job, &values);
  give_steps(job, &values);
  plm_template_fill(plm_slurm_job_script, &values, text);
  plm_template_deinit(&values);
  return PLM_OK;
}
