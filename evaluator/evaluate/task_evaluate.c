/* The command line of `plm-evaluator evaluate`. */
#include <math.h>
#include <string.h>

#include "common/cli/task_options.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "evaluator/task/task.h"

static plm_status parse_measures(const struct plm_arguments *arguments,
                                 struct plm_evaluate_request *request, struct plm_error *error)
{
  const char *how = plm_arguments_get(arguments, "pseudo-perplexity");
  double rates = 0;
  PLM_TRY(plm_task_number(arguments, "elbo-rates", 0, false, 64, &rates, error));
  PLM_TRY(
      plm_task_number(arguments, "random-fraction", 0, false, 1, &request->random_fraction, error));
  PLM_TRY(plm_task_number(arguments, "keep-fraction", 0, true, 1, &request->keep_fraction, error));
  if (rates != floor(rates))
    return plm_error_set(error, PLM_USAGE, "--elbo-rates %g is not a whole number", rates);
  request->elbo_rates = (uint32_t)rates;
  if (how == NULL) return PLM_OK;
  const bool both = strcmp(how, "both") == 0;
  request->pseudo_perplexity = both || strcmp(how, "exact") == 0;
  request->pseudo_perplexity_fast = both || strcmp(how, "fast") == 0;
  if (!request->pseudo_perplexity && !request->pseudo_perplexity_fast)
    return plm_error_set(error, PLM_USAGE,
                         "--pseudo-perplexity must be exact, fast or both, not \"%.80s\"", how);
  if (!request->pseudo_perplexity_fast || (plm_arguments_has(arguments, "random-fraction") &&
                                           plm_arguments_has(arguments, "keep-fraction")))
    return PLM_OK;
  plm_error_set(error, PLM_USAGE,
                "--pseudo-perplexity fast needs --random-fraction and "
                "--keep-fraction, as the model was trained with");
  return plm_error_hint(error, "a model that was trained without random tokens "
                               "(trainer.masking.random_fraction 0) has no fast estimate; use "
                               "--pseudo-perplexity exact");
}

static plm_status task_evaluate_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_evaluate_request request = {
      .checkpoint = plm_arguments_get(arguments, "checkpoint"),
      .corpus = plm_arguments_get(arguments, "corpus"),
      .split = plm_arguments_get(arguments, "split"),
      .labels = plm_arguments_get(arguments, "labels"),
      .mask_rate = 0.15,
      .json = plm_arguments_has(arguments, "json"),
  };
  unsigned long long number;
  struct plm_ops *ops;
  PLM_TRY(plm_task_needs(arguments, plm_evaluate_options, "checkpoint",
                         "a checkpoint, for example runs/demo/checkpoints/latest", error));
  PLM_TRY(plm_task_needs(arguments, plm_evaluate_options, "corpus",
                         "make one with `plm-pipeline ingest sequences.fasta --corpus DIR`",
                         error));
  if (request.split == NULL) request.split = "valid";
  PLM_TRY(plm_task_number(arguments, "mask-rate", 0, false, 1, &request.mask_rate, error));
  PLM_TRY(plm_arguments_u64(arguments, "max-tokens", 0, &number, error));
  request.max_tokens = number;
  PLM_TRY(plm_arguments_u64(arguments, "seed", 0, &number, error));
  request.seed = number;
  PLM_TRY(plm_task_max_length(arguments, &request.max_length, error));
  if ((request.max_length & (request.max_length - 1)) != 0) {
    plm_error_set(error, PLM_USAGE, "--max-length %u is not a power of two", request.max_length);
    return plm_error_hint(error, "documents are packed into chunks of a power of two tokens");
  }
  PLM_TRY(parse_measures(arguments, &request, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = plm_evaluate_once(&request, ops, error);
  ops->close(ops);
  return status;
}

const struct plm_program plm_task_evaluate = {
    .name = "plm-evaluator evaluate",
    .usage = "usage: plm-evaluator evaluate --checkpoint DIR --corpus DIR [options]\n\n"
             "Evaluates one checkpoint on one split of a corpus and prints its metrics.\n",
    .options = plm_evaluate_options,
    .run = task_evaluate_run,
};
