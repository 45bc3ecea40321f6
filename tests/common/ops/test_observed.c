/* common/ops/observed: every operator that a backend launches is told, with its name, its sizes and
 * its work; what it computes does not change; and afterwards the table is as before. */
#include "common/ops/observed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

/* ---- every entry --------------------------------------------------------------------------- */

/* Entries that run nothing on the device, or only decide how things are run. */
static const size_t untold[] = {
#define AT(name) offsetof(struct plm_ops, name)
    AT(allocate),      AT(release),           AT(memory_size),
    AT(close),         AT(release_workspace), AT(linear_scratch),
    AT(allocate_host), AT(release_host),      AT(compute_follows),
    AT(copies_follow), AT(record_begin),      AT(record_end),
    AT(replay),        AT(release_recording), AT(reserve_marks),
    AT(mark),          AT(between_marks),     AT(muon_scratch),
    AT(tune),          AT(export_algorithms), AT(import_algorithms),
    AT(open_nccl),
#undef AT
};

static bool is_untold(size_t offset)
{
  for (size_t i = 0; i < sizeof untold / sizeof *untold; i++)
    if (untold[i] == offset) return true;
  return false;
}

static void begins(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  (void)context;
  (void)ops;
  (void)call;
}

static const struct plm_ops_observer nobody = {.begins = begins, .ended = begins};

/* A new entry of struct plm_ops must be told, or be in the list above. */
static void every_entry_is_replaced_and_given_back(void **state)
{
  (void)state;
  enum { FIRST = offsetof(struct plm_ops, allocate), EACH = sizeof(void (*)(void)) };
  unsigned char before[sizeof(struct plm_ops)], during[sizeof before], after[sizeof before];
  struct plm_ops *ops = calloc(1, sizeof *ops);
  assert_non_null(ops);
  for (size_t at = FIRST; at < sizeof *ops; at += EACH) memset((char *)ops + at, 0x5a, EACH);
  memcpy(before, ops, sizeof before);
  assert_int_equal(plm_ops_observe(ops, &nobody, NULL), PLM_OK);
  memcpy(during, ops, sizeof during);
  plm_ops_unobserve(ops);
  memcpy(after, ops, sizeof after);
  assert_memory_equal(before, after, sizeof before);
  for (size_t at = FIRST; at < sizeof *ops; at += EACH) {
    const bool replaced = memcmp(before + at, during + at, EACH) != 0;
    if (replaced == is_untold(at))
      fail_msg("entry %zu of struct plm_ops, counted from 0, is %s", (at - FIRST) / EACH,
               replaced ? "told although it is in the list of those that are not"
                        : "not told: it needs a row in common/ops/observed_rows.h");
  }
  free(ops);
}

static void an_entry_that_a_backend_lacks_stays_empty(void **state)
{
  (void)state;
  struct plm_ops ops = {.name = "none"};
  assert_int_equal(plm_ops_observe(&ops, &nobody, NULL), PLM_OK);
  assert_null(ops.linear_forward);
  plm_ops_unobserve(&ops);
  assert_null(ops.linear_forward);
  assert_null(ops.observation);
  plm_ops_unobserve(&ops); /* nothing to do */
}

/* ---- what is told -------------------------------------------------------------------------- */

static char told[4096];

static void note_begin(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  (void)ops;
  assert_ptr_equal(context, told);
  strncat(told, "(", sizeof told - strlen(told) - 1);
  (void)call;
}

static void note_end(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  static const char *const kinds[] = {"computes", "copies", "beside", "waits"};
  char name[PLM_OP_NAME_SIZE], line[200];
  (void)ops;
  assert_ptr_equal(context, told);
  plm_op_call_name(call, name);
  snprintf(line, sizeof line, "%s: %s, %.0f bytes, %.0f flops)\n", name, kinds[call->kind],
           call->bytes, call->flops);
  strncat(told, line, sizeof told - strlen(told) - 1);
}

static double three_pairs(void *context, const struct plm_interval_mask *mask)
{
  (void)context;
  (void)mask;
  return 3;
}

static const struct plm_ops_observer noting = {
    .begins = note_begin, .ended = note_end, .pairs = three_pairs, .context = told};

static struct plm_ops *cpu(enum plm_precision precision)
{
  struct plm_ops *ops;
  struct plm_error error = {0};
  told[0] = '\0';
  if (plm_ops_cpu_open(precision, 2, "portable", &ops, &error) != PLM_OK)
    fail_msg("%s", error.what);
  return ops;
}

