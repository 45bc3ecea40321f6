/* Compares LayerNorm, the gradients of biases, and the kinds of norm of q and k with the reference
 * in double precision. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/layer_norm_case.h"

/* ---- LayerNorm ---- */
static void layer_norm_case(struct ops_case *c)
{
  static const struct layer_norm_case layers[] = {{1, 8, 0, true},   {3, 16, 0, false},
                                                  {5, 33, 1, true},  {31, 64, 0, false},
                                                  {65, 48, 3, true}, {130, 72, 0, true}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) layer_norm_case_run(c, &layers[i]);
}

/* The widths of the published models. A mean of many deviations costs accuracy only as far as x is
 * itself rounded. */
static void wide_layer_norm_case(struct ops_case *c)
{
  layer_norm_case_run(c, &(struct layer_norm_case){67, 320, 0, true});
  layer_norm_case_run(c, &(struct layer_norm_case){9, 480, 20, true});
  layer_norm_case_run(c, &(struct layer_norm_case){3, 960, 0, false});
}

/* The CUDA backend keeps a row in a warp's registers, with a kernel for each range of widths. Tests
 * all these kernels, rows that are not whole vectors, and rows too wide for registers. */
static void held_layer_norm_case(struct ops_case *c)
{
  static const int64_t widths[] = {8, 256, 264, 500, 768, 1024, 1280, 1536, 2048, 2056};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    layer_norm_case_run(c, &(struct layer_norm_case){3, widths[i], 0, i % 3 != 0});
}

static void layer_norms_match(void **state)
{
  (void)state;
  ops_case_each_cuda(held_layer_norm_case);
  ops_case_each(layer_norm_case);
  ops_case_each_cpu(wide_layer_norm_case);
}

/* A row of equal elements has no variance: its result is the bias, and nothing is infinite. */
static void equal_elements_case(struct ops_case *c)
{
  enum { N = 2, D = 24 };
  double *x = ops_case_zeros(c, N * D), *ones = ops_case_zeros(c, D);
  double *bias = ops_case_values(c, D, 1), *exact = ops_case_zeros(c, N * D);
  for (int64_t i = 0; i < N * D; i++) x[i] = 3;
  for (int64_t i = 0; i < D; i++) ones[i] = 1;
  const void *x_act = ops_case_act(c, x, N * D);
  void *out = ops_case_empty_act(c, N * D);
  const struct plm_layer_norm norm = {ops_case_float(c, ones, D), ops_case_float(c, bias, D),
                                      1e-5F};
  for (int64_t i = 0; i < N * D; i++) exact[i] = bias[i % D];
  c->ops->layer_norm_forward(c->ops, out, x_act, &norm, N, D);
  ops_case_check_act(c, "LayerNorm of equal elements", out, exact, N * D, 0);
}

static void equal_elements_give_the_bias(void **state)
{
  (void)state;
  ops_case_each(equal_elements_case);
}

/* ---- q and k ---- */
static void qkv_case(struct ops_case *c)
{
  static const int64_t shapes[][4] = {
      {1, 1, 1, 16}, {2, 37, 20, 16}, {1, 33, 5, 24}, {3, 20, 2, 64}, {1, 5, 15, 64}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int norm = PLM_QK_NORM_NONE; norm <= PLM_QK_NORM_WIDTH; norm++)
      layer_norm_case_qkv(c,
                          &(struct layer_norm_qkv){shapes[i][0], shapes[i][1], shapes[i][2],
                                                   shapes[i][3], (enum plm_qk_norm)norm, i == 3});
}

static void kinds_of_norm_match(void **state)
{
  (void)state;
  ops_case_each(qkv_case);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_norms_match),
      cmocka_unit_test(equal_elements_give_the_bias),
      cmocka_unit_test(kinds_of_norm_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
