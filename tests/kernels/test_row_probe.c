/* Probes of products: the row of A is antisymmetric and B symmetric along K, so that a product of
 * them has nothing but rounding errors; and they leave no memory behind. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/row_probe.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/must.h"
#include "tests/support/peers/raw_peer.h"

static const float *floats(const char *bytes)
{
  return (const float *)(const void *)bytes;
}

static struct plm_product_shape shape_of(int64_t N, int64_t K, bool transpose_b)
{
  return (struct plm_product_shape){
      .N = N, .K = K, .lda = K, .ldb = transpose_b ? K : N, .ldc = N, .transpose_b = transpose_b};
}

/* B[k][n] however it is stored. */
static float of_B(const struct plm_probe *probe, const struct plm_product_shape *s, int64_t k,
                  int64_t n)
{
  return floats(probe->B)[s->transpose_b ? n * s->ldb + k : k * s->ldb + n];
}

static void the_halves_mirror_each_other(void **state)
{
  (void)state;
  enum { N = 5, ROWS = 3 };
  struct plm_probe_ring ring = {0};
  for (int64_t K = 8; K <= 9; K++)
    for (int transposed = 0; transposed < 2; transposed++) {
      struct plm_probe probe;
      const struct plm_product_shape s = shape_of(N, K, transposed);
      assert_true(plm_probe_make(&probe, &ring, &s, ROWS));
      const float *A = floats(probe.A);
      for (int64_t k = 0; k < K / 2; k++) {
        assert_true(A[k] != 0 && A[K - 1 - k] == -A[k]);
        for (int64_t n = 0; n < N; n++)
          assert_true(of_B(&probe, &s, k, n) == of_B(&probe, &s, K - 1 - k, n));
      }
      if (K % 2 != 0) assert_true(A[K / 2] != 0 && fabsf(A[K / 2]) < 0x1p-18F);
      for (int row = 1; row < ROWS; row++)
        assert_memory_equal(A + row * K, A, (size_t)K * sizeof *A);
      for (int64_t n = 1; n < N; n++) /* columns differ */
        assert_true(of_B(&probe, &s, 0, n) != of_B(&probe, &s, 0, n - 1));
      for (int64_t n = 0; n < N; n++) assert_true(floats(probe.start)[n] != 0);
      plm_probe_free(&probe);
    }
  plm_probe_ring_free(&ring);
}

/* In bf16, each element is the upper half of a number between 2^-11 and 2. */
static void elements_of_bf16_are_whole(void **state)
{
  (void)state;
  enum { N = 5, K = 8 };
  struct plm_probe_ring ring = {0};
  struct plm_probe probe;
  struct plm_product_shape s = shape_of(N, K, false);
  s.is_bf16 = 1;
  assert_true(plm_probe_make(&probe, &ring, &s, 1));
  for (int of = 0; of < 2; of++)
    for (int64_t i = 0; i < (of == 0 ? K : K * N); i++) {
      uint16_t element, mirrored;
      memcpy(&element, (of == 0 ? probe.A : probe.B) + 2 * i, sizeof element);
      const uint32_t bits = (uint32_t)element << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      assert_true(fabsf(value) >= 0x1p-11F && fabsf(value) < 2);
      if (of == 1) continue;
      memcpy(&mirrored, probe.A + 2 * (K - 1 - i), sizeof mirrored);
      assert_int_equal(mirrored, element ^ 0x8000);
    }
  plm_probe_free(&probe);
  plm_probe_ring_free(&ring);
}

/* Columns 2 to 4 of B, dense or as far apart as before, and B turned, have its elements. */
static void parts_and_transposes_have_the_same_elements(void **state)
{
  (void)state;
  enum { N = 7, K = 6, FIRST = 2, COLUMNS = 3 };
  struct plm_probe_ring ring = {0};
  for (int how = 0; how < 4; how++) {
    const bool transposed = how >= 2, dense = how == 1;
    struct plm_probe probe, whole;
    const struct plm_product_shape s = shape_of(N, K, transposed);
    assert_true(plm_probe_make(&probe, &ring, &s, 1) && plm_probe_make(&whole, &ring, &s, 1));
    struct plm_product_shape part = s;
    if (how < 3) {
      plm_probe_slice(&probe, &s, FIRST, COLUMNS, dense);
      if (dense) part.ldb = COLUMNS;
    } else {
      assert_true(plm_probe_turn(&probe, &s));
      part = shape_of(N, K, false);
    }
    for (int64_t k = 0; k < K; k++)
      for (int64_t n = 0; n < (how < 3 ? COLUMNS : N); n++)
        assert_true(of_B(&probe, &part, k, n) == of_B(&whole, &s, k, how < 3 ? FIRST + n : n));
    plm_probe_free(&probe);
    plm_probe_free(&whole);
  }
  plm_probe_ring_free(&ring);
}

/* Also if small blocks that stay lie behind them in the heap, as those of a library do. */
static void their_memory_is_given_back(void **state)
{
  (void)state;
  enum { TIMES = 4, MIB = 1 << 20 };
  void *behind[TIMES];
  struct plm_probe_ring ring = {0};
  const struct plm_product_shape s = shape_of(1024, 1024, true); /* 4 MiB */
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  checked_memory_guard(false);
  const size_t before = raw_peer_resident_bytes();
  for (int i = 0; i < TIMES; i++) {
    struct plm_probe probes[2];
    for (int k = 0; k < 2; k++) assert_true(plm_probe_make(&probes[k], &ring, &s, 1));
    behind[i] = must(malloc(MIB / 16));
    for (int k = 0; k < 2; k++) plm_probe_free(&probes[k]);
  }
  const size_t after = raw_peer_resident_bytes();
  if (after > before + 3 * MIB) fail_msg("%zu bytes stay", after - before);
  for (int i = 0; i < TIMES; i++) free(behind[i]);
  plm_probe_ring_free(&ring);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_halves_mirror_each_other),
      cmocka_unit_test(elements_of_bf16_are_whole),
      cmocka_unit_test(parts_and_transposes_have_the_same_elements),
      cmocka_unit_test(their_memory_is_given_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