static void a_call_is_told_with_its_sizes_and_work(void **state)
{
  (void)state;
  enum { N = 4, I = 3, O = 2 };
  struct plm_ops *ops = cpu(PLM_PRECISION_FP32);
  const float x[N * I] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, w[O * I] = {1, 0, 0, 0, 1, -1};
  float y[N * O] = {0}, twice[N * O];
  static const float expected[N * O] = {1, -1, 4, -1, 7, -1, 10, -1};
  ops->linear_forward(ops, y, x, w, NULL, N, I, O);
  assert_string_equal(told, "");
  assert_int_equal(plm_ops_observe(ops, &noting, NULL), PLM_OK);
  memset(y, 0, sizeof y);
  ops->linear_forward(ops, y, x, w, NULL, N, I, O);
  assert_memory_equal(y, expected, sizeof y);
  ops->linear_forward(ops, y, x, w, y, N, I, O);
  ops->copy(ops, twice, y, sizeof y);
  ops->add(ops, twice, twice, (int64_t)N * O);
  ops->upload_beside(ops, twice, expected, sizeof twice);
  assert_int_equal(ops->wait_copies(ops, NULL), PLM_OK);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  plm_ops_unobserve(ops);
  ops->add(ops, twice, y, (int64_t)N * O);
  assert_string_equal(told, "(linear_forward 4 x 3 x 2: computes, 104 bytes, 48 flops)\n"
                            "(linear_forward 4 x 3 x 2: computes, 136 bytes, 48 flops)\n"
                            "(copy: copies, 64 bytes, 0 flops)\n"
                            "(add 8: computes, 96 bytes, 0 flops)\n"
                            "(upload_beside: beside, 32 bytes, 0 flops)\n"
                            "(wait_copies: waits, 0 bytes, 0 flops)\n"
                            "(synchronize: waits, 0 bytes, 0 flops)\n");
  ops->close(ops);
}

/* A composed operator is one call, and attention counts the pairs that the observer knows. */
static void an_operator_of_an_operator_is_part_of_it(void **state)
{
  (void)state;
  enum { L = 4, K = 16, ROW = 3 * K };
  struct plm_ops *ops = cpu(PLM_PRECISION_FP32);
  float qkv[L * ROW] = {0}, out[L * ROW], attended[L * K], lse[L], table[2 * K] = {0},
                a[2] = {1, 1};
  float cosine[L * K / 2] = {0}, sine[L * K / 2] = {0}, room[L * K];
  static const int32_t tokens[L] = {0, 1, 1, 0}, zeros[L] = {0}, ends[L] = {L, L, L, L};
  const struct plm_qkv in = {
      .qkv = qkv, .a = a, .cosine = cosine, .sine = sine, .B = 1, .L = L, .H = 1, .K = K};
  const struct plm_value_table value = {.table = table, .tokens = tokens, .V = 2, .room = room};
  const struct plm_interval_mask mask = {1,     L,    zeros, ends, zeros, ends,
                                         zeros, ends, zeros, ends, zeros, ends};
  const struct plm_attention_shape shape = {1, L, 1, K, ROW, 0.25f, 0};
  const struct plm_attention_inputs parts = plm_attention_inputs_of(out, K * sizeof *out);
  assert_int_equal(plm_ops_observe(ops, &noting, NULL), PLM_OK);
  ops->qkv_value_forward(ops, out, &in, &value);
  ops->attention_forward(ops, attended, lse, &parts, &mask, &shape);
  plm_ops_unobserve(ops);
  assert_string_equal(told, "(qkv_value_forward 4 x 1 x 16: computes, 1536 bytes, 0 flops)\n"
                            "(attention_forward 4 x 1 x 16: computes, 1024 bytes, 192 flops)\n");
  ops->close(ops);
}

/* ---- work that depends on what an operand points to ---- */

static void no_sum_squares(struct plm_ops *ops, double *sums, const struct plm_array *vectors,
                           size_t count)
{
  (void)ops, (void)sums, (void)vectors, (void)count;
}

static void no_adam_step(struct plm_ops *ops, const struct plm_adam_tensor *tensors, size_t count,
                         const struct plm_adam_options *options, const struct plm_update *update)
{
  (void)ops, (void)tensors, (void)count, (void)options, (void)update;
}

static void no_muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
                         float *scratch, const struct plm_update *update)
{
  (void)ops, (void)matrices, (void)count, (void)scratch, (void)update;
}

static void no_mix_forward(struct plm_ops *ops, act *mixed, act *h, const struct plm_mix *mix,
                           int64_t N, int64_t D)
{
  (void)ops, (void)mixed, (void)h, (void)mix, (void)N, (void)D;
}

static void no_mix_backward(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                            const act *dh, const struct plm_mix *mix, int64_t N, int64_t D)
{
  (void)ops, (void)to, (void)dmixed, (void)dh, (void)mix, (void)N, (void)D;
}

