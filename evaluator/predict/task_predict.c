/* The command line of `plm-evaluator predict`. */
#include "common/cli/task_options.h"
#include "common/inference/inference.h"
#include "evaluator/predict/predict.h"
#include "evaluator/task/task.h"

static plm_status predict_parse(const struct plm_arguments *arguments,
                                struct plm_predict_request *request, struct plm_error *error)
{
  static const struct plm_sequence_needs needs = {
      .options = plm_predict_options,
      .checkpoint = "a model that was fine-tuned with labels",
      .output = "where the predictions go, FILE.csv, FILE.tsv or FILE.jsonl",
      .batch_tokens = PLM_INFERENCE_BATCH_TOKENS};
  *request = (struct plm_predict_request){
      .per_residue = plm_arguments_has(arguments, "per-residue"),
      .logits = plm_arguments_has(arguments, "logits"),
  };
  return plm_sequence_request_parse(arguments, &needs, &request->of, error);
}

static plm_status predict_task_run(const struct plm_arguments *arguments, struct plm_error *error)
{
  struct plm_predict_request request;
  struct plm_ops *ops;
  PLM_TRY(predict_parse(arguments, &request, error));
  PLM_TRY(plm_task_open_ops(arguments, (struct plm_ops_request){0}, &ops, error));
  const plm_status status = plm_predict(&request, ops, error);
  ops->close(ops);
  return status;
}

const struct plm_program plm_task_predict = {
    .name = "plm-evaluator predict",
    .usage = "usage: plm-evaluator predict --checkpoint DIR IN... --output FILE [options]\n\n"
             "Writes the labels that a fine-tuned model predicts, in the order of the input.\n",
    .options = plm_predict_options,
    .operands = (size_t)-1,
    .run = predict_task_run,
};
