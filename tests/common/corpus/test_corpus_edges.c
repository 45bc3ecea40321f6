/* The size and the first and last bytes by which a data file is known again when it is opened. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_description.h"
#include "common/corpus/corpus_format.h"
#include "tests/support/harness/scratch.h"

enum { EDGE = 1 << 20, SIZE = 3 * EDGE };

static plm_status check(const char *path, const struct plm_corpus_files *files,
                        struct plm_error *error)
{
  *error = (struct plm_error){0};
  return plm_corpus_check_edges(path, files, error);
}

/* A byte that differs is seen within a mebibyte of either end, and so is another size. */
static void both_edges_are_compared(void **state)
{
  static const struct {
    off_t at;
    bool seen;
  } rows[] = {{0, true},           {EDGE - 1, true}, {EDGE, false}, {SIZE - EDGE - 1, false},
              {SIZE - EDGE, true}, {SIZE - 1, true}};
  char path[PLM_PATH_SIZE], what[2 * PLM_PATH_SIZE];
  struct plm_corpus_files files = {0};
  struct plm_error error;
  (void)state;
  snprintf(path, sizeof path, "%s", scratch_path("data"));
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  assert_true(file >= 0 && ftruncate(file, SIZE) == 0);
  assert_int_equal(plm_corpus_edges(file, path, &files, NULL), PLM_OK);
  assert_int_equal(files.size_bytes, SIZE);
  assert_int_equal(check(path, &files, &error), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(pwrite(file, "x", 1, rows[i].at), 1);
    assert_int_equal(check(path, &files, &error), rows[i].seen ? PLM_CORRUPT : PLM_OK);
    snprintf(what, sizeof what, "%s is not the file that ingest wrote", path);
    if (rows[i].seen) assert_string_equal(error.what, what);
    assert_int_equal(pwrite(file, "", 1, rows[i].at), 1);
  }
  assert_int_equal(ftruncate(file, SIZE + 1), 0);
  assert_int_equal(check(path, &files, &error), PLM_CORRUPT);
  snprintf(what, sizeof what, "%s has 3145729 bytes instead of 3145728", path);
  assert_string_equal(error.what, what);
  close(file);
}

/* What has no end, such as a pipe, is no data file. */
static void a_file_without_a_size_is_an_error(void **state)
{
  struct plm_corpus_files files;
  struct plm_error error = {0};
  int ends[2];
  (void)state;
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  assert_int_equal(plm_corpus_edges(ends[0], "a pipe", &files, &error), PLM_IO);
  assert_string_equal(error.what, "cannot read a pipe: Illegal seek");
  close(ends[0]);
  close(ends[1]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_edges_are_compared),
      cmocka_unit_test(a_file_without_a_size_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
