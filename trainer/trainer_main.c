/* plm-trainer: options and exit codes. */

#include "common/base/log/log.h"
#include "common/cli/program.h"
#include "common/metrics/exporter.h"
#include "common/run/run.h"
#include "common/run/stop.h"
#include "trainer/ranks/rank_start.h"
#include "trainer/trainer.h"

static const struct plm_option options[] = {
    {0, "fingerprint", "HEX,...",
     "fingerprint of the corpus to train on (default: that of the first packer's corpus); of a "
     "list "
     "of corpora, all of them (default: what their folders state)"},
    {0, "prometheus", "ADDRESS", "serve this process's metrics there, for example 127.0.0.1:9464"},
    {0, "dry-run", NULL, "print the memory estimate and exit; writes nothing"},
    {0},
};

/* After a signal that came before the first step, while the trainer waited. */
static plm_status stopped_waiting(const struct plm_ranks *ranks, struct plm_error *error)
{
  if (plm_ranks_first(ranks)) plm_info("stopped while it waited for a packer; nothing was lost");
  return ranks->single ? plm_stop_drained(error) : PLM_OK;
}

static plm_status trainer_main_train(const struct plm_config *config, struct plm_ranks *ranks,
                                     const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_fingerprints fingerprints = {0};
  struct plm_trainer trainer;
  struct plm_exporter *exporter = NULL;
  const char *fingerprint = plm_arguments_get(arguments, "fingerprint");
  if (fingerprint != NULL) PLM_TRY(plm_fingerprints_parse(fingerprint, &fingerprints, error));
  plm_status status = plm_trainer_open(&trainer, config, ranks, &fingerprints, error);
  if (status == PLM_INTERRUPTED) return stopped_waiting(ranks, error);
  PLM_TRY(status);
  if (plm_ranks_first(ranks))
    status = plm_exporter_open(plm_arguments_get(arguments, "prometheus"), config->run,
                               PLM_RUN_TRAINER_METRICS, PLM_STAGE_TRAINER, &exporter, error);
  if (status == PLM_OK) status = plm_trainer_run(&trainer, error);
  if (status != PLM_OK) plm_ranks_fail(ranks, error);
  /* mpirun would take another code than 0 for a failure of the rank */
  if (status == PLM_OK && ranks->single && !plm_trainer_is_complete(&trainer))
    status = plm_stop_drained(error);
  plm_exporter_close(exporter);
  plm_trainer_close(&trainer);
  return status;
}

/* Only rank 0 reads the configuration. */
static plm_status train_as_rank(struct plm_ranks *ranks, const struct plm_arguments *arguments,
                                struct plm_error *error)
{
  struct plm_config config = {0};
  if (plm_ranks_first(ranks))
    PLM_TRY(plm_arguments_load_config(arguments, NULL, false, &config, error));
  plm_status status = plm_rank_share_config(ranks, &config, error);
  if (status == PLM_OK) status = trainer_main_train(&config, ranks, arguments, error);
  plm_config_deinit(&config);
  return status;
}

static void trainer_main_say(const struct plm_error *error)
{
  plm_error_print("plm-trainer", error);
}

static plm_status dry_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_config config;
  PLM_TRY(plm_arguments_load_config(arguments, NULL, false, &config, error));
  const plm_status status =
      plm_trainer_dry_run(&config, plm_arguments_has(arguments, "json"), error);
  plm_config_deinit(&config);
  return status;
}

static plm_status trainer_main_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  if (plm_arguments_has(arguments, "dry-run")) return dry_run(arguments, error);
  struct plm_ranks ranks = plm_ranks_single();
  if (plm_collective_launched()) PLM_TRY(plm_ranks_open(&ranks, trainer_main_say, error));
  if (ranks.rank > 0) plm_log_init("plm-trainer", PLM_LOG_ERROR);
  return plm_ranks_close(&ranks, train_as_rank(&ranks, arguments, error), error);
}

int main(int argc, char **argv)
{
  static const struct plm_program program = {
      .name = "plm-trainer",
      .summary = "train the model of a run and publish its checkpoints",
      .usage = "usage: plm-trainer [-c FILE] [--run DIR] [--set KEY=VALUE]... [OPTION]...\n\n"
               "Trains the model of pipeline.yaml on the chunks that packers send, and publishes\n"
               "checkpoints into the run folder. Resumes from the newest checkpoint there.\n",
      .options = options,
      .stage = true,
      .run = trainer_main_run,
  };
  return plm_program_main(&program, argc, argv);
}
