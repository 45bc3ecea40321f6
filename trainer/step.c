/* One step of training. */
#include "trainer/step.h"

#include <math.h>

#include "trainer/schedule.h"

struct plm_batch plm_batch_slice(const struct plm_batch *batch, uint32_t first, uint32_t count)
{
  PLM_ASSERT(first + count <= batch->chunks);
  struct plm_batch slice = *batch;
  slice.chunks = count;
  slice.tokens =
      (const char *)batch->tokens + (size_t)first * batch->max_length * batch->token_bytes;
  slice.document_begin = batch->document_begin + first;
  slice.first_chunk = batch->first_chunk + first;
  if (batch->chunk_ids != NULL) slice.chunk_ids = batch->chunk_ids + first;
  return slice;
}

uint64_t plm_batch_real_tokens(const struct plm_batch *batch)
{
  uint64_t tokens = 0;
  for (uint32_t d = batch->document_begin[0]; d < batch->document_begin[batch->chunks]; d++)
    tokens += batch->documents[d].tokens;
  return tokens;
}

/* Adds one micro-batch to the gradients and to the step's sums. */
static plm_status accumulate(struct plm_step *step, uint64_t s, uint32_t first,
                             const struct plm_batch *micro, struct plm_step_result *result,
                             struct plm_error *error)
{
  struct plm_targets targets;
  uint64_t count;
  PLM_TRY(plm_objective_targets(step->objective, s, first, micro, &targets, &count, error));
  plm_model_attention_masks(step->model, micro, result->window, step->masks);
  const uint64_t real_tokens = plm_batch_real_tokens(micro);
  result->count += count;
  result->rows += targets.rows;
  result->real_tokens += real_tokens;
  result->padded_tokens += (uint64_t)micro->chunks * micro->max_length;
  result->flops += plm_model_flops(step->model, step->masks, real_tokens);
  if (targets.rows == 0) return PLM_OK; /* neither loss nor gradient */
  struct plm_loss_result loss;
  PLM_TRY(plm_model_forward(step->model, micro, step->masks, &targets, &step->loss, &loss, NULL,
                            error));
  PLM_TRY(plm_model_backward(step->model, micro, step->masks, &targets, &step->loss, 1, error));
  result->loss += loss.loss;
  return PLM_OK;
}

/* From sums to an update, or to a skipped step. Order: model.md, "Order of a step". */
static void apply(struct plm_step *step, uint64_t s, struct plm_step_result *result)
{
  if (result->rows == 0) {
    result->loss = NAN;
    result->grad_norm = NAN;
    result->skipped = true;
    return;
  }
  result->loss /= (double)result->count;
  result->grad_norm = plm_optimizer_gradient_norm(step->optimizer, result->count);
  result->clip_norm = plm_clip_threshold(step->clip, step->trainer->clip_norm,
                                         step->trainer->clip_auto_percentile, s, result->grad_norm);
  result->skipped = !isfinite(result->loss) || !isfinite(result->grad_norm);
  if (result->skipped) return;
  plm_optimizer_update(step->optimizer, s,
                       plm_clip_factor(result->clip_norm, result->grad_norm) /
                           (double)result->count);
}

plm_status plm_step_run(struct plm_step *step, uint64_t s, const struct plm_batch *batch,
                        plm_step_give_up *give_up, void *context, struct plm_step_result *result,
                        struct plm_error *error)
{
  const uint32_t total = (batch->chunks + step->micro_chunks - 1) / step->micro_chunks;
  *result =
      (struct plm_step_result){.window = plm_schedule_window(plm_model_config(step->model), s)};
  plm_model_zero_gradients(step->model);
  for (uint32_t done = 0; done < total; done++) {
    if (done > 0 && give_up != NULL && give_up(context, done, total))
      return plm_error_set(error, PLM_INTERRUPTED, "step %llu was given up",
                           (unsigned long long)s + 1);
    const uint32_t first = done * step->micro_chunks;
    const uint32_t left = batch->chunks - first;
    const struct plm_batch micro =
        plm_batch_slice(batch, first, left < step->micro_chunks ? left : step->micro_chunks);
    PLM_TRY(accumulate(step, s, first, &micro, result, error));
  }
  apply(step, s, result);
  struct plm_ops *ops = plm_model_ops(step->model);
  return ops->synchronize(ops, error);
}
