/* Where a corpus is written: the form of its path, what may be there before, and what writers that
 * were killed have left beside it. */
#include "stages/ingest/corpus_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/corpus/corpus_description.h"
#include "common/run/stop.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static plm_status write_corpus(const char *directory, bool force, uint64_t documents,
                               struct plm_error *error)
{
  struct plm_corpus_writer *writer;
  /* one thread for each core */
  const struct plm_corpus_writer_options options = {.directory = directory, .force = force};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = documents};
  PLM_TRY(plm_corpus_writer_open(&options, &writer, error));
  for (uint64_t i = 0; i < documents; i++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "x", 1,
                                           (const uint8_t *)"LAGVSERT", 8, NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  return PLM_OK;
}

static plm_status write_groups(void *context, struct plm_error *error)
{
  enum { DOCUMENTS = 5 * PLM_GROUP_DOCUMENTS + 1 };
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {
      .directory = context, .force = true, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = DOCUMENTS};
  PLM_TRY(plm_path_remove(context, error));
  PLM_TRY(plm_corpus_writer_open(&options, &writer, error));
  plm_status status = PLM_OK;
  for (uint64_t i = 0; i < DOCUMENTS && status == PLM_OK; i++)
    status = plm_corpus_writer_add(writer, i % 2 ? PLM_SPLIT_TRAIN : PLM_SPLIT_TEST, "x", 1,
                                   (const uint8_t *)"LAGVSERT", 8, error);
  if (status == PLM_OK)
    status = plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, error);
  if (status != PLM_OK) assert_null(strstr(error->hint, "needs twice the size")); /* it has room */
  plm_corpus_writer_close(writer);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {"open */fails.tmp-*[0-9]", NULL}; /* to lock it */
  char directory[200];
  snprintf(directory, sizeof directory, "%.199s", scratch_path("fails"));
  failing_disk_try(write_groups, directory, unnoticed);
}

static void expect_corpus(const char *directory, uint64_t documents)
{
  struct plm_corpus_description description;
  assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
  assert_int_equal(description.info.splits[PLM_SPLIT_TRAIN].documents, documents);
  plm_corpus_description_deinit(&description);
}

static void slashes_at_the_end_do_not_count(void **state)
{
  (void)state;
  static const char *const endings[] = {"", "/", "///"};
  for (uint64_t i = 0; i < 3; i++) {
    char name[32], given[PLM_PATH_SIZE];
    snprintf(name, sizeof name, "new/folder/%d", (int)i);
    snprintf(given, sizeof given, "%.4000s%s", scratch_path(name), endings[i]);
    assert_int_equal(write_corpus(given, false, 1 + i, NULL), PLM_OK);
    expect_corpus(scratch_path(name), 1 + i);
  }
  struct plm_error error = {0};
  assert_int_equal(write_corpus("", false, 1, &error), PLM_USAGE);
  assert_string_equal(error.what, "--corpus needs a path of 1 to 4032 bytes");
  assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0); /* what was not opened is not closed */
}

static void only_a_corpus_is_replaced(void **state)
{
  (void)state;
  struct plm_error error = {0};
  const char *corpus = scratch_path("corpus"), *other = scratch_path("other");
  assert_int_equal(plm_directory_make(corpus, NULL), PLM_OK);
  assert_int_equal(write_corpus(corpus, false, 3, NULL), PLM_OK); /* it was empty */
  assert_int_equal(write_corpus(corpus, false, 5, &error), PLM_EXISTS);
  assert_string_equal(error.hint, "replace it with --force, or choose another --corpus DIR");
  expect_corpus(corpus, 3);
  assert_int_equal(write_corpus(corpus, true, 5, NULL), PLM_OK);
  expect_corpus(corpus, 5);

  assert_int_equal(plm_directory_make(other, NULL), PLM_OK);
  scratch_write(scratch_path("other/file"), "x", 1);
  for (int force = 0; force < 2; force++) {
    error = (struct plm_error){0};
    assert_int_equal(write_corpus(other, force != 0, 1, &error), PLM_EXISTS);
    assert_non_null(strstr(error.what, "other exists and is not a corpus"));
    assert_string_equal(error.hint, "choose another --corpus DIR");
  }
  assert_true(plm_file_exists(scratch_path("other/file")));
}

