/* Operators that get no rows, or no elements, do not fail and write nothing, except that a sum of
 * nothing is 0. */
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"

enum { BUFFERS = 8, BYTES = 4096, FILL = 0x3d, D = 16, H = 2, K = 64, V = 5, LEVEL = 0, L = 64 };

/* Buffers of the device, full of the same bytes. */
struct full {
  struct ops_case *c;
  void *b[BUFFERS];
  char before[BYTES], now[BYTES];
};

static void unchanged(struct full *f, const char *what)
{
  struct plm_error error = {0};
  if (f->c->ops->synchronize(f->c->ops, &error) != PLM_OK) fail_msg("%s: %s", what, error.what);
  for (int i = 0; i < BUFFERS; i++) {
    f->c->ops->download(f->c->ops, f->now, f->b[i], BYTES);
    if (memcmp(f->now, f->before, BYTES) != 0) fail_msg("%s has written something", what);
  }
}

#define NO(name, ...) (ops->name(ops, __VA_ARGS__), unchanged(f, #name))

static void products(struct plm_ops *ops, struct full *f, void **b)
{
  const struct plm_biased_linear layer = {b[3], b[4]};
  NO(linear_forward, b[0], b[1], b[2], NULL, 0, D, D);
  NO(linear_forward, b[0], b[1], b[2], b[3], 0, D, D);
  NO(linear_backward_input, b[0], b[1], b[2], 0, D, D, false);
  NO(linear_backward_input, b[0], b[1], b[2], 0, D, D, true);
  NO(linear_relu2_forward, b[0], b[1], b[2], 0, D, D);
  NO(linear_relu2_backward_input, b[0], b[1], b[2], b[3], 0, D, D);
  NO(linear_bias_forward, b[0], b[1], &layer, NULL, 0, D, D);
  NO(linear_bias_forward, b[0], b[1], &layer, b[2], 0, D, D);
  NO(linear_bias_gelu_forward, b[0], b[1], b[2], &layer, 0, D, D);
  NO(linear_bias_gelu_forward, b[0], NULL, b[2], &layer, 0, D, D);
  NO(linear_gelu_backward_input, b[0], b[1], b[2], b[3], 0, D, D);
  NO(linear_backward_weight, b[0], b[1], b[2], 0, D, D);
  NO(linear_bias_backward_weight, b[0], b[1], b[2], b[3], 0, D, D);
}

static void norms(struct plm_ops *ops, struct full *f, void **b)
{
  const struct plm_layer_norm norm = {b[0], b[1], 1e-5F};
  const struct plm_layer_norm_gradients gradients = {b[2], b[3]};
  const struct plm_mix mix = {.x = b[0], .p = b[1], .b = b[2], .skip = b[3], .s = b[4]};
  const struct plm_mix_gradients to = {b[5], b[6], b[7], b[0], b[1], NULL};
  NO(norm_forward, b[0], b[1], 0, D);
  NO(norm_backward, b[0], b[1], b[2], 0, D);
  NO(norm_rows_forward, b[0], b[1], 0, D);
  NO(norm_rows_backward, b[0], b[1], b[2], 0, D);
  NO(layer_norm_forward, b[4], b[5], &norm, 0, D);
  NO(layer_norm_backward, b[4], &gradients, b[5], b[6], &norm, 0, D);
  NO(mix_norm_forward, b[5], b[6], &mix, 0, D);
  NO(mix_norm_backward, &to, b[2], b[3], &mix, 0, D);
  NO(token_mean_forward, b[0], b[1], b[2], 0, D, V, LEVEL);
  NO(token_mean_backward, b[0], b[1], b[2], 0, D, V, LEVEL);
}

