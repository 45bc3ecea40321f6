/* One step of training. */
#include "trainer/step/step.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/optimizer/share_sums.h"
#include "trainer/step/replays.h"

enum { SLOTS = 2 }; /* inputs on the device, one of the running step and one of the next */
static const uint64_t nothing_staged = UINT64_MAX;

/* Kinds of operations. With ranks, the last micro-batch of a step and the update run in segments,
 * between which gradients and weights are exchanged. */
enum { ACCUMULATE, ACCUMULATE_IN_SEGMENTS, UPDATE };

struct plm_step {
  struct plm_step_parts parts;
  struct plm_ops *ops;
  struct plm_step_shape shape;
  struct plm_micro_layout layout;
  char *slots[SLOTS];        /* device: inputs of whole steps */
  uint64_t staged[SLOTS];    /* step whose input is in the slot */
  char *micro;               /* device: block of the running micro-batch, for recorded operators */
  struct plm_update *update; /* device */
  struct plm_update *host;   /* copied to update and back */
  struct plm_share_sums *sums;
  /* NULL if this rank is the only one: a step is then not cut where messages could begin, so that
   * the last micro-batch and the update are one recording each, without a wait for the device
   * between them.
   */
  struct plm_exchange *exchange;
  struct plm_exchange_work work; /* of the last step, if there is an exchange */
  struct plm_array *gradients;   /* of each parameter */
  size_t parameters;
  double *squares; /* device: squared norm of each parameter's gradient */
  double flops;    /* of the running step */
  uint64_t
      launched; /* the number, from 1, of the step that is launched and not finished; 0: none */
  struct plm_replays *replays;
  struct plm_layer_norms *norms;   /* NULL: never measured */
  struct plm_chunk_losses *chunks; /* NULL: not wanted */
};

struct plm_step_shape plm_step_shape(const struct plm_step *step)
{
  return step->shape;
}

void plm_step_memory(const struct plm_step_shape *shape, uint64_t *device, uint64_t *host)
{
  *device = plm_step_micro_layout(shape).bytes + SLOTS * plm_step_input_bytes(shape) +
            sizeof(struct plm_update);
  *host = plm_step_input_bytes(shape) + plm_step_input_description_bytes(shape);
}

static plm_status list_gradients(struct plm_step *step, struct plm_error *error)
{
  const struct plm_parameter *table = plm_model_table(step->parts.model, &step->parameters);
  const float *arena = plm_model_gradient_arena(step->parts.model);
  step->gradients = calloc(step->parameters, sizeof *step->gradients);
  if (step->gradients == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the list of gradients");
  for (size_t i = 0; i < step->parameters; i++)
    if (!table[i].frozen)
      step->gradients[i] = (struct plm_array){.x = arena + table[i].offset, .n = table[i].count};
  return step->ops->allocate(step->ops, step->parameters * sizeof *step->squares,
                             (void **)&step->squares, error);
}

static plm_status step_allocate(struct plm_step *step, struct plm_error *error)
{
  struct plm_ops *ops = step->ops;
  for (int i = 0; i < SLOTS; i++) {
    PLM_TRY(
        ops->allocate(ops, plm_step_input_bytes(&step->shape), (void **)&step->slots[i], error));
    step->staged[i] = nothing_staged;
  }
  PLM_TRY(ops->allocate(ops, step->layout.bytes, (void **)&step->micro, error));
  PLM_TRY(ops->allocate(ops, sizeof *step->update, (void **)&step->update, error));
  PLM_TRY(ops->allocate_host(ops, sizeof *step->host, (void **)&step->host, error));
  step->replays = plm_replays_open(ops);
  struct plm_model *model = step->parts.model;
  PLM_TRY(plm_share_sums_open(ops, step->shape.shares, plm_model_gradient_arena(model),
                              plm_model_trained_elements(model), &step->update->sums.loss,
                              &step->sums, error));
  if (!step->parts.ranks->single)
    PLM_TRY(plm_exchange_open(step->parts.ranks, model, step->parts.owners, step->shape.shares,
                              step->parts.trainer->compress, step->parts.profile, &step->exchange,
                              error));
  if (step->parts.norms_every > 0)
    PLM_TRY(
        plm_layer_norms_open(model, step->parts.ranks, step->parts.owners, &step->norms, error));
  if (step->parts.chunk_losses)
    PLM_TRY(plm_chunk_losses_open(ops, step->parts.ranks, step->shape.step_chunks,
                                  step->shape.micro_chunks, &step->chunks, error));
  return list_gradients(step, error);
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
                                        .labels = parts->labels,
                                        .step_chunks = parts->step_chunks,
                                        .micro_chunks = parts->micro_chunks,
                                        .max_length = parts->max_length,
                                        .shares = parts->shares,
                                        .first_chunk = parts->ranks->rank * parts->step_chunks};
  step->layout = plm_step_micro_layout(&step->shape);
  const plm_status status = step_allocate(step, error);
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
  plm_replays_close(step->replays);
  plm_layer_norms_close(step->norms);
  plm_chunk_losses_close(step->chunks);
  plm_exchange_close(step->exchange);
  plm_share_sums_close(step->sums);
  free(step->gradients);
  if (step->squares != NULL) step->ops->release(step->ops, step->squares);
  if (step->host != NULL) step->ops->release_host(step->ops, step->host);
  for (int i = 0; i < SLOTS; i++)
    if (step->slots[i] != NULL) step->ops->release(step->ops, step->slots[i]);
  if (step->update != NULL) step->ops->release(step->ops, step->update);
  if (step->micro != NULL) step->ops->release(step->ops, step->micro);
  free(step);
}

