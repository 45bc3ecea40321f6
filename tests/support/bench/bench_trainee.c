/* Opens the models of the benchmarks and runs the parts of their steps. */
#include "tests/support/bench/bench_trainee.h"

#include <stdlib.h>

#include "common/model/architecture.h"
#include "tests/support/harness/must.h"

#define QV (1U << PLM_LORA_Q | 1U << PLM_LORA_V)
#define ALL (QV | 1U << PLM_LORA_K | 1U << PLM_LORA_O | 1U << PLM_LORA_UP | 1U << PLM_LORA_DOWN)

/* A patch_unet has the same width as the U-Net before it. */
const struct bench_subject bench_subjects[BENCH_SUBJECTS] = {
    {"demo", PLM_PATCH_UNET, 128, 4, 6, 1, 2.0, 512, 4096, 4096, 0, false, 0},
    {"6x384", PLM_UNET, 384, 6, 6, 0, 8.0 / 3.0, 1024, 4096, 16384, 0, false, 0},
    {"6x384-patch", PLM_PATCH_UNET, 384, 6, 6, 1, 2.0, 1024, 4096, 16384, 0, false, 0},
    {"24x768", PLM_UNET, 768, 6, 24, 0, 8.0 / 3.0, 1024, 2048, 65536, 0, false, 0},
    {"16x768-patch", PLM_PATCH_UNET, 768, 12, 12, 4, 2.0, 1024, 2048, 65536, 0, false, 0},
    {"35M-full", PLM_ESM2, 480, 20, 12, 0, 0, 1024, 4096, 16384, 1920, true, 0},
    {"35M-lora-qv", PLM_ESM2, 480, 20, 12, 0, 0, 1024, 4096, 16384, 1920, true, QV},
    {"35M-lora-all", PLM_ESM2, 480, 20, 12, 0, 0, 1024, 4096, 16384, 1920, true, ALL},
};

static struct plm_model_config model_config(const struct bench_subject *subject)
{
  struct plm_model_config model = {.architecture = subject->architecture,
                                   .hidden_size = subject->width,
                                   .num_attention_heads = subject->heads,
                                   .num_hidden_layers = subject->layers,
                                   .num_unet_layers = subject->layers,
                                   .num_extra_layers = subject->extra,
                                   .expansion_ratio = subject->ratio,
                                   .soft_logit_cap = 16.0,
                                   .pattern = {PLM_ATTENTION_DOCUMENT},
                                   .pattern_count = 1,
                                   .window_start = subject->max_length,
                                   .window_end = subject->max_length,
                                   .max_length = subject->max_length,
                                   .vocab_size = 33};
  const struct plm_architecture_rules *rules = plm_architecture_rules(subject->architecture);
  if (!rules->published) return model;
  model.soft_logit_cap = 0;
  model.num_unet_layers = 0;
  model.intermediate_size = subject->intermediate;
  model.layer_norm_eps = rules->layer_norm_eps;
  model.tie_embeddings = rules->ties_embeddings;
  model.token_dropout = rules->token_dropout;
  model.max_positions = rules->max_positions;
  if (subject->fine_tuned)
    model.head = (struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES,
                                          .loss = PLM_LOSS_SQUARES,
                                          .pooling = PLM_HEAD_CLS,
                                          .hidden = subject->width,
                                          .outputs = 1};
  if (subject->targets != 0)
    model.lora = (struct plm_lora_config){.rank = 8, .alpha = 16, .targets = subject->targets};
  return model;
}

static struct plm_config configuration(const struct bench_subject *subject)
{
  const bool adamw = subject->fine_tuned;
  const double masked = subject->fine_tuned ? 0 : 0.15;
  return (struct plm_config){
      .seed = 1,
      .data = {.max_length = subject->max_length, .window_groups = 64},
      .model = model_config(subject),
      .trainer = {.steps = 100,
                  .masking = {.mask_rate = masked, .starting_mask_rate = masked},
                  .freeze = {.base = subject->targets != 0},
                  .optimizer = {.name = adamw ? PLM_OPTIMIZER_ADAMW : PLM_OPTIMIZER_MUON,
                                .lr_hidden = 0.005,
                                .lr_embed = 0.01,
                                .lr_head = 0.01,
                                .lr_scalar = 0.01,
                                .momentum = 0.95,
                                .momentum_warmup_steps = 100,
                                .betas = {0.8, 0.95}},
                  .schedule = {.warmup_steps = 20, .cooldown_steps = 20}}};
}

