/* The first block is computed by token where rows repeat: the outputs have the same bits as those
 * of all rows, the gradients are the same sums in another order, and fewer rows are multiplied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_trace.h"

enum { LENGTH = 128, MOST_CHUNKS = 8 };

struct scene {
  struct plm_model_config config;
  struct plm_freeze freeze;
  enum plm_recompute recompute;
  bool masked;
  struct case_batch placed;
};

static struct plm_model_config config_of(enum plm_architecture architecture)
{
  struct plm_model_config config = case_config(architecture, 4, LENGTH);
  if (config.intermediate_size > 0) config.intermediate_size = 64; /* gate and up: not 3 D */
  return config;
}

static void draw(struct scene *s)
{
  static const uint32_t lengths[] = {100, 27, 90, 60, 128, 11, 3, 80, 40, 0};
  static struct case_documents documents;
  case_documents_draw(&documents, lengths, s->config.vocab_size, 5);
  if (!s->masked) memcpy(documents.inputs, documents.ids, sizeof documents.inputs);
  case_batch_place(&s->placed, &documents, LENGTH, plm_architecture_group(&s->config), false);
  assert_in_range(s->placed.batch.chunks, 2, MOST_CHUNKS);
}

struct outcome {
  struct model_case c;
  float *hidden, *gradients; /* no gradients unless it is trained */
  double loss;
  int rows, trained_rows; /* of the product of q, k and v, and of its gradient, with the fewest */
};

/* The rows of the smallest product from width D to 3 D among the operators with this in their name.
 */
static int fewest_rows(struct plm_ops *ops, const char *operator_, int D)
{
  unsigned count;
  const struct ops_trace_row *rows = ops_trace_end(ops, &count);
  int fewest = 0;
  for (unsigned i = 0; i < count; i++) {
    int N, I, O;
    const char *shape = strchr(rows[i].name, ' ');
    if (strncmp(rows[i].name, "linear_", 7) != 0 || strstr(rows[i].name, operator_) == NULL)
      continue;
    if (sscanf(shape, " %d x %d x %d", &N, &I, &O) != 3 || I != D || O != 3 * D) continue;
    if (fewest == 0 || N < fewest) fewest = N;
  }
  return fewest;
}

static struct outcome run(struct scene *s, int precision, bool trains, bool shares)
{
  const struct plm_model_options options = {.max_chunks = MOST_CHUNKS,
                                            .training = trains,
                                            .recompute = s->recompute,
                                            .freeze = s->freeze};
  const int D = (int)s->config.hidden_size;
  struct outcome outcome = {.hidden = calloc((size_t)MOST_CHUNKS * LENGTH * (size_t)D, 4)};
  struct model_case *c = &outcome.c;
  assert_non_null(outcome.hidden);
  model_case_open(c, &s->config, &options, precision, 5);
  assert_true(c->ops->shares_rows);
  c->ops->shares_rows = shares;
  ops_trace_begin(c->ops);
  if (trains) outcome.gradients = model_case_gradients_of(c, &s->placed, &outcome.loss);
  outcome.trained_rows = fewest_rows(c->ops, "backward_weight", D);
  plm_model_attention_masks(c->model, &s->placed.batch, c->window, c->masks);
  ops_trace_begin(c->ops);
  assert_int_equal(plm_model_infer(c->model, &(struct plm_masked_batch){&s->placed.batch, c->masks},
                                   s->placed.inputs, NULL, 0, outcome.hidden, NULL, NULL),
                   PLM_OK);
  outcome.rows = fewest_rows(c->ops, "forward", D);
  return outcome;
}

static void compare_gradients(const struct outcome *by_token, const struct outcome *all)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(all->c.model, &count);
  const size_t trained = plm_model_trained_elements(all->c.model);
  for (size_t i = 0; i < count; i++) {
    if (table[i].offset >= trained) continue;
    const double off = case_relative_float(&table[i], by_token->gradients, all->gradients);
    if (!(off <= 1e-5)) fail_msg("the gradient of %s is off by %g", table[i].name, off);
  }
}