/* ---- recorded operations ------------------------------------------------------------------- */

/* Takes the micro-batch in step->micro as the model's input. */
static void choose_targets(struct plm_step *step, struct plm_replay_key key)
{
  struct plm_ops *ops = step->ops;
  const struct plm_micro_layout *layout = &step->layout;
  const uint32_t length = step->parts.max_length;
  const struct plm_device_targets targets = plm_model_device_targets(step->parts.model);
  ops->copy(ops, plm_masks_device(step->parts.masks), step->micro + layout->masks,
            plm_masks_values(step->shape.model, key.chunks, length) * sizeof(int32_t));
  const struct plm_target_tokens from = {.tokens = step->micro + layout->tokens,
                                         .ends = (const void *)(step->micro + layout->ends),
                                         .draws = (const void *)(step->micro + layout->draws),
                                         .B = key.chunks,
                                         .L = length};
  const struct plm_target_rows to = {.inputs = targets.inputs,
                                     .positions = targets.positions,
                                     .labels = targets.labels,
                                     .weights = targets.weights,
                                     .capacity = key.rows};
  ops->choose_targets(ops, &to, &from, &step->parts.objective->masking);
  const size_t keys = plm_model_adapter_keys(step->shape.model, key.chunks, length);
  if (keys > 0)
    ops->copy(ops, plm_model_device_adapter_keys(step->parts.model),
              step->micro + layout->adapter_keys, keys * sizeof(uint64_t));
}

/* The same for a model that predicts labels: nothing is masked, and the rows are those of labels.
 */
static void take_labels(struct plm_step *step, struct plm_replay_key key)
{
  choose_targets(step, (struct plm_replay_key){.chunks = key.chunks});
  plm_label_rows_place(step->parts.model, &step->layout.of_labels,
                       step->micro + step->layout.labels, key.rows);
}

/* Adds a segment of the micro-batch to the gradients, and its loss to the sums. */
static void accumulate(struct plm_step *step, struct plm_replay_key key, uint32_t segment)
{
  const struct plm_train_pass pass = {
      .chunks = key.chunks,
      .length = step->parts.max_length,
      .rows = key.rows,
      .masks = step->parts.masks,
      .loss = &step->parts.loss,
      .labels = step->parts.labels != NULL ? &step->parts.label_options : NULL,
      .dropout_seed = step->shape.model->lora.dropout > 0 ? &step->parts.seed : NULL,
      .loss_sum = &step->update->sums.loss,
      .hit_sum = &step->update->sums.hits,
      .chunk_losses = step->chunks == NULL ? NULL : plm_chunk_losses_micro(step->chunks)};
  if (segment == 0 && step->parts.labels != NULL)
    take_labels(step, key);
  else if (segment == 0)
    choose_targets(step, key);
  plm_model_train(step->parts.model, &pass,
                  key.kind == ACCUMULATE ? plm_model_whole_pass(step->parts.model)
                                         : plm_exchange_backward_part(step->exchange, segment));
}

