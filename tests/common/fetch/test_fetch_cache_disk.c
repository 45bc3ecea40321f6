/* A cache that cannot be listed, or an entry that cannot be removed, is an error, and the next
 * attempt makes the room. */
#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/fetch/fetch_cache.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static const char *const hashes[] = {"11111111111111111111111111111111",
                                     "22222222222222222222222222222222"};

static void put(const char *folder, const char *hash, const char *ending)
{
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s%s", folder, hash, ending);
  if (ending[0] == '\0' || ending[1] == 'p') {
    assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
    snprintf(path, sizeof path, "%s/%s%s/data.mdb", folder, hash, ending);
  }
  scratch_write(path, "12345", 5);
}

/* An empty folder may be left. */
static void has_no_data(const char *folder, const char *hash, const char *ending)
{
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s%s/data.mdb", folder, hash, ending);
  if (plm_file_exists(path)) fail_msg("%s is left", path);
}

static plm_status make_room(void *folder, struct plm_error *error)
{
  static const char *const endings[] = {".lock", "", ".part"};
  struct plm_error again = {0};
  long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  for (int i = 0; i < 6; i++) put(folder, hashes[i / 3], endings[i % 3]);
  failing_disk_resume(at);
  const plm_status status = plm_fetch_cache_make_room(folder, "", 30, 30, error);
  at = failing_disk_pause();
  if (plm_fetch_cache_make_room(folder, "", 30, 30, &again) != PLM_OK) fail_msg("%s", again.what);
  for (int i = 0; i < 6; i++)
    if (i % 3 != 0) has_no_data(folder, hashes[i / 3], endings[i % 3]);
  failing_disk_resume(at);
  return status;
}

static void each_failure_is_said(void **state)
{
  /* an entry without its lock counts as in use, and there is no room then */
  static const char *const locks[] = {"open */1*.lock", "open */2*.lock", NULL};
  char folder[PLM_PATH_SIZE];
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  scratch_run(folder);
  failing_disk_try(make_room, folder, locks);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