/* The label of a document follows from its length, which the peer knows as well. */
static void label_documents(struct bench_trainee *t)
{
  const struct plm_batch *batch = &t->load.batch;
  const size_t places = (size_t)batch->chunks * batch->max_length;
  const uint32_t documents = batch->document_begin[batch->chunks];
  int32_t *inputs = must(malloc(places * sizeof *inputs));
  int32_t *begin = must(malloc(documents * sizeof *begin));
  t->values = must(malloc(documents * sizeof *t->values));
  for (size_t i = 0; i < places; i++) inputs[i] = ((const uint8_t *)batch->tokens)[i];
  for (uint32_t c = 0; c < batch->chunks; c++)
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++) {
      begin[d] = (int32_t)(c * batch->max_length + batch->documents[d].start);
      t->values[d] = (float)batch->documents[d].tokens / 512.0f - 1.0f;
    }
  t->labels = (struct plm_label_targets){
      .inputs = inputs, .rows = documents, .begin = begin, .values = t->values};
}

void bench_trainee_open(struct bench_trainee *t, const struct bench_subject *subject,
                        struct plm_ops *ops, const char *corpus, uint32_t chunks)
{
  struct plm_error error = {0};
  *t = (struct bench_trainee){.subject = subject, .config = configuration(subject), .ops = ops};
  const struct plm_model_options options = {
      .max_chunks = chunks, .training = true, .freeze = t->config.trainer.freeze};
  size_t count;
  must_work(bench_batch_open(corpus, &t->config, chunks, &t->load, &error), &error);
  if (subject->fine_tuned) label_documents(t);
  must_work(plm_model_open(&t->config.model, ops, &options, &t->model, &error), &error);
  must_work(plm_masks_open(&t->config.model, ops, chunks, &t->masks, &error), &error);
  must_work(plm_optimizer_open(&t->config.trainer, t->model, NULL, &t->optimizer, &error), &error);
  must_work(ops->allocate(ops, sizeof *t->update, (void **)&t->update, &error), &error);
  const struct plm_parameter *table = plm_model_table(t->model, &count);
  const size_t elements = plm_model_arena_elements(t->model);
  float *weights = must(malloc(elements * sizeof(float)));
  plm_model_initialise(table, count, 1, weights);
  ops->upload(ops, plm_model_parameter_arena(t->model), weights, elements * sizeof(float));
  free(weights);
  plm_model_weights_changed(t->model);
}

void bench_trainee_close(struct bench_trainee *t)
{
  t->ops->release(t->ops, t->update);
  plm_optimizer_close(t->optimizer);
  plm_masks_close(t->masks);
  plm_model_close(t->model);
  bench_batch_close(&t->load);
  free((void *)(uintptr_t)t->labels.inputs);
  free((void *)(uintptr_t)t->labels.begin);
  free(t->values);
}

void bench_trainee_masks(struct bench_trainee *t)
{
  plm_model_attention_masks(t->model, &t->load.batch, t->load.batch.max_length, t->masks);
}

void bench_trainee_gradients(struct bench_trainee *t)
{
  const struct plm_masked_batch input = {&t->load.batch, t->masks};
  struct plm_loss_result result;
  struct plm_error error = {0};
  if (t->subject->fine_tuned) {
    const struct plm_label_options options = {0};
    must_work(plm_model_label_gradients(t->model, &input, &t->labels, &options, 1.0f, &result, NULL,
                                        &error),
              &error);
    return;
  }
  const struct plm_loss_options loss = {.soft_cap = (float)t->config.model.soft_logit_cap};
  must_work(
      plm_model_gradients(t->model, &input, &t->load.targets, &loss, 1.0f, &result, NULL, &error),
      &error);
}

void bench_trainee_update(struct bench_trainee *t)
{
  struct plm_error error = {0};
  const double count = t->subject->fine_tuned ? t->labels.rows : t->load.targets.rows;
  struct plm_update host = {.inputs = {.count = count, .clip = {.fixed = 1}}};
  plm_optimizer_prepare(t->optimizer, t->updates, &host.inputs);
  plm_optimizer_set_updates(t->optimizer, ++t->updates);
  t->ops->upload(t->ops, t->update, &host, sizeof host);
  const struct plm_array gradient = {.x = plm_model_gradient_arena(t->model),
                                     .n = plm_model_trained_elements(t->model)};
  t->ops->sum_squares(t->ops, &t->update->sums.squares, &gradient, 1);
  t->ops->decide_update(t->ops, t->update);
  plm_optimizer_update(t->optimizer, t->update, plm_optimizer_all(t->optimizer));
  plm_model_weights_changed(t->model);
  plm_model_zero_gradients(t->model);
  must_work(t->ops->synchronize(t->ops, &error), &error);
}