static void work_depends_on_the_operands(void **state)
{
  (void)state;
  struct plm_ops ops = {.act_bytes = 4,
                        .sum_squares = no_sum_squares,
                        .adam_step = no_adam_step,
                        .muon_step = no_muon_step,
                        .mix_norm_forward = no_mix_forward,
                        .mix_norm_backward = no_mix_backward};
  static const float some[4];
  static const int32_t rows[2];
  float more[4];
  const struct plm_array arrays[] = {{some, 3, NULL}, {some, 5, some}};
  const struct plm_adam_tensor tensors[] = {{.n = 2}, {.n = 5}};
  /* the smaller side is squared, whichever it is */
  const struct plm_muon_matrix matrices[] = {{.rows = 2, .cols = 3}, {.rows = 5, .cols = 4}};
  struct plm_mix mix = {.x = (act *)more};
  struct plm_mix_gradients to = {.dskip = (act *)more, .more = (act *)more};
  told[0] = '\0';
  assert_int_equal(plm_ops_observe(&ops, &noting, NULL), PLM_OK);
  ops.sum_squares(&ops, NULL, arrays, 2);
  ops.adam_step(&ops, tensors, 2, NULL, NULL);
  ops.muon_step(&ops, matrices, 2, NULL, NULL);
  assert_string_equal(told, "(sum_squares: computes, 52 bytes, 0 flops)\n"
                            "(adam_step: computes, 196 bytes, 0 flops)\n"
                            "(muon_step: computes, 520 bytes, 2560 flops)\n");
  told[0] = '\0';
  ops.mix_norm_forward(&ops, NULL, NULL, &mix, 2, 3);
  ops.mix_norm_backward(&ops, &to, NULL, NULL, &mix, 2, 3);
  mix.skip = (act *)more;
  ops.mix_norm_forward(&ops, NULL, NULL, &mix, 2, 3);
  to.dskip = NULL;
  ops.mix_norm_backward(&ops, &to, NULL, NULL, &mix, 2, 3);
  mix.p_rows = rows;
  ops.mix_norm_forward(&ops, NULL, NULL, &mix, 2, 3);
  to.more = NULL;
  ops.mix_norm_backward(&ops, &to, NULL, NULL, &mix, 2, 3);
  plm_ops_unobserve(&ops);
  assert_string_equal(told, "(mix_norm_forward 2 x 3: computes, 96 bytes, 0 flops)\n"
                            "(mix_norm_backward 2 x 3: computes, 168 bytes, 0 flops)\n"
                            "(mix_norm_forward 2 x 3: computes, 120 bytes, 0 flops)\n"
                            "(mix_norm_backward 2 x 3: computes, 240 bytes, 0 flops)\n"
                            "(mix_norm_forward 2 x 3: computes, 96 bytes, 0 flops)\n"
                            "(mix_norm_backward 2 x 3: computes, 192 bytes, 0 flops)\n");
}

static void *add_elsewhere(void *context)
{
  struct plm_ops *ops = context;
  float x[4] = {1, 2, 3, 4};
  ops->scale(ops, x, 2, 4);
  return x[3] == 8 ? context : NULL;
}

static void other_threads_are_not_told(void **state)
{
  (void)state;
  pthread_t thread;
  void *result = NULL;
  struct plm_ops *ops = cpu(PLM_PRECISION_FP32);
  assert_int_equal(plm_ops_observe(ops, &noting, NULL), PLM_OK);
  assert_int_equal(pthread_create(&thread, NULL, add_elsewhere, ops), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, ops);
  plm_ops_unobserve(ops);
  assert_string_equal(told, "");
  ops->close(ops);
}

static void names_have_the_sizes_that_there_are(void **state)
{
  (void)state;
  char name[PLM_OP_NAME_SIZE];
  plm_op_call_name(&(struct plm_op_call){.name = "zero"}, name);
  assert_string_equal(name, "zero");
  plm_op_call_name(&(struct plm_op_call){.name = "norm_forward", .sizes = {8192, 384}}, name);
  assert_string_equal(name, "norm_forward 8192 x 384");
  plm_op_call_name(&(struct plm_op_call){.name = "linear_relu2_backward_input",
                                         .sizes = {INT64_MAX, INT64_MAX, INT64_MAX}},
                   name);
  assert_string_equal(name, "linear_relu2_backward_input 9223372036854775807 x "
                            "9223372036854775807 x 9223372036854775807");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_entry_is_replaced_and_given_back),
      cmocka_unit_test(an_entry_that_a_backend_lacks_stays_empty),
      cmocka_unit_test(a_call_is_told_with_its_sizes_and_work),
      cmocka_unit_test(an_operator_of_an_operator_is_part_of_it),
      cmocka_unit_test(work_depends_on_the_operands),
      cmocka_unit_test(other_threads_are_not_told),
      cmocka_unit_test(names_have_the_sizes_that_there_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
