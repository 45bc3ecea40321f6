/* plm-evaluator: evaluates every published checkpoint of a run, or one checkpoint on a corpus. */
#include <stdlib.h>
#include <string.h>

#include "common/config/program.h"
#include "common/metrics/exporter.h"
#include "common/ops/ops.h"
#include "common/run/run.h"
#include "evaluator/evaluate_once.h"
#include "evaluator/watch.h"

static const struct plm_option options[] = {
    {0, "checkpoint", "DIR", "evaluate this one checkpoint and exit; needs --corpus"},
    {0, "corpus", "DIR", "corpus of the one evaluation"},
    {0, "split", "NAME", "train, valid (default) or test"},
    {0, "mask-rate", "RATE", "share of the residues that is hidden (default 0.15)"},
    {0, "max-tokens", "N", "real tokens to evaluate at most (default all)"},
    {0, "seed", "N", "seed of the masks (default 0)"},
    {0, "threads", "N", "CPU threads (default: all; one beside a CPU trainer)"},
    {0, "precision", "NAME", "fp32 (default) or bf16"},
    {0, "prometheus", "ADDRESS", "serve this process's metrics there, for example 127.0.0.1:9464"},
    {0, NULL, NULL, NULL},
};

static plm_status parse_rate(const char *text, double *rate, struct plm_error *error)
{
  char *end;
  *rate = strtod(text, &end);
  if (end == text || *end != '\0' || !(*rate > 0 && *rate <= 1)) {
    plm_error_set(error, PLM_USAGE, "--mask-rate %s is not a number in (0, 1]", text);
    return plm_error_hint(error, "for example --mask-rate 0.15");
  }
  return PLM_OK;
}

static plm_status open_ops(const struct plm_arguments *arguments, uint32_t fallback_threads,
                           struct plm_ops **ops, struct plm_error *error)
{
  unsigned long long threads;
  const char *precision = plm_arguments_get(arguments, "precision");
  PLM_TRY(plm_arguments_u64(arguments, "threads", fallback_threads, &threads, error));
  if (precision != NULL && strcmp(precision, "fp32") != 0 && strcmp(precision, "bf16") != 0)
    return plm_error_set(error, PLM_USAGE, "--precision is fp32 or bf16, not \"%s\"", precision);
  const bool narrow = precision != NULL && strcmp(precision, "bf16") == 0;
  return plm_ops_cpu_open(narrow ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, (uint32_t)threads, NULL,
                          ops, error);
}

static plm_status run_once(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_evaluate_request request = {
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .corpus = plm_arguments_get(arguments, "corpus"),
      .split = plm_arguments_get(arguments, "split"),
      .mask_rate = 0.15,
      .json = plm_arguments_has(arguments, "json"),
  };
  unsigned long long number;
  struct plm_ops *ops;
  if (request.corpus == NULL) {
    plm_error_set(error, PLM_USAGE, "--checkpoint needs --corpus DIR");
    return plm_error_hint(error,
                          "make one with `plm-pipeline ingest sequences.fasta --corpus DIR`");
  }
  if (request.split == NULL) request.split = "valid";
  if (plm_arguments_has(arguments, "mask-rate"))
    PLM_TRY(parse_rate(plm_arguments_get(arguments, "mask-rate"), &request.mask_rate, error));
  PLM_TRY(plm_arguments_u64(arguments, "max-tokens", 0, &number, error));
  request.max_tokens = number;
  PLM_TRY(plm_arguments_u64(arguments, "seed", 0, &number, error));
  request.seed = number;
  PLM_TRY(open_ops(arguments, 0, &ops, error));
  const plm_status status = plm_evaluate_once(&request, ops, error);
  ops->close(ops);
  return status;
}

static plm_status run_watch(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_config config;
  struct plm_ops *ops;
  PLM_TRY(plm_program_config(arguments, &config, error));
  const bool beside = config.trainer.device != PLM_DEVICE_CUDA;
  const uint32_t threads = config.evaluator.threads != 0 ? config.evaluator.threads : beside;
  plm_status status = PLM_OK;
  if (config.evaluator.device == PLM_DEVICE_CUDA) {
    status = plm_error_set(error, PLM_CONFIG,
                           "evaluator.device: cuda, but this build has no CUDA backend");
    plm_error_hint(error, "use evaluator.device: auto or cpu");
  }
  if (status == PLM_OK) status = open_ops(arguments, threads, &ops, error);
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

static plm_status run(const struct plm_arguments *arguments, struct plm_error *error)
{
  return plm_arguments_has(arguments, "checkpoint") ? run_once(arguments, error)
                                                    : run_watch(arguments, error);
}

int main(int argc, char **argv)
{
  static const struct plm_program program = {
      "plm-evaluator",
      "usage: plm-evaluator --run DIR [-c FILE]\n"
      "       plm-evaluator --checkpoint DIR --corpus DIR [options]\n\n"
      "Watches the checkpoints of a run and evaluates each once on held-out sequences, or\n"
      "evaluates one checkpoint and prints its metrics.\n",
      options,
      NULL,
      run,
  };
  return plm_program_main(&program, argc, argv);
}
