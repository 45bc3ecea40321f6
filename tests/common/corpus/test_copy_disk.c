/* A corpus that is copied into a cache while the disk fails or signals come, beside what an earlier
 * attempt has left: the copy is complete or there is none. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static char directory[PLM_PATH_SIZE], cache[PLM_PATH_SIZE];
static const struct plm_corpus_options copying = {.cache_dir = cache};

static int write_corpus(void **state)
{
  static const struct written_corpus of = {PLM_TOKENIZER_ESM, {5, 0, 0}, 9, 0, false};
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  plm_corpus_close(written_corpus_open("corpus", &of));
  snprintf(directory, sizeof directory, "%s", scratch_path("corpus"));
  snprintf(cache, sizeof cache, "%s", scratch_path("cache"));
  return 0;
}

static plm_status open_copy(struct plm_error *error)
{
  struct plm_corpus *corpus;
  PLM_TRY(plm_corpus_open(directory, &copying, &corpus, error));
  const bool copied = strncmp(plm_corpus_path(corpus), cache, strlen(cache)) == 0;
  plm_corpus_close(corpus);
  assert_true(copied);
  return PLM_OK;
}

/* Makes the copy a folder that an earlier attempt has left. */
static void leave_part(void)
{
  char name[PLM_PATH_SIZE] = "", part[PLM_PATH_SIZE];
  struct dirent *entry;
  DIR *folder = opendir(cache);
  assert_non_null(folder);
  while ((entry = readdir(folder)) != NULL)
    if (strlen(entry->d_name) == PLM_HASH_HEX_SIZE - 1)
      assert_int_equal(plm_path_join(name, cache, entry->d_name, NULL), PLM_OK);
  closedir(folder);
  assert_true(snprintf(part, sizeof part, "%s.part", name) < (int)sizeof part);
  assert_int_equal(rename(name, part), 0);
}

static plm_status copy_again(void *context, struct plm_error *error)
{
  struct plm_error again = {0};
  (void)context;
  long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(cache, NULL), PLM_OK);
  assert_int_equal(open_copy(NULL), PLM_OK);
  leave_part();
  failing_disk_resume(at);
  const plm_status status = open_copy(error);
  at = failing_disk_pause();
  if (open_copy(&again) != PLM_OK) fail_msg("after \"%s\": %s", error->what, again.what);
  failing_disk_resume(at);
  return status;
}

static void a_copy_is_complete_or_missing(void **state)
{
  /* what cannot be read of the new copy is made again */
  static const char *const made_again[] = {"read */cache/*/corpus.json",
                                           "read */cache/*/corpus.json", "pread */cache/*/data.mdb",
                                           "pread */cache/*/data.mdb", NULL};
  (void)state;
  failing_disk_try(copy_again, NULL, made_again);
}

static void signals_do_not_end_a_copy(void **state)
{
  (void)state;
  failing_disk_interrupt(copy_again, NULL, "pread *", 4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_copy_is_complete_or_missing),
      cmocka_unit_test(signals_do_not_end_a_copy),
  };
  return cmocka_run_group_tests(tests, write_corpus, NULL);
}
