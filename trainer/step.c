/* One step of training. */
#include "trainer/step.h"

#include <math.h>
#include <stdlib.h>

struct plm_step {
  struct plm_step_parts parts;
  struct plm_ops *ops;
  struct plm_step_shape shape;
  struct plm_micro_layout layout;
  char *micro;               /* device: the block of the micro-batch at work */
  struct plm_update *update; /* device */
  double flops;              /* of the step at work */
};

struct plm_step_shape plm_step_shape(const struct plm_step *step)
{
  return step->shape;
}

void plm_step_memory(const struct plm_step_shape *shape, uint64_t *device, uint64_t *host)
{
  *device = plm_step_micro_layout(shape).bytes + sizeof(struct plm_update);
  *host = plm_step_input_bytes(shape);
}

plm_status plm_step_open(const struct plm_step_parts *parts, struct plm_step **out,
                         struct plm_error *error)
{
  struct plm_step *step = calloc(1, sizeof *step);
  if (step == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the step");
  step->parts = *parts;
  step->ops = plm_model_ops(parts->model);
  step->shape = (struct plm_step_shape){.model = plm_model_config(parts->model),
                                        .objective = parts->objective,
                                        .masks = parts->masks,
                                        .step_chunks = parts->step_chunks,
                                        .micro_chunks = parts->micro_chunks,
                                        .max_length = parts->max_length};
  step->layout = plm_step_micro_layout(&step->shape);
  struct plm_ops *ops = step->ops;
  plm_status status = ops->allocate(ops, step->layout.bytes, (void **)&step->micro, error);
  if (status == PLM_OK)
    status = ops->allocate(ops, sizeof *step->update, (void **)&step->update, error);
  if (status != PLM_OK) {
    plm_step_close(step);
    return status;
  }
  *out = step;
  return PLM_OK;
}

void plm_step_close(struct plm_step *step)
{
  if (step == NULL) return;
  if (step->update != NULL) step->ops->release(step->ops, step->update);
  if (step->micro != NULL) step->ops->release(step->ops, step->micro);
  free(step);
}

/* Adds one micro-batch, whose block lies on the device, to the gradients and to the sums. */
static void accumulate(struct plm_step *step, const struct plm_micro_input *micro)
{
  struct plm_ops *ops = step->ops;
  const struct plm_micro_layout *layout = &step->layout;
  const uint32_t length = step->parts.max_length, rows = (uint32_t)micro->rows;
  const struct plm_device_targets targets = plm_model_device_targets(step->parts.model);
  if (rows == 0) return; /* neither loss nor gradient */
  ops->copy(ops, plm_masks_device(step->parts.masks), step->micro + layout->masks,
            plm_masks_values(step->shape.model, micro->chunks, length) * sizeof(int32_t));
  ops->choose_targets(ops, targets.inputs, targets.positions, targets.labels, targets.weights,
                      step->micro + layout->tokens, (const void *)(step->micro + layout->ends),
                      (const void *)(step->micro + layout->draws), &step->parts.objective->masking,
                      micro->chunks, length, rows);
  plm_model_train(step->parts.model, micro->chunks, length, step->parts.masks, rows,
                  &step->parts.loss, &step->update->sums.loss);
}

/* From sums to an update, or to a skipped step. Order: model.md, "Order of a step". */
static void apply(struct plm_step *step)
{
  struct plm_ops *ops = step->ops;
  ops->sum_squares(ops, &step->update->sums.squares, plm_model_gradient_arena(step->parts.model),
                   plm_model_arena_elements(step->parts.model));
  ops->decide_update(ops, step->update);
  plm_optimizer_update(step->parts.optimizer, step->update);
}

static void begin(struct plm_step *step, const struct plm_step_input *input)
{
  const struct plm_config_trainer *trainer = step->parts.trainer;
  struct plm_update update = {0};
  uint64_t rows = 0, count = 0;
  for (uint32_t i = 0; i < input->micro_count; i++) {
    rows += input->micro[i].rows;
    count += input->micro[i].count;
  }
  update.plan.count = rows == 0 ? NAN : (double)count;
  update.plan.clip = plm_clip_plan(step->parts.clip, trainer->clip_norm,
                                   trainer->clip_auto_percentile, input->step);
  plm_optimizer_plan(step->parts.optimizer, input->step, &update.plan);
  step->flops = 0;
  step->ops->upload(step->ops, step->update, &update, sizeof update);
  plm_model_zero_gradients(step->parts.model);
}

plm_status plm_step_launch(struct plm_step *step, const struct plm_step_input *input,
                           plm_step_give_up *give_up, void *context, struct plm_error *error)
{
  const size_t bytes = step->layout.bytes;
  begin(step, input);
  for (uint32_t i = 0; i < input->micro_count; i++) {
    const struct plm_micro_input *micro = &input->micro[i];
    if (i > 0 && give_up != NULL && give_up(context, i, input->micro_count))
      return plm_error_set(error, PLM_INTERRUPTED, "step %llu was given up",
                           (unsigned long long)input->step + 1);
    step->ops->upload(step->ops, step->micro, (const char *)input->block + i * bytes, bytes);
    plm_masks_place(step->parts.masks, micro->chunks, step->parts.max_length, &micro->pairs);
    step->flops += plm_model_flops(step->parts.model, step->parts.masks, micro->real_tokens);
    accumulate(step, micro);
  }
  apply(step);
  return PLM_OK;
}

plm_status plm_step_finish(struct plm_step *step, const struct plm_step_input *input,
                           struct plm_step_result *result, struct plm_error *error)
{
  const struct plm_config_trainer *trainer = step->parts.trainer;
  struct plm_update update;
  *result = (struct plm_step_result){.window = input->window, .flops = step->flops};
  for (uint32_t i = 0; i < input->micro_count; i++) {
    const struct plm_micro_input *micro = &input->micro[i];
    result->count += micro->count;
    result->rows += micro->rows;
    result->real_tokens += micro->real_tokens;
    result->padded_tokens += (uint64_t)micro->chunks * step->parts.max_length;
  }
  step->ops->download(step->ops, &update, step->update, sizeof update);
  PLM_TRY(step->ops->synchronize(step->ops, error));
  result->loss = update.sums.loss / update.plan.count;
  result->grad_norm = sqrt(update.sums.squares) / update.plan.count;
  result->skipped = update.decision.skipped != 0;
  if (result->rows > 0)
    result->clip_norm =
        plm_clip_threshold(step->parts.clip, trainer->clip_norm, trainer->clip_auto_percentile,
                           input->step, result->grad_norm);
  if (!result->skipped)
    plm_optimizer_set_updates(step->parts.optimizer,
                              plm_optimizer_updates(step->parts.optimizer) + 1);
  return PLM_OK;
}
