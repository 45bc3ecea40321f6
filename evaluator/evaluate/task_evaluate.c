/* The command line of `plm-evaluator evaluate`. */
#include "common/cli/task_options.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "evaluator/task/task.h"

static plm_status run(const struct plm_arguments *arguments, struct plm_error *error)
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
    .run = run,
};