/* Runs both ways. `rows` are those that the first block multiplies; 0: all of them. */
static void compare(struct scene *s, int precision, bool trains, uint32_t rows)
{
  draw(s);
  struct outcome by_token = run(s, precision, trains, true), all = run(s, precision, trains, false);
  const int N = (int)s->placed.batch.chunks * LENGTH;
  assert_int_equal(all.rows, N);
  assert_int_equal(by_token.rows, rows == 0 ? N : (int)rows);
  assert_int_equal(by_token.trained_rows, trains ? by_token.rows : 0);
  assert_memory_equal(by_token.hidden, all.hidden,
                      (size_t)N * s->config.hidden_size * sizeof(float));
  assert_true(by_token.loss == all.loss);
  if (trains) compare_gradients(&by_token, &all);
  model_case_close(&by_token.c), model_case_close(&all.c);
  free(by_token.hidden), free(by_token.gradients);
  free(all.hidden), free(all.gradients);
  case_batch_free(&s->placed);
}

static void architectures_give_the_same(void **state)
{
  static const enum plm_architecture of[] = {PLM_TRANSFORMER, PLM_UNET, PLM_PATCH_UNET, PLM_ESM2,
                                             PLM_ESMC};
  (void)state;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (int kind = 0; kind < 4; kind++) { /* training in bf16 adds the gradients of all rows */
      struct scene s = {.config = config_of(of[i])};
      const bool trains = kind < 2, narrow = kind % 2 == 1;
      compare(&s, narrow ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32, trains,
              trains && narrow ? 0 : s.config.vocab_size);
    }
}

/* ESM-2 scales a document by how much of it is masked, so equal tokens may differ. */
static void masked_documents_have_rows_of_their_own(void **state)
{
  (void)state;
  struct scene s = {.config = config_of(PLM_ESM2), .masked = true};
  compare(&s, PLM_PRECISION_FP32, true, 0);
  s.config.token_dropout = false;
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
  s.config = config_of(PLM_UNET);
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
}

static void other_parts_are_kept(void **state)
{
  (void)state;
  struct scene s = {.config = config_of(PLM_ESM2)};
  s.config.emb_layer_norm_before = true;
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
  s = (struct scene){.config = config_of(PLM_ESM2), .freeze = {.embeddings = true}};
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
  s = (struct scene){.config = config_of(PLM_UNET), .recompute = PLM_RECOMPUTE_BLOCK};
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
  s = (struct scene){.config = config_of(PLM_ESM2), .recompute = PLM_RECOMPUTE_BLOCK};
  compare(&s, PLM_PRECISION_FP32, true, s.config.vocab_size);
  s = (struct scene){.config = config_of(PLM_ESM2)}; /* adapters read each row */
  s.config.lora = (struct plm_lora_config){.rank = 2, .alpha = 2, .targets = 1U << PLM_LORA_Q};
  compare(&s, PLM_PRECISION_FP32, true, 0);
}

/* Room for fewer rows has no rows of tokens, and room for more has them again. */
static void room_may_change(void **state)
{
  (void)state;
  struct scene s = {.config = config_of(PLM_ESM2)};
  const struct plm_model_options options = {.max_chunks = MOST_CHUNKS};
  const uint32_t chunks[] = {2, 1, 2};
  struct model_case c;
  draw(&s);
  model_case_open(&c, &s.config, &options, PLM_PRECISION_FP32, 5);
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
    float hidden[2 * LENGTH * 32];
    struct case_batch part;
    case_batch_part(&part, &s.placed, 0, chunks[i]);
    assert_int_equal(plm_model_make_room(c.model, chunks[i], LENGTH, NULL), PLM_OK);
    plm_model_attention_masks(c.model, &part.batch, c.window, c.masks);
    ops_trace_begin(c.ops);
    assert_int_equal(plm_model_infer(c.model, &(struct plm_masked_batch){&part.batch, c.masks},
                                     part.inputs, NULL, 0, hidden, NULL, NULL),
                     PLM_OK);
    assert_int_equal(fewest_rows(c.ops, "forward", (int)s.config.hidden_size),
                     chunks[i] == 1 ? LENGTH : (int)s.config.vocab_size);
    case_batch_free(&part);
  }
  model_case_close(&c);
  case_batch_free(&s.placed);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(architectures_give_the_same),
      cmocka_unit_test(masked_documents_have_rows_of_their_own),
      cmocka_unit_test(other_parts_are_kept),
      cmocka_unit_test(room_may_change),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