static void attention(struct plm_ops *ops, struct full *f, void **b)
{
  struct plm_qkv in = {.qkv = b[0],
                       .vi = b[1],
                       .a = b[2],
                       .cosine = b[3],
                       .sine = b[3],
                       .L = L,
                       .H = H,
                       .K = K,
                       .q_weight = b[2],
                       .k_weight = b[2],
                       .dq_weight = b[3],
                       .dk_weight = b[3]};
  const struct plm_value_table value = {
      .table = b[1], .tokens = b[2], .V = V, .level = LEVEL, .room = b[3], .room_gradient = b[4]};
  const int32_t *at = b[0];
  const struct plm_attention_inputs inputs = {b[1], b[2], b[3]};
  const struct plm_attention_gradients gradients = {b[4], b[5], b[6]};
  const struct plm_cached_rows cached = {.H = H,
                                         .K = K,
                                         .row_stride = 3 * H * K,
                                         .capacity = 4,
                                         .scale = 1,
                                         .slots = at,
                                         .positions = at,
                                         .key_begin = at};
  for (int norm = 0; norm <= PLM_QK_NORM_WIDTH; norm++) {
    in.norm = (enum plm_qk_norm)norm;
    NO(qkv_prepare_forward, b[4], &in);
    NO(qkv_prepare_backward, b[4], b[5], b[6], b[7], &in);
    NO(qkv_value_forward, b[5], &in, &value);
    NO(qkv_value_backward, b[5], b[6], b[7], b[5], &in, &value);
  }
  const struct plm_interval_mask mask = {0, L, at, at, at, at, at, at, at, at, at, at};
  const struct plm_attention_shape shape = {0, L, H, K, 3 * H * K, 1, 0};
  NO(attention_forward, b[4], b[5], &inputs, &mask, &shape);
  NO(attention_backward, &gradients, b[7], b[7], b[7], &inputs, &mask, &shape);
  if (ops->narrow_mask != NULL) NO(narrow_mask, b[4], b[5], &mask, b[6], 0);
  NO(attention_cached, b[0], b[1], b[2], b[3], b[4], b[5], &cached);
}

static void activations(struct plm_ops *ops, struct full *f, void **b)
{
  const struct plm_token_dropout of = {b[1], b[2], b[3], 0, L, 1};
  NO(upload, b[0], b[0], 0);
  NO(download, b[0], b[0], 0);
  NO(zero, b[0], 0);
  NO(copy, b[0], b[1], 0);
  NO(upload_beside, b[0], b[1], 0);
  NO(download_beside, b[0], b[1], 0);
  NO(round_weights, b[0], b[1], 0);
  NO(act_to_float, b[0], b[1], 0);
  NO(gelu_forward, b[0], b[1], 0);
  NO(gelu_backward, b[0], b[1], b[2], 0);
  NO(relu2_forward, b[0], 0);
  NO(relu2_backward, b[0], b[1], 0);
  NO(swiglu_forward, b[0], b[1], 0, D);
  NO(swiglu_backward, b[0], b[1], b[2], 0, D);
  NO(add, b[0], b[1], 0);
  NO(scale, b[0], 2, 0);
  NO(scale_rows, b[0], b[1], 0, D);
  NO(token_dropout, b[0], &of);
  NO(gather_rows, b[0], b[1], b[2], 0, D);
  NO(scatter_rows, b[0], b[1], b[2], 0, D);
}

static void heads(struct plm_ops *ops, struct full *f, void **b)
{
  const struct plm_loss_options options = {.soft_cap = 3, .label_smoothing = 0.1F, .z_loss = 0.1F};
  const struct plm_head_rows rows = {.dense = b[4],
                                     .w = b[5],
                                     .bias = b[6],
                                     .labels = b[6],
                                     .weights = b[7],
                                     .D = D,
                                     .V = V,
                                     .hits = b[7]};
  const struct plm_logits_gradients to = {b[0], b[1], b[2]};
  const struct plm_row_groups groups = {b[2], b[3], 0};
  const struct plm_dropout dropout = plm_dropout_of(1, 1, 0.5, b[2]);
  NO(logits_forward, b[0], b[1], b[2], b[3], 0, D, V);
  NO(soft_cap_forward, b[0], 0, 3);
  NO(cross_entropy, b[0], b[1], b[2], b[3], &options, 0, V);
  NO(logits_backward, &to, b[3], b[4], b[5], 0, D, V);
  NO(pool_rows, b[0], b[1], &groups, D);
  NO(pool_rows_backward, b[0], b[1], &groups, D);
  NO(tanh_forward, b[0], b[1], 0);
  NO(tanh_backward, b[0], b[1], b[2], 0);
  NO(dropout, b[0], b[1], &dropout, 0, D);
  for (int kind = 0; kind <= PLM_LOSS_CLASSES; kind++) {
    const struct plm_label_rows labels = {
        .kind = (enum plm_label_loss)kind, .O = 3, .classes = b[3], .targets = b[4], .hits = b[5]};
    NO(label_loss, b[0], b[1], b[2], &labels, 1);
  }
  NO(head_train, b[0], b[1], b[2], b[3], &rows, 1, &options);
}

