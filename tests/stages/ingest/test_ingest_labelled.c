/* Ingest with a table of labels: each document keeps its own label, in its split or cluster. And a
 * signal that comes too late. */
#include "stages/ingest/ingest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/labels/label_record.h"
#include "common/run/stop.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char input[PLM_PATH_SIZE], clusters[PLM_PATH_SIZE], corpus[PLM_PATH_SIZE];
static const char *inputs[] = {input};

static int setup(void **state)
{
  char run[PLM_PATH_SIZE];
  (void)state;
  scratch_run(run);
  must_work(plm_path_join(input, run, "in.csv", NULL), NULL);
  must_work(plm_path_join(clusters, run, "clusters.tsv", NULL), NULL);
  must_work(plm_path_join(corpus, run, "corpus", NULL), NULL);
  return 0;
}

static struct plm_ingest_options options_of(const char *columns, const char *split_column)
{
  struct plm_ingest_options options = {
      .writer = {.directory = corpus, .tokenizer = PLM_TOKENIZER_ESM, .threads = 1},
      .inputs = inputs,
      .input_count = 1,
      .labels = {.columns = columns, .split_column = split_column},
      .min_length = 3,
      .max_residues = 100,
      .jobs = 1};
  must_work(plm_split_rule_parse("test=1", &options.splits, NULL), NULL);
  return options;
}

static void ingests(const struct plm_ingest_options *options, struct plm_ingest_result *result)
{
  struct plm_error error = {0};
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_ingest(options, result, &error);
  captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
}

/* The names of a split's documents, each with its number: "a=1.5 b=? ". NULL: it has no labels. */
static void expect_documents(enum plm_split split, bool labelled, const char *expected)
{
  struct plm_corpus *opened;
  struct plm_corpus_cursor *cursor;
  const uint8_t *records = NULL;
  const size_t *offsets = NULL;
  char found[400] = "";
  must_work(plm_corpus_open(corpus, NULL, &opened, NULL), NULL);
  must_work(plm_corpus_cursor_open(opened, &cursor, NULL), NULL);
  assert_int_equal(plm_corpus_schema(opened)->count, labelled ? 1 : 0);
  const uint64_t documents = plm_corpus_info(opened)->splits[split].documents;
  if (labelled && documents > 0)
    must_work(plm_corpus_labels(cursor, split, 0, &records, &offsets, NULL), NULL);
  for (uint64_t d = 0; d < documents; d++) {
    const char *name;
    must_work(plm_corpus_name(cursor, split, d, &name, NULL), NULL);
    snprintf(found + strlen(found), 40, "%s", name);
    if (labelled)
      snprintf(found + strlen(found), 40, "=%g", plm_label_number(records + offsets[d]));
    snprintf(found + strlen(found), 2, " ");
  }
  assert_string_equal(found, expected);
  plm_corpus_cursor_close(cursor);
  plm_corpus_close(opened);
}

static const char table[] = "name,sequence,n,part\n"
                            "a,LAGV,1.5,train\n"
                            "b,LA,2.5,train\n"
                            "c,LAGVS,3.5,valid\n"
                            "d,LAGVSE,4.5,\n"
                            "e,LAGVSER,5.5,train\n";

static void labels_follow_their_documents(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("n", NULL);
  scratch_write(input, table, sizeof table - 1);
  ingests(&options, &result); /* b is too short */
  expect_documents(PLM_SPLIT_TEST, true, "a=1.5 c=3.5 d=4.5 e=5.5 ");
  options = options_of(NULL, NULL);
  options.writer.force = true;
  ingests(&options, &result);
  expect_documents(PLM_SPLIT_TEST, false, "a c d e ");
}

/* b has one, and is too short. */
static void a_sequence_must_have_a_label(void **state)
{
  static const char text[] = "name,sequence,n\na,LAGV,\nb,LA,2.5\n";
  (void)state;
  struct plm_ingest_result result;
  struct plm_error error = {0};
  const struct plm_ingest_options options = options_of("n", NULL);
  scratch_write(input, text, sizeof text - 1);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_ingest(&options, &result, &error);
  captured_end();
  assert_int_equal(status, PLM_FORMAT);
  assert_string_equal(error.what, "no sequence has a label");
}

/* A sequence without a split is left out. */
static void a_column_says_the_split(void **state)
{
  (void)state;
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("n", "part");
  scratch_write(input, table, sizeof table - 1);
  ingests(&options, &result);
  expect_documents(PLM_SPLIT_TRAIN, true, "a=1.5 e=5.5 ");
  expect_documents(PLM_SPLIT_VALID, true, "c=3.5 ");
  expect_documents(PLM_SPLIT_TEST, true, "");
  assert_int_equal(result.too_short, 1);
  options = options_of(NULL, "part");
  options.writer.force = true;
  ingests(&options, &result);
  expect_documents(PLM_SPLIT_TRAIN, false, "a e ");
}

/* Labels are put aside with the documents, and come back with them. */
static void labels_lie_cluster_by_cluster(void **state)
{
  (void)state;
  static const char lines[] = "c\tc\nc\te\na\ta\na\td\n";
  struct plm_ingest_result result;
  struct plm_ingest_options options = options_of("n", NULL);
  options.clusters = clusters;
  options.writer.clustered = true;
  scratch_write(input, table, sizeof table - 1);
  scratch_write(clusters, lines, sizeof lines - 1);
  ingests(&options, &result);
  expect_documents(PLM_SPLIT_TEST, true, "a=1.5 d=4.5 c=3.5 e=5.5 ");
  options.labels.columns = NULL;
  options.writer.force = true;
  ingests(&options, &result);
  expect_documents(PLM_SPLIT_TEST, false, "a d c e ");
}

static bool stops_late;

/* Takes the place of libc's function in this program. */
int rename(const char *from, const char *to)
{
  if (stops_late) plm_stop_requested = SIGINT;
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* A signal that comes when the corpus is in its place is no reason to say that there is none. */
static void a_late_stop_is_none(void **state)
{
  char in[200], directory[200];
  const char *const files[] = {in};
  struct plm_ingest_result result;
  (void)state;
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(directory, sizeof directory, "%.199s", scratch_path("late"));
  scratch_write(in, ">a\nLAGV\n>b\nSERT\n", 16);
  struct plm_ingest_options options = {.writer = {.directory = directory, .threads = 1},
                                       .inputs = files,
                                       .input_count = 1,
                                       .min_length = 1,
                                       .max_residues = 1000,
                                       .jobs = 1};
  assert_int_equal(plm_split_rule_parse("train=0.5,valid=0.5", &options.splits, NULL), PLM_OK);
  stops_late = true;
  const plm_status status = plm_ingest(&options, &result, NULL);
  const int requested = plm_stop_requested;
  stops_late = false;
  plm_stop_requested = 0;
  assert_int_equal(requested, SIGINT);
  assert_int_equal(status, PLM_OK);
  assert_int_equal(result.records, 2);
  assert_true(plm_file_exists(directory));
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(labels_follow_their_documents, setup),
      cmocka_unit_test_setup(a_sequence_must_have_a_label, setup),
      cmocka_unit_test_setup(a_column_says_the_split, setup),
      cmocka_unit_test_setup(labels_lie_cluster_by_cluster, setup),
      cmocka_unit_test(a_late_stop_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
