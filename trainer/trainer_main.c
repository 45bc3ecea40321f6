/* plm-trainer: options and exit codes. */
#include <signal.h>

#include "common/cli/program.h"
#include "common/metrics/exporter.h"
#include "common/run/run.h"
#include "trainer/trainer.h"

static const struct plm_option options[] = {
    {0, "fingerprint", "HEX",
     "fingerprint of the corpus to train on (default: that of the first packer's corpus)"},
    {0, "prometheus", "ADDRESS", "serve this process's metrics there, for example 127.0.0.1:9464"},
    {0, "dry-run", NULL, "print the memory plan and exit; writes nothing"},
    {0},
};

static plm_status train(const struct plm_config *config, const struct plm_arguments *arguments,
                        struct plm_error *error)
{
  struct plm_hash hash = {0};
  struct plm_trainer trainer;
  struct plm_exporter *exporter;
  const char *fingerprint = plm_arguments_get(arguments, "fingerprint");
  if (fingerprint != NULL && plm_hash_from_hex(fingerprint, &hash, error) != PLM_OK)
    return plm_error_set(error, PLM_USAGE, "--fingerprint %.64s is not 32 hex digits", fingerprint);
  PLM_TRY(plm_trainer_open(&trainer, config, hash, error));
  plm_status status =
      plm_exporter_open(plm_arguments_get(arguments, "prometheus"), config->run,
                        PLM_RUN_TRAINER_METRICS, PLM_STAGE_TRAINER, &exporter, error);
  if (status == PLM_OK) status = plm_trainer_run(&trainer, error);
  plm_exporter_close(exporter);
  plm_trainer_close(&trainer);
  return status;
}

static plm_status run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_config config;
  signal(SIGXFSZ, SIG_IGN); /* then a write beyond the limit of file sizes fails instead */
  PLM_TRY(plm_arguments_load_config(arguments, NULL, false, &config, error));
  const plm_status status =
      plm_arguments_has(arguments, "dry-run")
          ? plm_trainer_dry_run(&config, plm_arguments_has(arguments, "json"), error)
          : train(&config, arguments, error);
  plm_config_deinit(&config);
  return status;
}

int main(int argc, char **argv)
{
  static const struct plm_program program = {
      .name = "plm-trainer",
      .usage = "usage: plm-trainer [-c FILE] [--run DIR] [--set KEY=VALUE]... [OPTION]...\n\n"
               "Trains the model of pipeline.yaml on the chunks that packers send, and publishes\n"
               "checkpoints into the run folder. Resumes from the newest checkpoint there.\n",
      .options = options,
      .run = run,
  };
  return plm_program_main(&program, argc, argv);
}
