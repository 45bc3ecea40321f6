/* plm-evaluator: evaluates every published checkpoint of a run, or does one task with one
 * checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "common/cli/program.h"
#include "common/metrics/exporter.h"
#include "common/ops/ops.h"
#include "common/run/run.h"
#include "evaluator/task/task.h"
#include "evaluator/watch/watch.h"

static const struct plm_option options[] = {
    {.name = "threads",
     .argument = "N",
     .help = "CPU threads (default: all, or one beside a trainer on the CPU)"},
    {.name = "precision", .argument = "NAME", .help = "fp32 (default), bf16, or int8 (CPU)"},
    {.name = "prometheus",
     .argument = "ADDRESS",
     .help = "serve this process's metrics there, for example 127.0.0.1:9464"},
    {0},
};

static const struct plm_program *const tasks[] = {&plm_task_evaluate,
                                                  &plm_task_embed,
                                                  &plm_task_generate,
                                                  &plm_task_score,
                                                  &plm_task_probe,
                                                  &plm_task_predict,
                                                  NULL};

/* With device auto, takes the GPU after those of the trainer's ranks on this host. The default is
 * one thread, so that a trainer on the CPU is not slowed down; it is all threads if the trainer
 * needs a GPU. */
static struct plm_ops_request evaluator_main_choose(const struct plm_config *config)
{
  const bool beside = config->trainer.device != PLM_DEVICE_CUDA;
  struct plm_ops_request request = {
      .device = config->evaluator.device,
      .threads = config->evaluator.threads != 0 ? config->evaluator.threads : beside};
  if (request.device == PLM_DEVICE_AUTO && config->trainer.device != PLM_DEVICE_CPU)
    request.ordinal = (int)plm_config_ranks_here(config);
  return request;
}

static plm_status evaluator_main_watch(const struct plm_arguments *arguments,
                                       struct plm_error *error)
{
  struct plm_config config;
  struct plm_ops *ops;
  PLM_TRY(plm_program_config(arguments, &config, error));
  plm_status status = plm_task_open_ops(arguments, evaluator_main_choose(&config), &ops, error);
  if (status == PLM_OK) {
    struct plm_exporter *exporter;
    status = plm_exporter_open(plm_arguments_get(arguments, "prometheus"), config.run,
                               PLM_RUN_EVALUATOR_METRICS, PLM_STAGE_EVALUATOR, &exporter, error);
    if (status == PLM_OK) status = plm_watch(&config, ops, error);
    plm_exporter_close(exporter);
    ops->close(ops);
  }
  plm_config_deinit(&config);
  return status;
}

/* The task of this name; NULL if there is none. */
static const struct plm_program *find_task(const char *word)
{
  for (size_t i = 0; tasks[i] != NULL; i++) {
    if (strcmp(strrchr(tasks[i]->name, ' ') + 1, word) == 0) return tasks[i];
  }
  return NULL;
}

int main(int argc, char **argv)
{
  static const struct plm_program watching = {
      .name = "plm-evaluator",
      .summary = "evaluate the checkpoints of a run, or do a task with one checkpoint",
      .usage =
          "usage: plm-evaluator --run DIR [-c FILE]\n"
          "       plm-evaluator TASK [options]\n\n"
          "Watches the checkpoints of a run and evaluates each once on held-out sequences, or\n"
          "does one task with one checkpoint: evaluate, embed, generate, predict, score or probe\n"
          "(`plm-evaluator TASK -h` shows its options).\n",
      .options = options,
      .tasks = tasks,
      .stage = true,
      .run = evaluator_main_watch,
  };
  const struct plm_program *task = argc > 1 ? find_task(argv[1]) : NULL;
  if (task == NULL) return plm_program_main(&watching, argc, argv);
  return plm_program_main(task, argc - 1, argv + 1);
}
