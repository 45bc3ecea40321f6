/* A training pass computes no gradient that nobody needs: none of the weights of frozen products,
 * and none of the inputs of the first layer that is trained or of what is before it. */
#include <stdio.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_trace.h"

enum { CHUNKS = 2, BLOCKS = 3, D = 64, F = 160, RANK = 3 };

static const struct ops_trace_row *rows;
static unsigned row_count;

/* The calls of an operator for any number of rows. I, O: its widths; 0: any. */
static int calls_of(const char *operator_, int I, int O)
{
  const size_t length = strlen(operator_);
  int calls = 0;
  for (unsigned r = 0; r < row_count; r++) {
    long long n, i, o;
    if (strncmp(rows[r].name, operator_, length) != 0) continue;
    const char *shape = rows[r].name + length;
    if (*shape != '\0' && *shape != ' ') continue;
    if (I == 0 || (sscanf(shape, " %lld x %lld x %lld", &n, &i, &o) == 3 && i == I && o == O))
      calls += (int)rows[r].calls;
  }
  return calls;
}

#define assert_calls(count, operator_, I, O) assert_int_equal(calls_of(operator_, I, O), count)

static struct plm_model_config config_of(uint32_t targets)
{
  struct plm_model_config config = model_case_small(PLM_ESM2);
  const struct plm_architecture_rules *rules = plm_architecture_rules(PLM_ESM2);
  config.num_hidden_layers = BLOCKS;
  config.soft_logit_cap = 0;
  config.expansion_ratio = 0;
  config.intermediate_size = F;
  config.layer_norm_eps = rules->layer_norm_eps;
  config.tie_embeddings = rules->ties_embeddings;
  config.token_dropout = rules->token_dropout;
  config.max_positions = rules->max_positions;
  config.lora = (struct plm_lora_config){.rank = RANK, .alpha = RANK, .targets = targets};
  if (targets == 0) config.lora = (struct plm_lora_config){0};
  return config;
}

/* Traces a training pass. */
static void trace_pass(struct model_case *c, uint32_t targets, struct plm_freeze freeze)
{
  static const uint32_t lengths[] = {60, 30, 90, 20, 0};
  const struct plm_model_config config = config_of(targets);
  const struct plm_model_options options = {
      .max_chunks = CHUNKS, .training = true, .freeze = freeze};
  struct case_documents documents;
  struct case_batch placed;
  model_case_open(c, &config, &options, PLM_PRECISION_FP32, 5);
  case_documents_draw(&documents, lengths, config.vocab_size, 3);
  case_batch_place(&placed, &documents, config.max_length, 1, false);
  ops_trace_begin(c->ops);
  (void)model_case_step(c, &placed, 1);
  rows = ops_trace_end(c->ops, &row_count);
  case_batch_free(&placed);
}

static void everything_is_trained(void **state)
{
  (void)state;
  struct model_case c;
  trace_pass(&c, 0, (struct plm_freeze){0});
  assert_calls(BLOCKS, "linear_bias_backward_weight", D, 3 * D);
  assert_calls(BLOCKS + 1, "linear_bias_backward_weight", D, D); /* also the head's */
  assert_calls(BLOCKS, "linear_bias_backward_weight", D, F);
  assert_calls(BLOCKS, "linear_bias_backward_weight", F, D);
  assert_calls(BLOCKS, "linear_backward_input", D, 3 * D);
  assert_calls(BLOCKS, "linear_backward_input", D, F);
  assert_calls(4 * BLOCKS + 1, "linear_bias_backward_weight", 0, 0);
  assert_calls(3 * BLOCKS + 1, "linear_backward_input", 0, 0);
  assert_calls(1, "token_mean_backward", 0, 0);
  model_case_close(&c);
}

