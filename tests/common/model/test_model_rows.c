/* The shapes that a model computes with: rows of the head, and the products of its blocks. */
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/cmocka_all.h"

static plm_status no_recording(struct plm_ops *ops, struct plm_error *error)
{
  (void)ops;
  return plm_error_set(error, PLM_UNSUPPORTED, "this is only a backend that could");
}

/* A backend that records passes rounds up to a sixteenth of the positions, and no further than all
 * of them. */
static void rows_are_rounded_for_recorded_passes(void **state)
{
  static const struct {
    uint64_t positions, rows;
    uint32_t rounded;
  } rows[] = {{160, 0, 0},     {160, 1, 10},    {160, 10, 10}, {160, 11, 20}, {160, 150, 150},
              {160, 151, 160}, {160, 160, 160}, {17, 1, 2},    {17, 16, 16},  {17, 17, 17},
              {16, 15, 15},    {5, 3, 3},       {1, 1, 1},     {1, 0, 0}};
  struct plm_ops ops = {0};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ops.record_begin = NULL;
    assert_int_equal(plm_model_rows(&ops, rows[i].positions, rows[i].rows), rows[i].rows);
    ops.record_begin = no_recording;
    assert_int_equal(plm_model_rows(&ops, rows[i].positions, rows[i].rows), rows[i].rounded);
  }
}

/* A document has two tokens at least, and a residue is one position. */
static void rows_of_labels_have_a_limit(void **state)
{
  struct plm_model_config config = {.head = {.kind = PLM_PREDICTS_RESIDUES}};
  struct plm_ops ops = {.record_begin = no_recording};
  (void)state;
  for (uint32_t positions = 0; positions < 5; positions++)
    assert_int_equal(plm_model_most_label_rows(&config, positions), positions);
  assert_int_equal(plm_model_label_rows(&ops, &config, 160, 11), 20);
  config.head.kind = PLM_PREDICTS_SEQUENCES;
  static const uint32_t most[] = {0, 1, 1, 1, 2, 2, 3};
  for (uint32_t positions = 0; positions < 7; positions++)
    assert_int_equal(plm_model_most_label_rows(&config, positions), most[positions]);
  assert_int_equal(plm_model_label_rows(&ops, &config, 160, 11), 15); /* of 80 */
}

/* A product that takes memory; no other one does. */
static struct {
  int64_t N, I, O;
} wide;

static size_t scratch_of(const struct plm_ops *ops, int64_t N, int64_t I, int64_t O)
{
  (void)ops;
  return N == wide.N && I == wide.I && O == wide.O ? 77 : 1;
}

static bool computes(const struct plm_model_config *config, int64_t N, int64_t I, int64_t O)
{
  const struct plm_ops ops = {.linear_scratch = scratch_of};
  enum { CHUNKS = 3 };
  wide.N = CHUNKS * N;
  wide.I = I;
  wide.O = O;
  return plm_model_widened(config, &ops, CHUNKS) == 77;
}

static void the_widest_product_is_one_of_a_block(void **state)
{
  enum { L = 32, D = 32 };
  const struct plm_ops none = {.linear_scratch = NULL};
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    if (architecture == PLM_PATCH_UNET) continue;
    struct plm_model_config config = case_config((enum plm_architecture)architecture, 2, L);
    if (config.intermediate_size != 0) config.intermediate_size = 40;
    const bool gated = architecture == PLM_ESMC; /* two products in one */
    const int64_t F = plm_architecture_hidden(&config, D);
    assert_int_equal(plm_model_widened(&config, &none, 3), 0);
    assert_true(computes(&config, L, D, 3 * D));
    assert_true(computes(&config, L, F, D));
    assert_int_equal(computes(&config, L, D, F), !gated);
    assert_int_equal(computes(&config, L, D, 2 * F), gated);
    assert_false(computes(&config, L / 2, D, 3 * D));
    assert_false(computes(&config, L, D, D));
  }
}

static void a_patch_unet_has_products_at_each_level(void **state)
{
  enum { L = 32 };
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, L);
  const int levels = plm_architecture_levels(&config);
  (void)state;
  assert_int_equal(levels, 3);
  for (int k = 0; k < levels; k++) {
    const int64_t D = plm_architecture_width(&config, k),
                  F = plm_architecture_hidden(&config, (uint32_t)D);
    assert_true(computes(&config, L >> k, D, 3 * D));
    assert_true(computes(&config, L >> k, F, D));
    if (k + 1 == levels) continue;
    const int64_t next = plm_architecture_width(&config, k + 1);
    assert_true(computes(&config, L >> (k + 1), 2 * D, next)); /* two positions become one */
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_rounded_for_recorded_passes),
      cmocka_unit_test(rows_of_labels_have_a_limit),
      cmocka_unit_test(the_widest_product_is_one_of_a_block),
      cmocka_unit_test(a_patch_unet_has_products_at_each_level),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