/* Updates the weights from the sums, unless the device decides to skip the step. */
static void step_update(struct plm_step *step)
{
  struct plm_ops *ops = step->ops;
  ops->sum_squares(ops, step->squares, step->gradients, step->parameters);
  ops->sum_in_order(ops, &step->update->sums.squares, step->squares, step->parameters);
  ops->decide_update(ops, step->update);
  plm_optimizer_update(step->parts.optimizer, step->update,
                       plm_optimizer_all(step->parts.optimizer));
  plm_model_weights_changed(step->parts.model);
}

/* The same with ranks: the norm has been added up before, and the weights of other ranks follow. */
static void update_segment(struct plm_step *step, uint32_t segment)
{
  if (segment == 0) step->ops->decide_update(step->ops, step->update);
  plm_optimizer_update(step->parts.optimizer, step->update,
                       plm_exchange_update_part(step->exchange, segment));
}

static void step_call(void *context, struct plm_replay_key key, uint32_t segment)
{
  struct plm_step *step = context;
  if (key.kind != UPDATE)
    accumulate(step, key, segment);
  else if (step->exchange == NULL)
    step_update(step);
  else
    update_segment(step, segment);
}

/* ---- a step -------------------------------------------------------------------------------- */

/* Copies the input to its slot with `copy`, unless it is there. Returns whether it was copied. */
static bool stage(struct plm_step *step, const struct plm_step_input *input,
                  void (*copy)(struct plm_ops *, void *, const void *, size_t))
{
  const int slot = (int)(input->step % SLOTS);
  if (step->staged[slot] == input->step) return false;
  copy(step->ops, step->slots[slot], input->block, input->micro_count * step->layout.bytes);
  step->staged[slot] = input->step;
  return true;
}

/* The computation is made to wait for this copy at once. If it did so when the step begins, it
 * would also wait for the copies of a checkpoint, which come after this one. */
void plm_step_stage(struct plm_step *step, const struct plm_step_input *input)
{
  if (stage(step, input, step->ops->upload_beside)) step->ops->compute_follows(step->ops);
}

static void step_begin(struct plm_step *step, const struct plm_step_input *input)
{
  const struct plm_config_trainer *trainer = step->parts.trainer;
  *step->host = (struct plm_update){0};
  struct plm_update_inputs *inputs = &step->host->inputs;
  inputs->count = input->totals.rows == 0 ? NAN : (double)input->totals.count;
  inputs->clip = plm_clip_prepare(step->parts.clip, trainer->clip_norm,
                                  trainer->clip_auto_percentile, input->step);
  plm_optimizer_prepare(step->parts.optimizer, input->step, inputs);
  step->flops = 0;
  /* these copies are not made beside, where they would come after those of a checkpoint */
  stage(step, input, step->ops->upload);
  PLM_ASSERT(step->staged[input->step % SLOTS] == input->step);
  step->ops->upload(step->ops, step->update, step->host, sizeof *step->host);
  plm_model_zero_gradients(step->parts.model);
  if (step->chunks != NULL) plm_chunk_losses_begin(step->chunks);
}

/* Copies micro-batch i to where operations read it, and returns the key of its operation. */
static struct plm_replay_key place_micro(struct plm_step *step, const struct plm_step_input *input,
                                         uint32_t i)
{
  const struct plm_micro_input *micro = &input->micro[i];
  const uint32_t length = step->parts.max_length;
  PLM_ASSERT(i < input->micro_count && step->staged[input->step % SLOTS] == input->step);
  plm_masks_place(step->parts.masks, micro->chunks, length, &micro->pairs);
  step->flops += plm_model_flops(step->parts.model, step->parts.masks, micro->real_tokens);
  step->ops->copy(step->ops, step->micro, step->slots[input->step % SLOTS] + i * step->layout.bytes,
                  step->layout.bytes);
  const uint64_t positions = (uint64_t)micro->chunks * length, rows = micro->totals.rows;
  return (struct plm_replay_key){
      .chunks = micro->chunks,
      .rows = step->parts.labels != NULL
                  ? plm_model_label_rows(step->ops, step->shape.model, positions, rows)
                  : plm_model_rows(step->ops, positions, rows)};
}

/* After the launch of a micro-batch with labels. */
static void keep_losses(struct plm_step *step, const struct plm_micro_input *micro)
{
  if (step->chunks != NULL) plm_chunk_losses_keep(step->chunks, micro);
}

/* A part of the step, since begun_ns, for the profile. */
static void tell_part(struct plm_step *step, const char *what, uint32_t number, uint64_t begun_ns)
{
  plm_profile_add(step->parts.profile, PLM_TRACK_PARTS, PLM_SPAN_PART, what, number, begun_ns);
}

