/* plm-trainer: options and exit codes. */
#include <signal.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/config/options.h"
#include "trainer/trainer.h"

static const struct plm_option options[] = {
    {0, "fingerprint", "HEX", "corpus to train on; without it the first packer's"},
    {0, "dry-run", NULL, "print the memory plan and end; touches nothing"},
    {0},
};

static void usage(void)
{
  printf("usage: plm-trainer [-c FILE] [--run DIR] [--set KEY=VALUE]... [OPTION]...\n\n"
         "Trains the model of pipeline.yaml on what packers send, and publishes checkpoints into\n"
         "the run folder. Resumes from the newest one there.\n\n");
  plm_options_help(options);
}

static plm_status train(const struct plm_config *config, const char *fingerprint,
                        struct plm_error *error)
{
  struct plm_hash hash = {0};
  struct plm_trainer trainer;
  if (fingerprint != NULL && plm_hash_from_hex(fingerprint, &hash, error) != PLM_OK)
    return plm_error_set(error, PLM_USAGE, "--fingerprint %.64s is not 32 hex digits", fingerprint);
  PLM_TRY(plm_trainer_open(&trainer, config, hash, error));
  const plm_status status = plm_trainer_run(&trainer, error);
  plm_trainer_close(&trainer);
  return status;
}

int main(int argc, char **argv)
{
  struct plm_error error = {0};
  struct plm_arguments arguments = {0};
  struct plm_config config = {0};
  plm_log_init("plm-trainer", PLM_LOG_INFO);
  plm_stop_signals_install();
  signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a failed write, not a death */
  plm_status status = plm_arguments_parse(argc, argv, options, &arguments, &error);
  if (status == PLM_OK && plm_arguments_has(&arguments, "help")) {
    usage();
  } else if (status == PLM_OK && plm_arguments_has(&arguments, "version")) {
    printf("plm-trainer %s\n", PLM_VERSION);
  } else if (status == PLM_OK) {
    plm_arguments_log(&arguments, "plm-trainer");
    if (arguments.positional_count > 0)
      status = plm_error_set(&error, PLM_USAGE, "unexpected argument \"%.80s\"",
                             arguments.positionals[0]);
    if (status == PLM_OK)
      status = plm_arguments_load_config(&arguments, NULL, false, &config, &error);
    if (status == PLM_OK) {
      status = plm_arguments_has(&arguments, "dry-run")
                   ? plm_trainer_dry_run(&config, plm_arguments_has(&arguments, "json"), &error)
                   : train(&config, plm_arguments_get(&arguments, "fingerprint"), &error);
      plm_config_deinit(&config);
    }
  }
  plm_arguments_deinit(&arguments);
  if (status != PLM_OK && error.what[0] != '\0') plm_error_print("plm-trainer", &error);
  return plm_status_exit_code(status);
}
