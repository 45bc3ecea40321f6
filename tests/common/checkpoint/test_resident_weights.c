/* While weights are read, the pages of their file do not stay in the process's memory beside them.
 */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor_shards.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { TENSORS = 16, ELEMENTS = 1 << 20, MIB = 1 << 20 };

static struct plm_parameter table[TENSORS];
static float *expected; /* values of all tensors */

static void make_table(void)
{
  for (size_t i = 0; i < TENSORS; i++) {
    snprintf(table[i].name, sizeof table[i].name, "plm.parameter.%zu", i);
    table[i].ndim = 1;
    table[i].rows = 1;
    table[i].cols = ELEMENTS;
    table[i].count = ELEMENTS;
    table[i].offset = i * ELEMENTS;
  }
}

static const char *write_file(void)
{
  struct plm_error error = {0};
  const char *path = scratch_path("model.safetensors");
  make_table();
  expected = must(malloc((size_t)TENSORS * ELEMENTS * sizeof *expected));
  for (size_t i = 0; i < (size_t)TENSORS * ELEMENTS; i++) expected[i] = (float)(i % 8191);
  must_work(plm_parameters_write(path, table, TENSORS, expected, &error), &error);
  return path;
}

static int read_whole(const char *path)
{
  float *values = must(malloc((size_t)TENSORS * ELEMENTS * sizeof *values));
  if (plm_parameters_read(path, table, TENSORS, values, NULL) != PLM_OK) return 1;
  const bool same =
      values[0] == 0 && values[ELEMENTS * 5 + 7] == (float)((ELEMENTS * 5 + 7) % 8191);
  free(values);
  return same ? 0 : 2;
}

/* Values of 64 MiB from a file of the same size take 64 MiB, not 128. */
static void pages_of_tensors_that_were_read_are_given_back(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer keeps memory that was freed");
  const char *path = write_file();
  struct rusage usage;
  int ended;
  free(expected);
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(read_whole(path));
  assert_int_equal(wait4(child, &ended, 0, &usage), child);
  assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
  const long mebibytes = usage.ru_maxrss / 1024;
  if (mebibytes < 64 || mebibytes > 64 + 48) fail_msg("%ld MiB were resident", mebibytes);
}

/* A tensor may be read again. Bytes that the caller owns are left alone. */
static void tensors_can_be_read_after_their_release(void **state)
{
  (void)state;
  const char *path = write_file();
  struct plm_tensor_shards *files;
  struct plm_error error = {0};
  must_work(plm_tensor_shards_open(path, &files, &error), &error);
  for (int again = 0; again < 2; again++)
    for (size_t i = 0; i < TENSORS; i++) {
      const struct plm_tensor_info *tensor = plm_tensor_shards_find(files, table[i].name);
      assert_memory_equal(tensor->data, expected + i * ELEMENTS, ELEMENTS * sizeof *expected);
      plm_tensor_shards_release(files, tensor);
    }
  plm_tensor_shards_close(files);

  char *bytes;
  size_t size;
  struct plm_safetensors *owned;
  must_work(plm_file_read(path, 128 * MIB, &bytes, &size, &error), &error);
  must_work(plm_safetensors_parse(bytes, size, "owned", &owned, &error), &error);
  const struct plm_tensor_info *tensor = plm_safetensors_find(owned, table[3].name);
  plm_safetensors_release(owned, tensor);
  assert_memory_equal(tensor->data, expected + 3 * ELEMENTS, ELEMENTS * sizeof *expected);
  plm_safetensors_close(owned);
  free(bytes);
  free(expected);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pages_of_tensors_that_were_read_are_given_back),
      cmocka_unit_test(tensors_can_be_read_after_their_release),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
