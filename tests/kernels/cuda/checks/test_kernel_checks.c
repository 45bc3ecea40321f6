/* The checks of the kernels for sm_90a: how many processes they take, and what later processes
 * remember of them. Emulated. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/fewer.h"
#include "tests/support/harness/scratch.h"

#define ALL "attention sm90, backward tuned, relu2 tuned"
#define NONE "attention mma, relu2 library"

static int forks;

static void count_fork(void)
{
  forks++;
}

#define WRONG_PRODUCT \
  "products and relu2 run one after the other: relu2 of a product differs from the library's"
#define WRONG_ATTENTION "attention runs on mma.sync: the output differs from that of mma.sync"

/* What is recorded of kernels that the check found wrong, and not of those that were not in
 * question. */
static void check_fallback(const struct plm_ops *ops, bool wrong)
{
  if (!wrong)
    assert_null(ops->fallback);
  else if (getenv("PLM_CUDA_ATTENTION") != NULL)
    assert_string_equal(ops->fallback, WRONG_PRODUCT);
  else
    assert_string_equal(ops->fallback, WRONG_ATTENTION "; " WRONG_PRODUCT);
}

/* Opens a backend on a card of 9.0 as a new process would, and checks which kernels it uses, how
 * many children it needed, and what it reports. */
static void opens(bool wrong, const char *kernels, int children)
{
  struct plm_ops *ops;
  plm_emulation_capability(90, wrong); /* forgets what this process has checked */
  forks = 0;
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  assert_string_equal(ops->kernels, kernels);
  assert_int_equal(forks, children);
  const bool none = strcmp(kernels, NONE) == 0;
  assert_string_equal(ops->isa, none ? "sm_90" : "sm_90a");
  check_fallback(ops, none);
  ops->close(ops);
}

static void use_folder(const char *name)
{
  assert_int_equal(setenv("PLM_ALGORITHM_CACHE", name[0] != '\0' ? scratch_path(name) : "", 1), 0);
}

static const char *file_of(const char *check)
{
  static char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s/checked-emulation-3-%s", getenv("PLM_ALGORITHM_CACHE"), check);
  return path;
}

/* Later processes check nothing again: kernels that are wrong by then are used. */
static void one_child_checks_all(void **unused)
{
  (void)unused;
  use_folder("all");
  opens(false, ALL, 1);
  assert_true(plm_file_exists(file_of("attention")));
  assert_true(plm_file_exists(file_of("attention-backward")));
  assert_true(plm_file_exists(file_of("product")));
  opens(true, ALL, 1);
}

/* After a fault, each check is made in a child of its own. Without attention on sm_90a there is no
 * backward pass of it. */
static void a_fault_needs_a_child_for_each(void **unused)
{
  (void)unused;
  use_folder("");
  opens(true, NONE, 3);
  use_folder("fault");
  opens(true, NONE, 3);
  assert_false(plm_file_exists(file_of("attention"))); /* failures are not kept */
  assert_false(plm_file_exists(file_of("attention-backward")));
  assert_false(plm_file_exists(file_of("product")));
  if (fewer_of(1, 0) == 1) opens(false, ALL, 1);
}

/* A file that is not what this build would write on this card is void: the check is made again, by
 * one child, and after it failed by another. */
static void another_build_or_driver_is_checked(void **unused)
{
  (void)unused;
  use_folder("other");
  assert_int_equal(setenv("PLM_CUDA_ATTENTION", "mma", 1), 0); /* whose checks take long */
  opens(false, "attention mma, relu2 tuned", 1);
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(file_of("product"), 4096, &text, &size, NULL), PLM_OK);
  for (int part = 0; part < 5; part++) { /* a byte in each quarter, and at last one byte less */
    const size_t at = (size - 1) * (size_t)part / 4;
    const char kept = text[at];
    text[at] = kept == 'x' ? 'y' : 'x';
    const size_t written = part < 4 ? size : size - 1;
    assert_int_equal(plm_file_write(file_of("product"), text, written, 0644, NULL), PLM_OK);
    opens(true, NONE, 2);
    text[at] = kept;
  }
  opens(false, "attention mma, relu2 tuned", 1);
  opens(true, "attention mma, relu2 tuned", 1);
  assert_int_equal(unsetenv("PLM_CUDA_ATTENTION"), 0);
  free(text);
}