/* Only A and B have gradients of weights, and block 0 needs none of what q, k and v read. */
static void adapters_of_q_and_v(void **state)
{
  (void)state;
  struct model_case c;
  trace_pass(&c, 1U << PLM_LORA_Q | 1U << PLM_LORA_V, (struct plm_freeze){.base = true});
  assert_calls(2 * BLOCKS, "linear_backward_weight", D, RANK);
  assert_calls(2 * BLOCKS, "linear_backward_weight", RANK, D);
  assert_calls(4 * BLOCKS, "linear_backward_weight", 0, 0);
  assert_calls(BLOCKS - 1, "linear_backward_input", D, 3 * D);
  assert_calls(2 * (BLOCKS - 1), "linear_backward_input", D, RANK);
  assert_calls(2 * BLOCKS, "linear_backward_input", RANK, D);
  assert_calls(BLOCKS, "linear_backward_input", D, F);
  assert_calls(BLOCKS, "linear_gelu_backward_input", F, D);
  assert_calls(BLOCKS, "attention_backward", 0, 0);
  assert_calls(2 * BLOCKS + 1, "layer_norm_backward", 0, 0);
  assert_calls(0, "linear_bias_backward_weight", 0, 0);
  assert_calls(0, "token_mean_backward", 0, 0);
  model_case_close(&c);
}

/* Nothing before the target in block 0 has a backward pass. */
static void adapters_of_one_product(void **state)
{
  static const struct {
    enum plm_lora_target target;
    int attention, output, up, norms;
  } cases[] = {{PLM_LORA_K, BLOCKS, BLOCKS, BLOCKS, 2 * BLOCKS + 1},
               {PLM_LORA_O, BLOCKS - 1, BLOCKS - 1, BLOCKS, 2 * BLOCKS + 1},
               {PLM_LORA_UP, BLOCKS - 1, BLOCKS - 1, BLOCKS - 1, 2 * BLOCKS},
               {PLM_LORA_DOWN, BLOCKS - 1, BLOCKS - 1, BLOCKS - 1, 2 * BLOCKS}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct model_case c;
    trace_pass(&c, 1U << cases[i].target, (struct plm_freeze){.base = true});
    assert_calls(2 * BLOCKS, "linear_backward_weight", 0, 0);
    assert_calls(BLOCKS - 1, "linear_backward_input", D, 3 * D);
    assert_calls(cases[i].attention, "attention_backward", 0, 0);
    assert_calls(cases[i].output + 1, "linear_backward_input", D, D); /* and the head's */
    assert_calls(cases[i].up, "linear_backward_input", D, F);
    assert_calls(cases[i].norms, "layer_norm_backward", 0, 0);
    const bool down = cases[i].target == PLM_LORA_DOWN;
    assert_calls(down ? BLOCKS - 1 : 0, "linear_backward_input", F, D);
    assert_calls(down ? 0 : BLOCKS, "linear_gelu_backward_input", F, D);
    model_case_close(&c);
  }
}

/* Frozen embeddings and blocks have no backward pass, and the last of them has no gradient. */
static void blocks_are_frozen(void **state)
{
  (void)state;
  struct model_case c;
  trace_pass(&c, 0, (struct plm_freeze){.embeddings = true, .blocks = 1});
  assert_calls(4 * (BLOCKS - 1) + 1, "linear_bias_backward_weight", 0, 0);
  assert_calls(3 * (BLOCKS - 1) + 1, "linear_backward_input", 0, 0);
  assert_calls(BLOCKS - 1, "attention_backward", 0, 0);
  assert_calls(0, "token_mean_backward", 0, 0);
  model_case_close(&c);
  trace_pass(&c, 0, (struct plm_freeze){.trunk = true});
  assert_calls(1, "linear_bias_backward_weight", 0, 0);
  assert_calls(0, "linear_backward_input", 0, 0);
  assert_calls(0, "attention_backward", 0, 0);
  model_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_is_trained),
      cmocka_unit_test(adapters_of_q_and_v),
      cmocka_unit_test(adapters_of_one_product),
      cmocka_unit_test(blocks_are_frozen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
