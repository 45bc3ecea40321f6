/* Batches with labels through the model. */
#include "evaluator/labels/label_evaluation.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/inference/finite_output.h"
#include "evaluator/evaluate/masking.h"

struct plm_label_evaluation {
  struct plm_inference *inference;
  struct plm_label_names names;
  struct plm_question question; /* only its inputs */
  float *outputs;               /* (most rows, outputs) */
  const struct plm_label_schema *schema;
  struct plm_label_match match;
  struct plm_batch_labels labels;
  struct plm_labelled_rows rows;
  struct plm_label_answers *answers;
  struct plm_label_result result;
};

plm_status plm_label_evaluation_open(struct plm_inference *inference, const char *folder,
                                     struct plm_label_evaluation **evaluation,
                                     struct plm_error *error)
{
  const struct plm_model_config *model = &inference->config;
  const uint32_t tokens = inference->max_chunks * model->max_length;
  const size_t most = plm_model_most_label_rows(model, tokens);
  struct plm_label_evaluation *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->inference = inference;
  plm_status status = plm_label_names_read(folder, model, &opened->names, error);
  if (status == PLM_OK) status = plm_question_init(&opened->question, tokens, error);
  opened->outputs = calloc(most * model->head.outputs, sizeof *opened->outputs);
  if (status == PLM_OK && opened->outputs == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the outputs of %zu rows", most);
  if (status != PLM_OK) {
    plm_label_evaluation_close(opened);
    return status;
  }
  *evaluation = opened;
  return PLM_OK;
}

static void forget(struct plm_label_evaluation *evaluation)
{
  plm_label_answers_close(evaluation->answers);
  evaluation->answers = NULL;
  plm_label_result_deinit(&evaluation->result);
  plm_label_match_deinit(&evaluation->match);
}

void plm_label_evaluation_close(struct plm_label_evaluation *evaluation)
{
  if (evaluation == NULL) return;
  forget(evaluation);
  plm_labelled_rows_deinit(&evaluation->rows);
  plm_batch_labels_deinit(&evaluation->labels);
  plm_question_deinit(&evaluation->question);
  plm_label_names_deinit(&evaluation->names);
  free(evaluation->outputs);
  free(evaluation);
}

plm_status plm_label_evaluation_begin(struct plm_label_evaluation *evaluation,
                                      const struct plm_label_schema *schema,
                                      const char *const *columns, uint32_t column_count,
                                      bool of_run, struct plm_error *error)
{
  const struct plm_head_config *head = &evaluation->inference->config.head;
  const struct plm_label_search search = {.head = head,
                                          .names = &evaluation->names,
                                          .schema = schema,
                                          .columns = columns,
                                          .column_count = column_count,
                                          .of_run = of_run};
  forget(evaluation);
  evaluation->schema = schema;
  PLM_TRY(plm_label_match_find(&search, &evaluation->match, error));
  evaluation->answers =
      plm_label_answers_open(&evaluation->match, head->outputs, PLM_LABEL_VALUES_KEPT);
  return PLM_OK;
}

plm_status plm_label_evaluation_add(struct plm_label_evaluation *evaluation,
                                    const struct plm_batch *batch, struct plm_error *error)
{
  const uint32_t K = evaluation->inference->config.head.outputs;
  const struct plm_chunk_document *documents = batch->documents + batch->document_begin[0];
  struct plm_batch of_one = *batch; /* all its chunks are of the corpus that is evaluated */
  struct plm_labelled_rows *rows = &evaluation->rows;
  of_one.sources = NULL;
  PLM_TRY(plm_batch_labels_fill(&evaluation->match.choice, &evaluation->schema, &of_one,
                                &evaluation->labels, error));
  PLM_TRY(plm_labelled_rows_list(&evaluation->inference->config.head, &evaluation->labels, rows,
                                 error));
  if (rows->count > 0) {
    plm_question_copy(&evaluation->question, batch);
    const struct plm_label_targets targets = {.inputs = evaluation->question.inputs,
                                              .rows = rows->count,
                                              .begin = rows->begin,
                                              .end = rows->end};
    PLM_TRY(
        plm_inference_predict(evaluation->inference, batch, &targets, evaluation->outputs, error));
  }
  for (uint32_t r = 0; r < rows->count; r++)
    PLM_TRY(plm_finite_output(evaluation->outputs + (size_t)r * K, K, error,
                              "sequence %llu (from 0) of its split",
                              (unsigned long long)documents[rows->documents[r]].number));
  return plm_label_answers_add(evaluation->answers, batch, &evaluation->labels, rows,
                               evaluation->outputs, error);
}

plm_status plm_label_evaluation_end(struct plm_label_evaluation *evaluation,
                                    const struct plm_label_result **result, struct plm_error *error)
{
  PLM_TRY(plm_label_answers_measure(evaluation->answers, &evaluation->result, error));
  *result = &evaluation->result;
  if (evaluation->result.unseen > 0)
    plm_warning("%llu labels are of classes that the model does not know, or that no document of "
                "the training split has",
                (unsigned long long)evaluation->result.unseen);
  return PLM_OK;
}
