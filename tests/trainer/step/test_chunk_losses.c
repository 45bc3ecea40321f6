/* trainer/step/chunk_losses: the losses of a step's micro-batches side by side, and the memory for
 * them. */
#include "trainer/step/chunk_losses.h"

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

enum { STEP_CHUNKS = 7, MICRO_CHUNKS = 3 };

static struct plm_ops counted;
static plm_status (*allocate_truly)(struct plm_ops *, size_t, void **, struct plm_error *);
static uint64_t allocated;

static plm_status allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                           struct plm_error *error)
{
  allocated += bytes;
  return allocate_truly(ops, bytes, buffer, error);
}

/* Writes the losses of a micro-batch as the model does. */
static void write_losses(struct plm_chunk_losses *losses, const double *values, uint32_t first,
                         uint32_t chunks)
{
  const struct plm_micro_input micro = {.first = first, .chunks = chunks};
  counted.upload(&counted, plm_chunk_losses_micro(losses), values, chunks * sizeof *values);
  plm_chunk_losses_keep(losses, &micro);
}

static void a_step_has_the_losses_of_its_micro_batches(void **state)
{
  static const double values[] = {1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5};
  struct plm_objective_totals totals[STEP_CHUNKS];
  struct plm_ranks alone = plm_ranks_single();
  struct plm_chunk_losses *losses;
  const struct plm_chunk_loss *all;
  uint64_t device, host;
  struct plm_ops *ops;
  (void)state;
  for (uint32_t c = 0; c < STEP_CHUNKS; c++)
    totals[c] = (struct plm_objective_totals){.rows = 10 + c, .count = 20 + c};
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  counted = *ops;
  allocate_truly = ops->allocate;
  counted.allocate = allocate;
  assert_int_equal(
      plm_chunk_losses_open(&counted, &alone, STEP_CHUNKS, MICRO_CHUNKS, &losses, NULL), PLM_OK);
  plm_chunk_losses_memory(1, STEP_CHUNKS, MICRO_CHUNKS, &device, &host);
  assert_int_equal(allocated, device);
  assert_int_equal(host, STEP_CHUNKS * (sizeof(double) + sizeof(struct plm_chunk_loss)));

  plm_chunk_losses_begin(losses);
  write_losses(losses, values, 0, 3);
  write_losses(losses, values + 3, 3, 3);
  write_losses(losses, values + 6, 6, 1);
  assert_int_equal(plm_chunk_losses_finish(losses, totals, &all, NULL), PLM_OK);
  for (uint32_t c = 0; c < STEP_CHUNKS; c++) {
    assert_true(all[c].loss == values[c]);
    assert_int_equal(all[c].totals.rows, 10 + c);
    assert_int_equal(all[c].totals.count, 20 + c);
  }
  plm_chunk_losses_begin(losses); /* the second micro-batch has no labels */
  write_losses(losses, values, 0, 3);
  write_losses(losses, values, 6, 1);
  assert_int_equal(plm_chunk_losses_finish(losses, totals, &all, NULL), PLM_OK);
  for (uint32_t c = 0; c < STEP_CHUNKS; c++)
    assert_true(all[c].loss == (c < 3 ? values[c] : c == 6 ? 1.5 : 0));
  plm_chunk_losses_close(losses);
  plm_chunk_losses_close(NULL);
  ops->close(ops);
}

/* Each rank gets what all of them tell: here the first one's, which another one tells. */
static void ranks_have_the_losses_of_all(void **state)
{
  (void)state;
  struct plm_objective_totals totals[2] = {{.rows = 10}, {.rows = 11}};
  static const struct plm_chunk_loss answers[4] = {{1, {.rows = 1}}, {2, {.rows = 2}}};
  const double values[2] = {1.5, 2.5};
  struct fake_collective fake;
  struct plm_chunk_losses *losses;
  const struct plm_chunk_loss *all;
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  counted = *ops;
  fake_collective_init(&fake, 1, 2);
  fake.answers = answers;
  struct plm_ranks ranks = {.collective = &fake.base, .rank = 1, .ranks = 2};
  assert_int_equal(plm_chunk_losses_open(&counted, &ranks, 2, 2, &losses, NULL), PLM_OK);
  plm_chunk_losses_begin(losses);
  write_losses(losses, values, 0, 2);
  assert_int_equal(plm_chunk_losses_finish(losses, totals, &all, NULL), PLM_OK);
  for (int c = 0; c < 4; c++) {
    assert_true(all[c].loss == (c < 2 ? 1 + c : values[c - 2]));
    assert_int_equal(all[c].totals.rows, c < 2 ? 1 + c : 8 + c);
  }
  plm_chunk_losses_close(losses);
  fake_collective_deinit(&fake);
  ops->close(ops);
}

/* Each rank keeps what all of them tell. */
static void the_memory_of_ranks(void **state)
{
  uint64_t device, host, more;
  (void)state;
  plm_chunk_losses_memory(1, STEP_CHUNKS, MICRO_CHUNKS, &device, &host);
  assert_int_equal(device, (STEP_CHUNKS + MICRO_CHUNKS) * sizeof(double));
  plm_chunk_losses_memory(4, STEP_CHUNKS, MICRO_CHUNKS, &device, &more);
  assert_int_equal(device, (STEP_CHUNKS + MICRO_CHUNKS) * sizeof(double));
  assert_int_equal(more - host, 4 * STEP_CHUNKS * sizeof(struct plm_chunk_loss));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_has_the_losses_of_its_micro_batches),
      cmocka_unit_test(ranks_have_the_losses_of_all),
      cmocka_unit_test(the_memory_of_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
