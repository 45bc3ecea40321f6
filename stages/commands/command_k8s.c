/* `plm-pipeline k8s`: writes the Kubernetes objects of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/cli/output_file.h"
#include "stages/commands/command.h"
#include "stages/kubernetes/kubernetes_files.h"

enum {
  MOST_CPUS = 4096,
  MOST_PACKERS = 256,
  UNNAMED_CPUS = 8 /* of a rank if trainer.threads leaves it to the machine */
};

static const struct plm_option options[] = {
    {.name = "output",
     .argument = "FILE",
     .help = "the file to write, readable only by its owner (default: standard output)"},
    {.name = "image",
     .argument = "IMAGE",
     .help =
         "container image with the programs (required); stages/kubernetes/Dockerfile builds one"},
    {.name = "keys",
     .argument = "DIR",
     .help = "folder that `plm-pipeline keys DIR --client packer` made (default: network.keys)"},
    {.name = "name",
     .argument = "NAME",
     .help = "name of the run in the cluster, at most 40 characters (default: that of the run "
             "folder)"},
    {.name = "namespace",
     .argument = "NAME",
     .help = "namespace of the objects (default: the one that kubectl uses)"},
    {.name = "claim",
     .argument = "NAME",
     .help = "PersistentVolumeClaim with the corpora and the run folders (default: the run's "
             "name)"},
    {.name = "nodes",
     .argument = "N",
     .help = "nodes that share the trainer's ranks equally; above 1, an MPIJob (default 1)"},
    {.name = "cpus",
     .argument = "N",
     .help = "CPUs of each rank (default: trainer.threads, or 8 if that is 0)"},
    {.name = "memory",
     .argument = "SIZE",
     .help = "memory of each pod of the trainer, and of the evaluator (default 8Gi)"},
    {.name = "max-packers",
     .argument = "N",
     .help = "how many packers the autoscaler may start (default: twice packer.instances; with "
             "packer.instances itself, there is no autoscaler)"},
    {.name = "no-evaluator", .help = "leave the evaluator out"},
    {0},
};

static const char *given_or(const struct plm_arguments *arguments, const char *name,
                            const char *otherwise)
{
  const char *given = plm_arguments_get(arguments, name);
  return given != NULL ? given : otherwise;
}

static plm_status read_run(const struct plm_arguments *arguments, struct plm_kubernetes_run *run,
                           char name[PLM_KUBERNETES_NAME_SIZE], struct plm_error *error)
{
  const struct plm_config *config = run->config;
  const unsigned packers = config->packer_instances;
  run->nodes = 1;
  run->cpus = config->trainer.threads > 0 ? config->trainer.threads : UNNAMED_CPUS;
  run->evaluator_cpus = config->evaluator.threads > 0 ? config->evaluator.threads : 2;
  run->max_packers = packers == 0 ? 1 : 2 * packers;
  if (run->max_packers > MOST_PACKERS) run->max_packers = MOST_PACKERS;
  PLM_TRY(plm_arguments_within(arguments, "nodes", 1, PLM_MAX_HOSTS, &run->nodes, error));
  PLM_TRY(plm_arguments_within(arguments, "cpus", 1, MOST_CPUS, &run->cpus, error));
  PLM_TRY(
      plm_arguments_within(arguments, "max-packers", 1, MOST_PACKERS, &run->max_packers, error));
  if (plm_arguments_has(arguments, "no-evaluator")) run->evaluator_cpus = 0;
  run->name = plm_arguments_get(arguments, "name");
  if (run->name == NULL) {
    PLM_TRY(plm_kubernetes_name(config->run, name, error));
    run->name = name;
  }
  run->namespace_ = plm_arguments_get(arguments, "namespace");
  run->claim = given_or(arguments, "claim", run->name);
  run->image = plm_arguments_get(arguments, "image");
  run->memory = given_or(arguments, "memory", "8Gi");
  return PLM_OK;
}

/* What may surprise the user, on standard error. */
static void k8s_advise(const char *path, const struct plm_kubernetes_run *run)
{
  const struct plm_config *config = run->config;
  if (config->trainer.device == PLM_DEVICE_AUTO)
    plm_warning("trainer.device is auto, so the trainer asks for no GPU: set it to cuda for one "
                "for each rank, or to cpu");
  if (config->packer_instances == 0) plm_warning("packer.instances is 0, so no packer is started");
  struct plm_text corpora = {0};
  for (uint32_t i = 0; i < plm_config_source_count(config); i++)
    plm_text_printf(&corpora, "%s%s", i == 0 ? "" : ", ",
                    strrchr(plm_config_source(config, i).path, '/') + 1);
  plm_info("the volume of the claim %s must hold the %s as %s; the run folder will be %s there",
           run->claim, config->source_count > 1 ? "corpora" : "corpus", corpora.data,
           strstr(config->run, "runs/"));
  plm_text_deinit(&corpora);
  if (!plm_output_is_stream(path)) plm_info("start the run with `kubectl apply -f %s`", path);
}

static plm_status make_stream(const struct plm_command_context *context, struct plm_config *config,
                              const char *keys, struct plm_error *error)
{
  char name[PLM_KUBERNETES_NAME_SIZE];
  struct plm_text text = {0};
  struct plm_kubernetes_run run = {.config = config, .keys = keys};
  const char *path = given_or(context->arguments, "output", "-");
  PLM_TRY(plm_output_check_inputs("--output", path, (const char *const *)config->files,
                                  config->file_count, error));
  PLM_TRY(read_run(context->arguments, &run, name, error));
  PLM_TRY(plm_kubernetes_check(&run, error));
  PLM_TRY(plm_kubernetes_config(&run, error));
  plm_status status = plm_kubernetes_files(&run, &text, error);
  if (status == PLM_OK) status = plm_output_write(path, text.data, text.length, true, error);
  if (status == PLM_OK) k8s_advise(path, &run);
  if (text.data != NULL) explicit_bzero(text.data, text.length);
  plm_text_deinit(&text);
  return status;
}

static plm_status k8s(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config;
  char *keys = NULL;
  const struct plm_arguments *arguments = context->arguments;
  PLM_TRY(plm_command_operands(context, 1, error));
  const char *file = arguments->positionals[0]; /* or NULL */
  PLM_TRY(plm_arguments_load_config(arguments, file, true, &config, error));
  const char *folder = given_or(arguments, "keys", config.network.keys);
  if (folder != NULL) keys = plm_strdup(folder);
  const plm_status status = make_stream(context, &config, keys, error);
  free(keys);
  plm_config_deinit(&config);
  return status;
}

const struct plm_command plm_command_k8s = {
    .name = "k8s",
    .sets = true,
    .operands = "[FILE]",
    .summary = "write the Kubernetes objects of a run",
    .details =
        "Writes a stream of YAML for `kubectl apply -f`: a Job for the trainer (an MPIJob on "
        "several nodes), a Job for the evaluator, a Deployment of packers with an autoscaler, and "
        "the configuration, keys, services and network policies that they need.\n\n"
        "The resolved configuration becomes part of the stream, with --set and PLM_* variables. "
        "The stream also holds the secret keys, so keep it private. doc/kubernetes.md explains "
        "the objects.",
    .options = options,
    .run = k8s,
};
