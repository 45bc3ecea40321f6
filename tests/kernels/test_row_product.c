/* Which heights of a product are used for rows, with a library of which the test decides whose bits
 * agree, and that rows are multiplied once each however they are cut. */
#include "kernels/cpu/row_product.h"

#include <string.h>

#include "tests/support/harness/cmocka_all.h"

enum { N = 3, K = 5, MOST = 64, ROWS = 600 };

struct plm_product {
  struct plm_product_shape shape;
};

static bool (*differs)(int64_t M, int64_t row); /* whether a row has other bits than usual */
static bool (*is_missing)(int64_t M);           /* whether a height cannot be prepared; or NULL */

/* These take the place of the library's in this program. */
const struct plm_product *plm_products_get(struct plm_products *products,
                                           const struct plm_product_shape *shape)
{
  static struct plm_product made[MOST];
  static int count;
  (void)products;
  if (is_missing != NULL && is_missing(shape->M)) return NULL;
  for (int i = 0; i < count; i++)
    if (plm_product_shape_equal(&made[i].shape, shape)) return &made[i];
  assert_true(count < MOST);
  made[count].shape = *shape;
  return &made[count++];
}

void plm_product_run(const struct plm_product *product, uint32_t thread, void *C, const void *A,
                     const void *B)
{
  const struct plm_product_shape *s = &product->shape;
  (void)thread;
  for (int64_t i = 0; i < s->M; i++)
    for (int64_t n = 0; n < s->N; n++) {
      float sum = differs(s->M, i) ? 1 : 0;
      for (int64_t k = 0; k < s->K; k++)
        sum += ((const float *)A)[i * s->lda + k] *
               ((const float *)B)[s->transpose_b ? n * s->ldb + k : k * s->ldb + n];
      ((float *)C)[i * s->ldc + n] = sum;
    }
}

static bool none(int64_t M, int64_t row)
{
  return M < 0 || row < 0;
}

static bool above_128(int64_t M, int64_t row)
{
  return M > 128 && row >= 0;
}

static bool in_32(int64_t M, int64_t row)
{
  return M == 32 && row == 31;
}

static bool behind_the_first(int64_t M, int64_t row)
{
  return M > 0 && row > 0;
}

static bool in_4(int64_t M, int64_t row)
{
  return M == 4 && row == 3;
}

static bool all(int64_t M)
{
  return M > 0;
}

static bool all_but_16(int64_t M)
{
  return M != 16;
}

static const struct plm_product_shape shape = {
    .N = N, .K = K, .lda = K, .ldb = K, .ldc = N, .transpose_b = 1};

/* The first unit whose tallest product agrees, unless a later one has a taller product. */
static void the_unit_with_the_tallest_product_is_chosen(void **state)
{
  static const struct {
    bool (*differs)(int64_t M, int64_t row);
    bool (*is_missing)(int64_t M);
    int64_t unit, tall;
  } rows[] = {{none, NULL, 32, 256},          {above_128, NULL, 32, 128}, {in_32, NULL, 48, 240},
              {behind_the_first, NULL, 1, 1}, {none, all_but_16, 16, 16}, {none, all, 0, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_row_tiling tiling;
    struct plm_error error = {0};
    struct plm_row_products *products = plm_row_products_open(NULL);
    differs = rows[i].differs;
    is_missing = rows[i].is_missing;
    struct plm_row_family *family = plm_row_family_get(products, &shape);
    if (rows[i].unit == 0) {
      assert_null(family);
      assert_int_equal(plm_row_products_error(products, &error), PLM_FAILURE);
      assert_non_null(strstr(error.what, "a product of 5 x 3 gives different bits"));
    } else {
      assert_int_equal(plm_row_products_error(products, &error), PLM_OK);
      plm_row_tiling_init(&tiling, family, ROWS, 1);
      assert_int_equal(tiling.runs[3].rows, rows[i].unit);
      assert_int_equal(tiling.runs[2].rows, rows[i].tall);
      assert_int_equal(tiling.tile, rows[i].unit);
      assert_int_equal(plm_row_height(family, rows[i].unit + 1), 2 * rows[i].unit);
      assert_ptr_equal(plm_row_family_get(products, &shape), family);
    }
    plm_row_products_close(products);
  }
}

static void few_rows_have_small_products(void **state)
{
  static const int64_t rows[][3] = {{1, 1, 1},    {2, 2, 2},    {3, 4, 6},    {4, 4, 6},
                                    {5, 6, 6},    {9, 12, 12},  {12, 12, 12}, {13, 16, 16},
                                    {24, 24, 24}, {25, 32, 32}, {32, 32, 32}};
  (void)state;
  is_missing = NULL;
  for (int without = 0; without < 2; without++) {
    struct plm_row_products *products = plm_row_products_open(NULL);
    differs = without ? in_4 : none;
    struct plm_row_family *family = plm_row_family_get(products, &shape);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      assert_int_equal(plm_row_height(family, rows[i][0]), rows[i][1 + without]);
    plm_row_products_close(products);
  }
}

/* In calls of whole tiles and one of the rest. turned: with a copy of B as (K, N). */
static void multiply(struct plm_row_family *family, int64_t rows, int64_t tile, bool turned)
{
  static float A[ROWS * K], B[N * K], B_KN[K * N], C[ROWS * N + 1], padding[64 * (K + N)];
  struct plm_row_tiling tiling;
  for (int64_t i = 0; i < rows * K; i++) A[i] = (float)(i % 7);
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++) B_KN[k * N + n] = B[n * K + k] = (float)(n + k);
  for (int64_t i = 0; i <= rows * N; i++) C[i] = -1;
  plm_row_tiling_init(&tiling, family, rows, tile);
  if (turned) assert_true(plm_row_tiling_turn(&tiling, family));
  tiling.turned_B = (const char *)B_KN;
  assert_true(plm_row_tiling_padding(&tiling) <= sizeof padding);
  for (int64_t done = 0; done < rows; done += tiling.tile)
    plm_row_tiling_run(&tiling, 0, (char *)(C + done * N), (const char *)(A + done * K),
                       (const char *)B, rows - done < tiling.tile ? rows - done : tiling.tile,
                       (char *)padding);
  for (int64_t i = 0; i < rows * N; i++) {
    float wanted = 0;
    for (int64_t k = 0; k < K; k++) wanted += A[i / N * K + k] * B[i % N * K + k];
    if (C[i] != wanted) fail_msg("%d rows in tiles of %d: %d", (int)rows, (int)tile, (int)i);
  }
  assert_true(C[rows * N] == -1);
}

static void each_row_is_multiplied_once(void **state)
{
  struct plm_row_products *products = plm_row_products_open(NULL);
  (void)state;
  differs = in_4;
  is_missing = NULL;
  struct plm_row_family *family = plm_row_family_get(products, &shape);
  for (int64_t rows = 1; rows <= ROWS; rows += rows < 100 ? 1 : 61)
    for (int64_t tile = 1; tile <= 301; tile += 100)
      for (int turned = 0; turned < 2; turned++) multiply(family, rows, tile, turned);
  plm_row_products_close(products);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_unit_with_the_tallest_product_is_chosen),
      cmocka_unit_test(few_rows_have_small_products),
      cmocka_unit_test(each_row_is_multiplied_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
