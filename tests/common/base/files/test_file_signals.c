/* Reading and writing files while signals come, or on a disk that fails. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static plm_status read_back(const char *path, struct plm_error *error)
{
  char *bytes = NULL, part[4] = "";
  size_t size = 0;
  struct plm_hash hash;
  uint64_t hashed = 0;
  errno = EINTR; /* what an earlier call has left means nothing */
  PLM_TRY(plm_file_read(path, 64, &bytes, &size, error));
  assert_int_equal(size, 10);
  assert_string_equal(bytes, "0123456789");
  free(bytes);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return plm_error_errno(error, "open");
  const plm_status status = plm_file_read_at(file, part, 4, 6, path, error);
  if (status == PLM_OK) assert_memory_equal(part, "6789", 4);
  close(file);
  PLM_TRY(status);
  errno = EINTR;
  PLM_TRY(plm_hash_file(path, &hash, &hashed, NULL, error));
  assert_int_equal(hashed, 10);
  return PLM_OK;
}

static plm_status write_and_read(void *context, struct plm_error *error)
{
  const char *folder = scratch_path("new/folder"), *path = scratch_path("new/folder/file");
  const long at = failing_disk_pause();
  (void)context;
  plm_path_remove(scratch_path("new"), NULL);
  failing_disk_resume(at);
  PLM_TRY(plm_directory_make(folder, error));
  PLM_TRY(plm_file_write(path, "0123456789", 10, 0644, error));
  PLM_TRY(read_back(path, error));
  PLM_TRY(plm_file_replace(path, "0123456789", 10, 0644, error));
  PLM_TRY(plm_file_replace_unsynced(path, "0123456789", 10, 0644, error));
  PLM_TRY(plm_file_sync(path, error));
  PLM_TRY(plm_parent_sync(path, error));
  PLM_TRY(read_back(path, error));
  return plm_path_remove(folder, error);
}

static void failures_are_said_and_signals_change_nothing(void **state)
{
  (void)state;
  failing_disk_try(write_and_read, NULL, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failures_are_said_and_signals_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