/* Only of killed writers of the same corpus. */
static void leftovers_are_removed(void **state)
{
  (void)state;
  const char *corpus = scratch_path("mine");
  const char *left = scratch_path("mine.tmp-4000001/build"),
             *foreign = scratch_path("theirs.tmp-4000001/build");
  assert_int_equal(plm_directory_make(left, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(foreign, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(scratch_path("mine.tmp-kept"), NULL), PLM_OK);
  assert_int_equal(write_corpus(corpus, false, 1, NULL), PLM_OK);
  assert_false(plm_file_exists(scratch_path("mine.tmp-4000001")));
  assert_true(plm_file_exists(scratch_path("mine.tmp-kept")));
  assert_true(plm_file_exists(foreign));
}

/* Nothing is left of one that is not finished. */
static void an_unfinished_corpus_is_nothing(void **state)
{
  (void)state;
  char own[64];
  struct plm_corpus_writer *writer;
  const char *corpus = scratch_path("unfinished");
  const struct plm_corpus_writer_options options = {.directory = corpus, .threads = 1};
  snprintf(own, sizeof own, "unfinished.tmp-%ld", (long)getpid());
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  assert_true(plm_file_exists(scratch_path(own)));
  plm_corpus_writer_close(writer);
  assert_false(plm_file_exists(scratch_path(own)));
  assert_false(plm_file_exists(corpus));
}

struct stopping {
  bool at_end;
  unsigned calls;
};

static void stop_while_verifying(void *context, uint64_t done, uint64_t total)
{
  struct stopping *stopping = context;
  assert_true(done <= total);
  stopping->calls++;
  if (!stopping->at_end || done == total) plm_stop_requested = SIGTERM;
}

/* A stop signal is heard before the long copy, at the first group that is checked, and after the
 * last one. Nothing is left. */
static void finishing_can_be_stopped(void **state)
{
  (void)state;
  enum { DOCUMENTS = 4 * PLM_GROUP_DOCUMENTS };
  const char *corpus = scratch_path("stopped");
  const struct plm_corpus_writer_options options = {.directory = corpus, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = DOCUMENTS};
  char own[64], data[96];
  snprintf(own, sizeof own, "stopped.tmp-%ld", (long)getpid());
  snprintf(data, sizeof data, "%s/" PLM_CORPUS_DATA, own);
  for (int when = 0; when < 3; when++) {
    struct stopping stopping = {.at_end = when == 2};
    struct plm_error error = {0};
    struct plm_corpus_writer *writer;
    assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
    for (int i = 0; i < DOCUMENTS; i++)
      assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "x", 1,
                                             (const uint8_t *)"LAGVSERT", 8, NULL),
                       PLM_OK);
    if (when == 0) plm_stop_requested = SIGTERM;
    const plm_status status =
        plm_corpus_writer_finish(writer, &source, 1, stop_while_verifying, &stopping, NULL, &error);
    plm_stop_requested = 0;
    assert_int_equal(status, PLM_TERMINATED);
    assert_true(when < 2 ? stopping.calls == (unsigned)when : stopping.calls > 1);
    assert_int_equal(plm_file_exists(scratch_path(data)), when > 0);
    assert_string_equal(error.what, "stopped by SIGTERM");
    plm_corpus_writer_close(writer);
    assert_false(plm_file_exists(corpus));
    assert_false(plm_file_exists(scratch_path(own)));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_failure_of_the_disk_is_an_error),
      cmocka_unit_test(slashes_at_the_end_do_not_count),
      cmocka_unit_test(only_a_corpus_is_replaced),
      cmocka_unit_test(leftovers_are_removed),
      cmocka_unit_test(an_unfinished_corpus_is_nothing),
      cmocka_unit_test(finishing_can_be_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