static void sums(struct plm_ops *ops, struct full *f, void **b)
{
  const struct plm_target_rows to = {b[0], b[1], b[2], b[3], 0};
  const struct plm_target_tokens from = {b[4], b[5], b[6], 0, L};
  const struct plm_masking masking = {.token_bytes = 1};
  const struct plm_update *update = b[7];
  const struct plm_adam_options adam = {0.9F, 0.99F, 1e-8F};
  const struct plm_adam_tensor tensor = {.w = b[0], .m = b[1], .v = b[2], .g = b[3]};
  NO(choose_targets, &to, &from, &masking);
  NO(sum_squares, b[0], NULL, 0);
  NO(add_sum, b[0], b[1], 0);
  NO(sum_chunks, b[0], b[1], b[2], 0, 0, L);
  NO(sum_parts, b[0], (const float *const[]){b[1], b[2]}, 2, 0);
  NO(float_to_bf16, b[0], b[1], 0);
  NO(bf16_to_float, b[0], b[1], 0);
  NO(adam_step, &tensor, 1, &adam, update);
  NO(adam_step, NULL, 0, &adam, update);
  NO(muon_step, NULL, 0, b[0], update);
  NO(average_step, b[0], b[1], 0, update);
}

/* The first n of the bytes of a buffer, which are filled again for the next operator. */
static void wrote(struct full *f, void *buffer, const void *expected, size_t n, const char *what)
{
  f->c->ops->download(f->c->ops, f->now, buffer, BYTES);
  if (memcmp(f->now, expected, n) != 0 || memcmp(f->now + n, f->before, BYTES - n) != 0)
    fail_msg("%s has written something else", what);
  f->c->ops->upload(f->c->ops, buffer, f->before, BYTES);
  unchanged(f, what);
}

/* A chunk without targets still has inputs. */
static void sums_of_nothing(struct plm_ops *ops, struct full *f, void **b)
{
  static const double zeros[3];
  const struct plm_array none[] = {{b[1], 0, NULL}, {b[2], 0, b[3]}};
  const struct plm_target_rows to = {b[0], b[1], b[2], b[3], 0};
  const struct plm_target_tokens from = {b[4], b[5], b[6], 1, L};
  const struct plm_masking masking = {.token_bytes = 1, .pad = FILL};
  int32_t inputs[L];
  for (int i = 0; i < L; i++) inputs[i] = FILL;
  ops->sum_squares(ops, b[0], none, 2);
  wrote(f, b[0], zeros, 2 * sizeof *zeros, "sum_squares");
  ops->sum_in_order(ops, b[0], b[1], 0);
  wrote(f, b[0], zeros, sizeof *zeros, "sum_in_order");
  ops->sum_chunks(ops, b[0], b[1], b[2], 0, 3, L);
  wrote(f, b[0], zeros, sizeof zeros, "sum_chunks");
  ops->choose_targets(ops, &to, &from, &masking);
  wrote(f, b[0], inputs, sizeof inputs, "choose_targets");
}

static void no_rows_case(struct ops_case *c)
{
  static struct full full;
  full.c = c;
  memset(full.before, FILL, BYTES);
  for (int i = 0; i < BUFFERS; i++) full.b[i] = ops_case_device(c, full.before, BYTES);
  products(c->ops, &full, full.b);
  norms(c->ops, &full, full.b);
  activations(c->ops, &full, full.b);
  sums(c->ops, &full, full.b);
  heads(c->ops, &full, full.b);
  attention(c->ops, &full, full.b);
  sums_of_nothing(c->ops, &full, full.b);
}

static void no_rows(void **state)
{
  (void)state;
  ops_case_each(no_rows_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
