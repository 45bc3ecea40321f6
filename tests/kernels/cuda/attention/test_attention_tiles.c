/* The attention kernels of the CUDA backend visit only the tiles that the mask touches. A kernel
 * that visited all of them and masked the rest would give the same results, so the emulation counts
 * the work: matrix products, bytes copied to shared memory, and the warps' exchanges. */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>

#include "common/config/config.h"
#include "tests/emulation/controls.h"
#include "tests/support/operators/attention_case.h"
#include "tests/support/operators/device_case.h"

enum { TILES = 8, LENGTH = TILES * 64, PLAIN_LENGTH = 256 };

static struct attention_batch sample;

/* Forward and backward of one chunk of `length` positions in documents of `tokens`. */
static struct plm_emulation_work work_of(uint32_t length, uint32_t tokens, unsigned kinds,
                                         int32_t K, bool in_bf16)
{
  struct attention_case p;
  attention_batch_begin(&sample, 1, length);
  for (uint32_t at = 0; at < length; at += tokens) attention_batch_add(&sample, 0, at, tokens);
  attention_case_init(&p, &sample.batch, kinds, 1, 0, 1, K, in_bf16);
  const struct plm_emulation_work before = plm_emulation_work_done();
  attention_case_run_on_cuda(&p, 1);
  const struct plm_emulation_work after = plm_emulation_work_done();
  attention_case_deinit(&p);
  return (struct plm_emulation_work){after.multiply_adds - before.multiply_adds,
                                     after.copied_bytes - before.copied_bytes,
                                     after.exchanges - before.exchanges};
}

/* The products of the bf16 kernels: of 8 x 8 pairs of tiles, documents of one tile touch 8, a
 * causal mask 36, and a window that sees nothing but its own position 8. */
static void check_products(int32_t K)
{
  const struct plm_emulation_work all = work_of(LENGTH, LENGTH, PLM_ATTENTION_DOCUMENT, K, true);
  const struct plm_emulation_work short_ones = work_of(LENGTH, 64, PLM_ATTENTION_DOCUMENT, K, true);
  const struct plm_emulation_work causal = work_of(LENGTH, LENGTH, PLM_ATTENTION_CAUSAL, K, true);
  const struct plm_emulation_work local = work_of(LENGTH, LENGTH, PLM_ATTENTION_LOCAL, K, true);
  assert_true(all.multiply_adds > 0);
  assert_int_equal(short_ones.multiply_adds * TILES, all.multiply_adds);
  assert_int_equal(causal.multiply_adds * TILES * TILES, all.multiply_adds * 36);
  assert_int_equal(local.multiply_adds * TILES, all.multiply_adds);
  /* a block copies what it owns once, and two warpgroups share what they walk */
  assert_true(short_ones.copied_bytes * 2 < all.copied_bytes);
  assert_true(local.copied_bytes * 2 < all.copied_bytes);
  assert_true(causal.copied_bytes < all.copied_bytes);
}

static void on_every_device(void **state)
{
  (void)state;
  check_products(32);
  check_products(128);
}

static void on_sm90(void **state)
{
  (void)state;
  plm_emulation_capability(90, false);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1);
  setenv("PLM_CUDA_RELU2", "library", 1); /* a forced choice is not checked */
  check_products(64);
  check_products(128);
  unsetenv("PLM_CUDA_ATTENTION");
  unsetenv("PLM_CUDA_RELU2");
  plm_emulation_capability(80, false);
}

/* fp32 has no tiles: a warp exchanges for each key that a query sees. */
static void in_fp32(void **state)
{
  (void)state;
  const struct plm_emulation_work all =
      work_of(PLAIN_LENGTH, PLAIN_LENGTH, PLM_ATTENTION_DOCUMENT, 16, false);
  const struct plm_emulation_work short_ones =
      work_of(PLAIN_LENGTH, 64, PLM_ATTENTION_DOCUMENT, 16, false);
  const struct plm_emulation_work causal =
      work_of(PLAIN_LENGTH, PLAIN_LENGTH, PLM_ATTENTION_CAUSAL, 16, false);
  assert_true(all.exchanges > 0);
  assert_true(short_ones.exchanges * (PLAIN_LENGTH / 64) < all.exchanges * 11 / 10);
  assert_true(causal.exchanges * 2 < all.exchanges * 11 / 10);
}

int main(void)
{
  if (device_case_is_real()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_every_device),
      cmocka_unit_test(on_sm90),
      cmocka_unit_test(in_fp32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
