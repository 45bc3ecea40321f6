/* Fetching a corpus whose description is malformed, large or long, and to a disk that fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "common/fetch/fetch.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fetch_head.h"

static struct plm_fetch_options options_of(const struct fetch_head *head, const char *cache)
{
  return (struct plm_fetch_options){
      .endpoint = head->bound, .cache = scratch_path(cache), .limit_bytes = 1 << 30};
}

static plm_status fetch_anew(void *context, struct plm_error *error)
{
  struct plm_fetched fetched = {0};
  const struct plm_fetch_options *options = context;
  PLM_TRY(plm_path_remove(options->cache, error));
  const plm_status status = plm_fetch_corpora(options, &fetched, error);
  plm_fetched_release(&fetched);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {
      /* a copy that cannot be read once it has its name is made again */
      "open */fails/*[0-9a-f]/corpus.json",
      "read */fails/*[0-9a-f]/corpus.json",
      "read */fails/*[0-9a-f]/corpus.json",
      "open */fails/*[0-9a-f]/data.mdb",
      "pread */fails/*[0-9a-f]/data.mdb",
      "pread */fails/*[0-9a-f]/data.mdb",
      NULL};
  struct fetch_head head;
  fetch_head_open(&head, 1);
  char cache[200];
  struct plm_fetch_options options = options_of(&head, "fails");
  snprintf(cache, sizeof cache, "%.199s", options.cache);
  options.cache = cache;
  failing_disk_try(fetch_anew, &options, unnoticed);
  fetch_head_close(&head);
}

/* A description that is none is named by where it came from. */
static void a_malformed_description_is_named(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_error error = {0};
  char expected[400];
  fetch_head_open(&head, 1);
  const struct plm_fetch_options options = options_of(&head, "malformed");
  fetch_head_lies = true;
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_CORRUPT);
  fetch_head_lies = false;
  snprintf(expected, sizeof expected, "the corpus.json at %s is not the description of a corpus",
           head.bound);
  assert_string_equal(error.what, expected);
  fetch_head_lies = 64 << 20;
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_NOT_FOUND); /* of its end */
  fetch_head_lies++;
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_LIMIT);
  fetch_head_lies = 0;
  fetch_head_close(&head);
}

/* The size of data.mdb is that of the description, or the corpus was replaced meanwhile. */
static void a_replaced_corpus_is_an_error(void **state)
{
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  char expected[400], path[PLM_PATH_SIZE];
  uint64_t size;
  fetch_head_open(&head, 1);
  const struct plm_fetch_options options = options_of(&head, "replaced");
  assert_int_equal(plm_path_join(path, head.folders[0], PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(plm_file_size(path, &size, NULL), PLM_OK);
  snprintf(expected, sizeof expected, "%s sends another corpus than at the beginning", head.bound);
  struct plm_error error = {0};
  fetch_head_data_bytes = size + 1;
  assert_int_equal(plm_fetch_corpora(&options, &fetched, &error), PLM_CORRUPT);
  assert_string_equal(error.what, expected);
  assert_int_equal(fetched.count, 0);
  fetch_head_data_bytes = size;
  assert_int_equal(plm_fetch_corpora(&options, &fetched, NULL), PLM_OK);
  plm_fetched_release(&fetched);
  fetch_head_data_bytes = 0;
  fetch_head_close(&head);
}

/* A description may have several parts. */
static void a_long_description_is_fetched(void **state)
{
  enum { MORE = (1 << 20) + 5 };
  (void)state;
  struct fetch_head head;
  struct plm_fetched fetched = {0};
  struct plm_corpus_description description;
  struct plm_text longer = {0};
  char path[PLM_PATH_SIZE], *name = malloc(MORE);
  size_t size;
  fetch_head_open(&head, 1);
  assert_int_equal(plm_path_join(path, head.folders[0], PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  assert_int_equal(plm_corpus_description_read(head.folders[0], &description, NULL), PLM_OK);
  memset(name, 'n', MORE - 1);
  name[MORE - 1] = '\0';
  free(description.ingested[0].name);
  description.ingested[0].name = name;
  plm_corpus_description_print(&description, true, &longer);
  plm_corpus_description_deinit(&description);
  scratch_write(path, longer.data, longer.length);
  const struct plm_fetch_options options = options_of(&head, "long");
  assert_int_equal(plm_fetch_corpora(&options, &fetched, NULL), PLM_OK);
  char *got;
  assert_int_equal(plm_path_join(path, fetched.paths[0], PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 24, &got, &size, NULL), PLM_OK);
  assert_int_equal(size, longer.length);
  assert_memory_equal(got, longer.data, size);
  free(got);
  plm_text_deinit(&longer);
  plm_fetched_release(&fetched);
  fetch_head_close(&head);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_failure_of_the_disk_is_an_error),
      cmocka_unit_test(a_malformed_description_is_named),
      cmocka_unit_test(a_replaced_corpus_is_an_error),
      cmocka_unit_test(a_long_description_is_fetched),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
