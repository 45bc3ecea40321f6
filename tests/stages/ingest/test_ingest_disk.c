/* `ingest` while each call to the disk or to LMDB fails in turn: the error is passed on, and what
 * has the name of the corpus is complete. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "common/run/stop.h"
#include "stages/ingest/ingest.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/failing_lmdb.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { DOCUMENTS = PLM_GROUP_DOCUMENTS + 4 };

static char directory[200], in[200], clusters[200];
static const char *const inputs[] = {in};

static uint64_t documents_of_corpus(void)
{
  struct plm_corpus_description description;
  if (plm_corpus_description_read(directory, &description, NULL) != PLM_OK) return 0;
  const uint64_t documents = description.info.splits[PLM_SPLIT_TRAIN].documents;
  plm_corpus_description_deinit(&description);
  return documents;
}

/* What no corpus needs: the size of the input for its progress, leftovers of others, and a lock. */
#define UNNOTICED \
  "+stat */in.*", "opendir */parent", "+readdir */parent", "open */corpus.tmp-*[0-9]"

/* A new corpus, of which nothing is left if it is not complete. */
static plm_status ingest_new(void *context, struct plm_error *error)
{
  const struct plm_ingest_options *options = context;
  struct plm_ingest_result result = {0};
  const plm_status status = plm_ingest(options, &result, error);
  const long at = failing_disk_pause();
  const bool exists = plm_file_exists(directory);
  const bool unsynced = failing_disk_failed(scratch_path("parent")); /* once it was renamed */
  assert_true(exists == (status == PLM_OK) || (exists && unsynced));
  if (exists) assert_true(documents_of_corpus() > 0);
  assert_int_equal(plm_path_remove(directory, NULL), PLM_OK);
  failing_disk_resume(at);
  return status;
}

/* A corpus that takes the place of another one. */
static plm_status ingest_again(void *context, struct plm_error *error)
{
  const struct plm_ingest_options *options = context;
  struct plm_ingest_result result = {0};
  const plm_status status = plm_ingest(options, &result, error);
  const long at = failing_disk_pause();
  assert_int_equal(documents_of_corpus(), DOCUMENTS);
  failing_disk_resume(at);
  return status;
}

static struct plm_ingest_options options_for(void)
{
  struct plm_ingest_options options = {.writer = {.directory = directory, .threads = 1},
                                       .inputs = inputs,
                                       .input_count = 1,
                                       .min_length = 1,
                                       .max_residues = 1000,
                                       .jobs = 1};
  must_work(plm_split_rule_parse("train=1", &options.splits, NULL), NULL);
  return options;
}

static void a_corpus_is_replaced_by_a_complete_one(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {UNNOTICED, "+readdir */parent", NULL};
  char text[DOCUMENTS * 16] = "";
  size_t size = 0;
  for (int i = 0; i < DOCUMENTS; i++)
    size += (size_t)snprintf(text + size, sizeof text - size, ">%d\nLAG\n", i);
  scratch_write(in, text, size);
  struct plm_ingest_options options = options_for();
  struct plm_ingest_result result = {0};
  struct plm_error error = {0};
  must_work(plm_ingest(&options, &result, &error), &error);
  options.writer.force = true;
  failing_disk_try(ingest_again, &options, unnoticed);
}

static void a_clustered_corpus_is_complete_or_nothing(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {UNNOTICED, NULL};
  static const char fasta[] =
      ">a\nLAGVSERTIDPKQ\n>b\nLAGVSERTIDPKQ\n>c\nNFYMHWCLAG\n>d\nSERTID\n>c\nL\n",
                    table[] = "a\ta\na\tb\nc\tc\nc\td\na\tb\n";
  assert_int_equal(plm_path_remove(directory, NULL), PLM_OK);
  scratch_write(in, fasta, sizeof fasta - 1);
  scratch_write(clusters, table, sizeof table - 1);
  struct plm_ingest_options options = options_for();
  options.clusters = clusters;
  options.deduplicate = true;
  options.writer.clustered = true;
  failing_disk_try(ingest_new, &options, unnoticed);
}

/* With labels and splits from a table, which is read once for each column. */
static void a_labelled_corpus_is_complete_or_nothing(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {UNNOTICED, NULL};

  static const char csv[] = "name,sequence,n,part\na,LAGVSERTIDPKQ,1.5,train\n"
                            "b,LAGVSERTI,2.5,train\nc,NFYMHWCLAG,3.5,valid\n",
                    lines[] = "a\ta\na\tb\nc\tc\n";
  assert_int_equal(plm_path_remove(directory, NULL), PLM_OK);
  snprintf(in, sizeof in, "%.199s", scratch_path("in.csv"));
  scratch_write(in, csv, sizeof csv - 1);
  scratch_write(clusters, lines, sizeof lines - 1);
  struct plm_ingest_options options = options_for();
  options.labels.columns = "n";
  options.labels.split_column = "part";
  failing_disk_try(ingest_new, &options, unnoticed);
  options.labels.split_column = NULL;
  options.clusters = clusters;
  options.writer.clustered = true;
  failing_disk_try(ingest_new, &options, unnoticed);
}

/* Whatever it was doing. */
static void a_signal_leaves_no_corpus(void **state)
{
  (void)state;
  struct plm_ingest_result result = {0};
  struct plm_error error = {0};
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  scratch_write(in, ">a\nLAGV\n", 8);
  const struct plm_ingest_options options = options_for();
  plm_stop_requested = SIGTERM;
  const plm_status status = plm_ingest(&options, &result, &error);
  plm_stop_requested = 0;
  assert_int_equal(status, PLM_TERMINATED);
  assert_string_equal(error.what, "stopped by SIGTERM; no corpus was written");
  assert_false(plm_file_exists(directory));
}

static int setup(void **state)
{
  (void)state;
  snprintf(directory, sizeof directory, "%.199s", scratch_path("parent/corpus"));
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(clusters, sizeof clusters, "%.199s", scratch_path("clusters.tsv"));
  must_work(plm_directory_make(scratch_path("parent"), NULL), NULL);
  plm_log_init("t", PLM_LOG_ERROR);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_corpus_is_replaced_by_a_complete_one),
      cmocka_unit_test(a_clustered_corpus_is_complete_or_nothing),
      cmocka_unit_test(a_labelled_corpus_is_complete_or_nothing),
      cmocka_unit_test(a_signal_leaves_no_corpus),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