static void run_micro(struct plm_step *step, const struct plm_step_input *input, uint32_t i)
{
  const uint64_t begun_ns = plm_profile_clock(step->parts.profile);
  struct plm_replay_key key = place_micro(step, input, i);
  if (key.rows == 0) return; /* it adds neither loss nor gradient */
  key.kind = ACCUMULATE;
  plm_replays_run(step->replays, key, 0, 1, step_call, step);
  keep_losses(step, &input->micro[i]);
  tell_part(step, "micro-batch", i, begun_ns);
}

/* Completes the sums over this rank's shares for the gradients that this part of the backward pass
 * has made final. */
static void finish_shares(struct plm_step *step, struct plm_backward_part part, bool is_first)
{
  const struct plm_parameter *table = plm_model_table(step->parts.model, &step->parameters);
  size_t first = 0; /* parameter that a run of final ones begins with */
  for (size_t i = 0; i <= step->parameters; i++) {
    if (i < step->parameters && !table[i].frozen && table[i].final_at >= part.first &&
        (is_first || table[i].final_at < part.end))
      continue;
    if (i > first)
      plm_share_sums_finish(step->sums, table[first].offset,
                            table[i - 1].offset + table[i - 1].count - table[first].offset);
    first = i + 1;
  }
}

/* The last micro-batch of a step with ranks: the exchange of gradients begins under it. */
static plm_status run_last(struct plm_step *step, const struct plm_step_input *input,
                           struct plm_error *error)
{
  const uint32_t segments = plm_exchange_backward_parts(step->exchange);
  struct plm_replay_key key = place_micro(step, input, input->micro_count - 1);
  key.kind = ACCUMULATE_IN_SEGMENTS;
  for (uint32_t segment = 0; segment < segments; segment++) {
    const uint64_t begun_ns = plm_profile_clock(step->parts.profile);
    if (key.rows > 0) plm_replays_run(step->replays, key, segment, segments, step_call, step);
    tell_part(step, "backward", segment, begun_ns);
    finish_shares(step, plm_exchange_backward_part(step->exchange, segment), segment == 0);
    PLM_TRY(plm_exchange_gradients(step->exchange, segment, error));
  }
  if (key.rows > 0) keep_losses(step, &input->micro[input->micro_count - 1]);
  return PLM_OK;
}

/* Asks before a micro-batch, which may mean to wait for other ranks. */
static plm_status step_ask(struct plm_step *step, plm_step_go_on *go_on, void *context, uint32_t i,
                           uint32_t count, struct plm_error *error)
{
  if (i == 0 || go_on == NULL) return PLM_OK;
  if (step->exchange != NULL) plm_exchange_mark(step->exchange, PLM_COMPUTE_PAUSES);
  PLM_TRY(go_on(context, i, count, error));
  if (step->exchange != NULL) plm_exchange_mark(step->exchange, PLM_COMPUTE_RESUMES);
  return PLM_OK;
}

/* Whether norms by layer are measured in a step (from 0). */
static bool measures_norms(const struct plm_step *step, uint64_t s)
{
  return step->norms != NULL && (s + 1) % step->parts.norms_every == 0;
}

/* The update if there are other ranks. */
static plm_status update_together(struct plm_step *step, uint64_t s, struct plm_error *error)
{
  struct plm_exchange_work *work = &step->work;
  const struct plm_replay_key key = {.kind = UPDATE};
  const uint32_t segments = plm_exchange_update_parts(step->exchange);
  PLM_TRY(step->ops->synchronize(step->ops, error));
  *work = (struct plm_exchange_work){.flops = step->flops,
                                     .compute_s = plm_exchange_computed(step->exchange)};
  PLM_TRY(plm_exchange_finish_gradients(step->exchange, error));
  PLM_TRY(plm_exchange_sums(step->exchange, plm_share_sums_losses(step->sums), &step->update->sums,
                            work, error));
  step->flops = work->flops;
  if (measures_norms(step, s)) plm_layer_norms_before(step->norms);
  for (uint32_t segment = 0; segment < segments; segment++) {
    const uint64_t begun_ns = plm_profile_clock(step->parts.profile);
    plm_replays_run(step->replays, key, segment, segments, step_call, step);
    tell_part(step, "update", segment, begun_ns);
    PLM_TRY(plm_exchange_weights(step->exchange, error));
  }
  PLM_TRY(plm_exchange_finish_weights(step->exchange, error));
  plm_model_weights_changed(step->parts.model);
  if (measures_norms(step, s)) plm_layer_norms_after(step->norms);
  return PLM_OK;
}

