/* `ingest` and the search for overlaps while memory runs out, at each of their allocations, and
 * `ingest` while the disk fails, at each of its calls: no corpus is left, unless it is complete and
 * only may not be on the disk. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "stages/ingest/ingest.h"
#include "stages/overlap/overlap.h"
#include "tests/support/harness/scratch.h"

static const char fasta[] = ">a\nLAGVSERTIDPKQ\n>b\nLAGVSERTIDPKQ\n>c\nNFYMHWCLAG\n>d\nSERTID\n";
static const char table[] = "a\ta\na\tb\nc\tc\nd\td\n";

static plm_status ingest(void *context, struct plm_error *error)
{
  const struct plm_ingest_options *options = context;
  struct plm_ingest_result result = {0};
  const plm_status status = plm_ingest(options, &result, error);
  const long at = checked_memory_pause(), disk = failing_disk_pause();
  const bool exists = plm_file_exists(options->writer.directory);
  const bool unsynced = failing_disk_failed(scratch_directory()); /* once it was renamed */
  assert_true(exists == (status == PLM_OK) || (exists && unsynced));
  if (status == PLM_OK) {
    assert_int_equal(result.records, 4);
    assert_int_equal(result.duplicates, 1);
  }
  assert_int_equal(plm_path_remove(options->writer.directory, NULL), PLM_OK);
  failing_disk_resume(disk);
  checked_memory_resume(at);
  return status;
}

static struct plm_ingest_options options_for(const char *directory, const char *const *inputs)
{
  struct plm_ingest_options options = {.writer = {.directory = directory, .threads = 1},
                                       .inputs = inputs,
                                       .input_count = 1,
                                       .deduplicate = true,
                                       .min_length = 1,
                                       .max_residues = 1000,
                                       .jobs = 1};
  assert_int_equal(plm_split_rule_parse("train=0.5,valid=0.5", &options.splits, NULL), PLM_OK);
  return options;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  (void)state;
  static const char *const unnoticed[] = {"open */corpus.tmp-*[0-9]", NULL}; /* to lock it */
  char directory[200], in[200], clusters[200];
  const char *const inputs[] = {in};
  snprintf(directory, sizeof directory, "%.199s", scratch_path("corpus"));
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(clusters, sizeof clusters, "%.199s", scratch_path("clusters.tsv"));
  scratch_write(in, fasta, sizeof fasta - 1);
  scratch_write(clusters, table, sizeof table - 1);
  plm_log_init("t", PLM_LOG_ERROR);
  struct plm_ingest_options options = options_for(directory, inputs);
  failing_disk_try(ingest, &options, unnoticed);
  failing_memory_try(ingest, &options, 20);
  options.clusters = clusters;
  options.writer.clustered = true;
  failing_disk_try(ingest, &options, unnoticed);
  failing_memory_try(ingest, &options, 30);
}

static plm_status find_overlap(void *context, struct plm_error *error)
{
  struct plm_overlap overlap;
  PLM_TRY(plm_overlap_find(context, &overlap, error));
  const bool found = overlap.held_out_documents == 2 && overlap.held_out_exact == 2;
  plm_overlap_deinit(&overlap);
  assert_true(found);
  return PLM_OK;
}

static void a_search_says_so_too(void **state)
{
  (void)state;
  struct plm_corpus *corpus;
  struct plm_corpus_writer *writer;
  const struct plm_corpus_options reading = {.allow_remote = true};
  const struct plm_corpus_writer_options options = {.directory = scratch_path("pairs"),
                                                    .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int i = 0; i < 4; i++)
    assert_int_equal(plm_corpus_writer_add(writer, i < 2 ? PLM_SPLIT_TRAIN : PLM_SPLIT_VALID, "x",
                                           1, (const uint8_t *)"LAGVSERTIDPKQ" + i % 2, 12, NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  assert_int_equal(plm_corpus_open(scratch_path("pairs"), &reading, &corpus, NULL), PLM_OK);
  struct plm_overlap_request request = {.training = corpus,
                                        .training_split = PLM_SPLIT_TRAIN,
                                        .held_out = corpus,
                                        .held_out_split = PLM_SPLIT_VALID,
                                        .sequence_identity = 0.9,
                                        .block = 4};
  failing_memory_try(find_overlap, &request, 12);
  plm_corpus_close(corpus);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failures_of_memory_and_disk_are_said),
      cmocka_unit_test(a_search_says_so_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
