/* What a code of LMDB means: a full disk, a limit on the size of files, or something else. */
#include "stages/ingest/lmdb_error.h"

#include <errno.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "common/corpus/corpus_description.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static void codes_have_a_meaning(void **state)
{
  enum { SIZE = 100 }; /* of the file that LMDB writes */
  static const struct {
    int code;
    rlim_t limit; /* 0: none */
    size_t needed;
    plm_status status;
    const char *what;
  } cases[] = {
      {EIO, 0, 0, PLM_IO, "Input/output error"},
      {EIO, 0, SIZE_MAX, PLM_NO_SPACE, "No space left on device"},
      {ENOSPC, 0, 0, PLM_NO_SPACE, "No space left on device"},
      {EDQUOT, 0, 0, PLM_NO_SPACE, "Disk quota exceeded"},
      {EFBIG, 0, 0, PLM_LIMIT, "File too large"},
      {EIO, SIZE, SIZE_MAX, PLM_LIMIT, "File too large"},
      {ENOSPC, SIZE, 0, PLM_LIMIT, "File too large"},
      {EIO, SIZE + 1, 0, PLM_IO, "Input/output error"},
      {EACCES, SIZE, SIZE_MAX, PLM_IO, "Permission denied"},
      {ENOMEM, 0, 0, PLM_NO_MEMORY, "Cannot allocate memory"},
      {MDB_CORRUPTED, 0, SIZE_MAX, PLM_IO, "MDB_CORRUPTED: Located page was wrong type"},
  };
  const char *folder = scratch_directory();
  char what[512], data[SIZE] = "";
  struct rlimit before;
  (void)state;
  scratch_write(scratch_path(PLM_CORPUS_DATA), data, sizeof data);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    const struct rlimit limit = {cases[i].limit, before.rlim_max};
    if (cases[i].limit != 0) assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const plm_status status =
        plm_lmdb_write_error(folder, cases[i].needed, cases[i].code, "write", &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    snprintf(what, sizeof what, "cannot write %.200s: %s", folder, cases[i].what);
    assert_string_equal(error.what, what);
    assert_int_equal(status, cases[i].status);
    assert_int_equal(strstr(error.hint, "twice the size") != NULL, status == PLM_NO_SPACE);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(codes_have_a_meaning)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