plm_status plm_step_rehearse(struct plm_step *step, const struct plm_step_input *input,
                             struct plm_error *error)
{
  struct plm_ops *ops = step->ops;
  const double none = NAN; /* skips the update */
  step_begin(step, input);
  for (uint32_t i = 0; i < input->micro_count; i++) {
    const struct plm_replay_key key = place_micro(step, input, i);
    if (key.rows > 0) accumulate(step, key, 0);
  }
  ops->upload(ops, &step->update->inputs.count, &none, sizeof none);
  step_update(step);
  return ops->synchronize(ops, error);
}

plm_status plm_step_launch(struct plm_step *step, const struct plm_step_input *input,
                           plm_step_go_on *go_on, void *context, struct plm_error *error)
{
  const bool together = step->exchange != NULL;
  uint32_t share = 0;
  PLM_ASSERT(step->launched == 0 && input->micro_count > 0);
  step->launched = input->step + 1;
  if (together) plm_exchange_mark(step->exchange, PLM_COMPUTE_BEGINS);
  step_begin(step, input);
  for (uint32_t i = 0; i < input->micro_count; i++) {
    PLM_TRY(step_ask(step, go_on, context, i, input->micro_count, error));
    PLM_ASSERT(share <= input->micro[i].share); /* shares come in order */
    while (share < input->micro[i].share) plm_share_sums_add(step->sums, share++);
    if (together && i + 1 == input->micro_count)
      PLM_TRY(run_last(step, input, error));
    else
      run_micro(step, input, i);
  }
  if (!together)
    plm_share_sums_finish(step->sums, 0, plm_model_trained_elements(step->parts.model));
  plm_share_sums_finish_loss(step->sums);
  step->ops->compute_follows(step->ops); /* copies of the weights to a snapshot may be running */
  if (together) return update_together(step, input->step, error);
  if (measures_norms(step, input->step)) plm_layer_norms_before(step->norms);
  const uint64_t begun_ns = plm_profile_clock(step->parts.profile);
  plm_replays_run(step->replays, (struct plm_replay_key){.kind = UPDATE}, 0, 1, step_call, step);
  tell_part(step, "update", 0, begun_ns);
  if (measures_norms(step, input->step)) plm_layer_norms_after(step->norms);
  return PLM_OK;
}

/* Whether each row has one right answer. */
static bool counts_hits(const struct plm_step *step)
{
  return step->parts.labels == NULL || step->shape.model->head.loss == PLM_LOSS_CLASS;
}

plm_status plm_step_finish(struct plm_step *step, const struct plm_step_input *input,
                           struct plm_step_result *result, struct plm_error *error)
{
  const struct plm_config_trainer *trainer = step->parts.trainer;
  PLM_ASSERT(step->launched == input->step + 1);
  step->launched = 0;
  *result = (struct plm_step_result){
      .totals = input->totals,
      .window = input->window,
      .flops = step->flops,
      .slowest_rank = step->exchange == NULL ? -1 : (int64_t)step->work.slowest_rank};
  step->ops->download(step->ops, step->host, step->update, sizeof *step->host);
  PLM_TRY(step->ops->synchronize(step->ops, error));
  const struct plm_update update = *step->host;
  result->loss = update.sums.loss / update.inputs.count;
  result->grad_norm = sqrt(update.sums.squares) / update.inputs.count;
  result->accuracy = input->totals.rows == 0 || !counts_hits(step)
                         ? NAN
                         : update.sums.hits / (double)input->totals.rows;
  result->skipped = update.decision.skipped != 0;
  if (result->totals.rows > 0)
    result->clip_norm =
        plm_clip_threshold(step->parts.clip, trainer->clip_norm, trainer->clip_auto_percentile,
                           input->step, result->grad_norm);
  if (!result->skipped)
    plm_optimizer_set_updates(step->parts.optimizer,
                              plm_optimizer_updates(step->parts.optimizer) + 1);
  if (step->chunks != NULL)
    PLM_TRY(plm_chunk_losses_finish(step->chunks, input->chunks, &result->chunks, error));
  if (!measures_norms(step, input->step)) return PLM_OK;
  PLM_TRY(plm_layer_norms_finish(step->norms, update.inputs.count, error));
  result->norms = step->norms;
  return PLM_OK;
}