/* Forced kernels are neither checked nor remembered. */
static void forced_kernels_are_not_kept(void **unused)
{
  (void)unused;
  use_folder("forced");
  assert_int_equal(setenv("PLM_CUDA_ATTENTION", "sm90", 1), 0);
  opens(false, "attention sm90, relu2 tuned", 1);
  assert_false(plm_file_exists(file_of("attention")));
  assert_false(plm_file_exists(file_of("attention-backward")));
  assert_true(plm_file_exists(file_of("product")));
  assert_int_equal(setenv("PLM_CUDA_RELU2", "fused", 1), 0);
  opens(false, "attention sm90, relu2 fused", 0);
  assert_int_equal(unsetenv("PLM_CUDA_RELU2"), 0);
  assert_int_equal(unsetenv("PLM_CUDA_ATTENTION"), 0);
}

/* Each variable takes its two values, and the kernels of 9.0 only on such a card. */
static void choices_are_checked(void **unused)
{
  (void)unused;
  static const struct {
    const char *variable, *others, *own;
  } all[] = {{"PLM_CUDA_ATTENTION", "mma", "sm90"},
             {"PLM_CUDA_ATTENTION_BACKWARD", "split", "onepass"},
             {"PLM_CUDA_RELU2", "library", "fused"}};
  char expected[256];
  struct plm_ops *ops;
  plm_emulation_capability(86, false);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct plm_error error = {0};
    assert_int_equal(setenv(all[i].variable, "fast", 1), 0);
    assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error), PLM_CONFIG);
    snprintf(expected, sizeof expected, "%s=fast: no such choice", all[i].variable);
    assert_string_equal(error.what, expected);
    snprintf(expected, sizeof expected, "set it to %s or %s, or unset it", all[i].others,
             all[i].own);
    assert_string_equal(error.hint, expected);
    error = (struct plm_error){0};
    assert_int_equal(setenv(all[i].variable, all[i].own, 1), 0);
    assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, &error), PLM_UNSUPPORTED);
    snprintf(expected, sizeof expected,
             "%s=%s: device 0 has compute capability 8.6, and these kernels need 9.0",
             all[i].variable, all[i].own);
    assert_string_equal(error.what, expected);
    assert_string_equal(error.hint, "unset it: the backend chooses kernels for the device");
    for (int empty = 0; empty < 2; empty++) {
      assert_int_equal(setenv(all[i].variable, empty != 0 ? "" : all[i].others, 1), 0);
      assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
      assert_string_equal(ops->isa, "sm_80");
      assert_null(ops->fallback);
      ops->close(ops);
    }
    assert_int_equal(unsetenv(all[i].variable), 0);
  }
}

/* The kernels for sm_90a compute in bf16; a backend of fp32 neither checks nor uses them. */
static void fp32_needs_no_check(void **unused)
{
  (void)unused;
  struct plm_ops *ops;
  use_folder("fp32");
  plm_emulation_capability(90, true);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
  assert_string_equal(ops->isa, "sm_90");
  assert_null(ops->kernels);
  assert_null(ops->fallback);
  ops->close(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_child_checks_all),
      cmocka_unit_test(a_fault_needs_a_child_for_each),
      cmocka_unit_test(another_build_or_driver_is_checked),
      cmocka_unit_test(forced_kernels_are_not_kept),
      cmocka_unit_test(choices_are_checked),
      cmocka_unit_test(fp32_needs_no_check),
  };
  pthread_atfork(count_fork, NULL, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
