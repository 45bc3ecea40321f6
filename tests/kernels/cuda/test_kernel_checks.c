/* The checks of the kernels for sm_90a: how many processes they take, and what later processes
 * remember of them. Emulated. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/scratch.h"

#define ALL "attention sm90, backward tuned, relu2 tuned"
#define NONE "attention mma, relu2 library"

static int forks;

static void count_fork(void)
{
  forks++;
}

/* Opens a backend on a card of 9.0 as a new process would, and checks which kernels it uses and how
 * many children it needed. */
static void opens(bool wrong, const char *kernels, int children)
{
  struct plm_ops *ops;
  plm_emulation_capability(90, wrong); /* forgets what this process has checked */
  forks = 0;
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  assert_string_equal(ops->kernels, kernels);
  assert_int_equal(forks, children);
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
  opens(false, ALL, 1); /* failures are not kept */
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_child_checks_all),
      cmocka_unit_test(a_fault_needs_a_child_for_each),
      cmocka_unit_test(another_build_or_driver_is_checked),
      cmocka_unit_test(forced_kernels_are_not_kept),
  };
  pthread_atfork(count_fork, NULL, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
