/* The entry points of a model that predicts labels: rows are checked and uploaded, and the pass is
 * run. */
#include <string.h>

#include "common/model/model_state.h"

struct plm_device_labels plm_model_device_labels(struct plm_model *model)
{
  return (struct plm_device_labels){model->tokens, model->positions,    model->label_end,
                                    model->labels, model->label_values, model->label_keys};
}

static plm_status check_labels(const struct plm_model *model, const struct plm_batch *batch,
                               const struct plm_label_targets *targets, struct plm_error *error)
{
  const int64_t positions = (int64_t)batch->chunks * batch->max_length;
  const struct plm_head_config *head = &model->config.head;
  int64_t before = 0;
  if (targets->rows > plm_model_most_label_rows(&model->config, (uint64_t)positions))
    return plm_error_set(error, PLM_LIMIT, "%u rows have labels, more than the batch can have",
                         targets->rows);
  for (uint32_t i = 0; i < targets->rows; i++) {
    const int64_t begin = targets->begin[i];
    const int64_t end = targets->end != NULL ? targets->end[i] : begin + 1;
    if (begin < before || end < begin || end > positions)
      return plm_error_set(error, PLM_CORRUPT, "row %u of the labels is out of order or range", i);
    before = end > begin ? end : begin + 1;
    if (targets->classes != NULL &&
        (targets->classes[i] < -1 || targets->classes[i] >= (int64_t)head->outputs))
      return plm_error_set(error, PLM_CORRUPT, "class %d is not one of %u", targets->classes[i],
                           head->outputs);
  }
  return PLM_OK;
}

/* Uploads the rows, followed by rows that do not count, in which every byte has this value. */
static void upload_rows(struct plm_model *model, const struct plm_label_targets *targets, size_t R,
                        size_t row_bytes, void *device, const void *host, int byte)
{
  const size_t rows = targets->rows, more = (R - rows) * row_bytes;
  unsigned char fill[256];
  memset(fill, byte, sizeof fill);
  if (rows > 0) model->ops->upload(model->ops, device, host, rows * row_bytes);
  for (size_t done = 0; done < more; done += sizeof fill)
    model->ops->upload(model->ops, (char *)device + rows * row_bytes + done, fill,
                       more - done < sizeof fill ? more - done : sizeof fill);
}

/* Checks and uploads a batch with its rows, and sets up the pass. */
static plm_status start_labels(struct plm_model *model, const struct plm_masked_batch *input,
                               const struct plm_label_targets *targets, struct model_pass *pass,
                               struct plm_error *error)
{
  enum { ONES = 0xff }; /* -1, and NaN */
  PLM_ASSERT(model->config.head.kind != PLM_PREDICTS_TOKENS);
  PLM_TRY(plm_model_check_batch(model, input->batch, targets->inputs, error));
  PLM_TRY(check_labels(model, input->batch, targets, error));
  *pass = plm_model_start_pass(model, input, targets->inputs);
  const uint64_t positions = (uint64_t)pass_rows(pass, 0);
  const size_t R = plm_model_label_rows(model->ops, &model->config, positions, targets->rows);
  const size_t O = model->config.head.outputs;
  const int32_t *end = targets->end != NULL ? targets->end : targets->begin;
  upload_rows(model, targets, R, sizeof(int32_t), model->positions, targets->begin, ONES);
  upload_rows(model, targets, R, sizeof(int32_t), model->label_end, end, ONES);
  if (targets->classes != NULL)
    upload_rows(model, targets, R, sizeof(int32_t), model->labels, targets->classes, ONES);
  if (targets->values != NULL)
    upload_rows(model, targets, R, O * sizeof(float), model->label_values, targets->values, ONES);
  if (targets->keys != NULL)
    upload_rows(model, targets, R, sizeof(uint64_t), model->label_keys, targets->keys, 0);
  if (R > 0) plm_model_pass_labels(model, pass, (int64_t)R);
  return PLM_OK;
}

plm_status plm_model_predict(struct plm_model *model, const struct plm_masked_batch *input,
                             const struct plm_label_targets *targets, float *outputs,
                             struct plm_error *error)
{
  struct plm_ops *ops = model->ops;
  struct plm_label_targets places = *targets;
  struct model_pass pass;
  places.classes = NULL;
  places.values = NULL;
  places.keys = NULL;
  PLM_TRY(start_labels(model, input, &places, &pass, error));
  if (targets->rows == 0) return ops->synchronize(ops, error);
  plm_model_blocks_forward(model, &pass);
  plm_model_label_outputs(model, &pass);
  ops->download(ops, outputs, model->logits,
                (size_t)targets->rows * model->config.head.outputs * sizeof(float));
  return ops->synchronize(ops, error);
}

plm_status plm_model_label_gradients(struct plm_model *model, const struct plm_masked_batch *input,
                                     const struct plm_label_targets *targets,
                                     const struct plm_label_options *options, float loss_scale,
                                     struct plm_loss_result *result, float *row_loss,
                                     struct plm_error *error)
{
  struct model_pass pass;
  PLM_ASSERT((model->config.head.loss == PLM_LOSS_CLASS ? (const void *)targets->classes
                                                        : (const void *)targets->values) != NULL);
  PLM_TRY(start_labels(model, input, targets, &pass, error));
  pass.dropped = targets->keys != NULL ? options : NULL;
  if (targets->rows > 0) {
    plm_model_train_labels(model, &pass, options, loss_scale);
    plm_model_train_blocks(model, &pass, plm_model_whole_pass(model));
  }
  return plm_model_fetch_loss(model, targets->rows, result, row_loss, error);
}
