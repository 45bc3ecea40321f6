/* What `corpus` prints about a corpus, compared as a whole with tests/stages/views/corpus/. */
#include "tests/support/harness/cmocka_all.h"

#include <unistd.h>

#include "stages/views/corpus_summary.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/captured.h"

/* Valid has 256 documents and test 255, and train none. Lengths of 4 to 1023 residues. */
static struct plm_corpus_description some_corpus(struct plm_ingested_file ingested[2])
{
  ingested[0] =
      (struct plm_ingested_file){.name = "first.fasta", .bytes = 123456, .documents = 1500};
  ingested[1] =
      (struct plm_ingested_file){.name = "second\033[31m.fasta", .bytes = 7, .documents = 1};
  struct plm_corpus_description description = {
      .info = {.format = PLM_CORPUS_FORMAT,
               .tokenizer = PLM_TOKENIZER_ESM,
               .entropy = 2.87654,
               .fingerprint = {.high = 0x0123456789abcdef, .low = 0xfedcba9876543210}},
      .ingested = ingested,
      .ingested_count = 2,
      .files = {.size_bytes = 1234567}};
  struct plm_corpus_split *valid = &description.info.splits[PLM_SPLIT_VALID],
                          *test = &description.info.splits[PLM_SPLIT_TEST];
  *valid = (struct plm_corpus_split){
      .documents = 256, .residues = 1000000, .length_min = 4, .length_max = 1023};
  valid->histogram[2] = 1;
  valid->histogram[9] = 200;
  valid->composition[4] = 600000;
  valid->composition[5] = 400000;
  valid->composition[33] = 7000000; /* beyond the vocabulary, so it does not count */
  *test = (struct plm_corpus_split){
      .documents = 255, .residues = 2000, .length_min = 7, .length_max = 520};
  test->histogram[2] = 4;
  test->histogram[4] = 50;
  test->histogram[9] = 199;
  test->composition[5] = 300001;
  test->composition[23] = 1;
  return description;
}

static void it_is_printed_for_people(void **state)
{
  (void)state;
  struct plm_ingested_file ingested[2] = {0};
  struct plm_corpus_description description = some_corpus(ingested);
  captured_begin(STDOUT_FILENO);
  plm_corpus_summary_print("some/corpus", &description);
  description.info.splits[PLM_SPLIT_VALID].clusters = 1200;
  description.info.splits[PLM_SPLIT_TEST].clusters = 3;
  description.info.upgraded_from = (struct plm_hash){.high = 1, .low = 2};
  description.info.clustered = true;
  description.info.tokenizer = PLM_TOKENIZER_BYTE;
  description.info.splits[PLM_SPLIT_VALID].composition[33] = 0;
  description.ingested_count = 0;
  plm_corpus_summary_print("clusters", &description);
  expected_file("stages/views/corpus/summary", captured_end());
}

/* The table of the composition ends after 32 rows. */
static void only_the_most_frequent_residues_are_listed(void **state)
{
  (void)state;
  struct plm_corpus_description description = {.info = {.tokenizer = PLM_TOKENIZER_BYTE},
                                               .files = {.size_bytes = 2500}};
  struct plm_corpus_split *train = &description.info.splits[PLM_SPLIT_TRAIN];
  *train = (struct plm_corpus_split){
      .documents = 1000, .residues = 1000, .length_min = 1, .length_max = 1};
  train->histogram[0] = 1000;
  for (int id = 60; id < 100; id++) train->composition[id] = (uint64_t)id - 59;
  captured_begin(STDOUT_FILENO);
  plm_corpus_summary_print("bytes", &description);
  expected_file("stages/views/corpus/bytes", captured_end());
}

static void it_is_printed_for_programs(void **state)
{
  (void)state;
  struct plm_ingested_file ingested[2] = {0};
  struct plm_corpus_description description = some_corpus(ingested);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_corpus_summary_json(&description, NULL);
  description.info.splits[PLM_SPLIT_VALID].clusters = 1200;
  description.info.splits[PLM_SPLIT_TEST].clusters = 3;
  description.info.upgraded_from = (struct plm_hash){.high = 1, .low = 2};
  description.info.clustered = true;
  description.info.tokenizer = PLM_TOKENIZER_BYTE;
  description.info.splits[PLM_SPLIT_VALID].composition[33] = 0;
  const plm_status again = plm_corpus_summary_json(&description, NULL);
  expected_file("stages/views/corpus/json", captured_end());
  assert_int_equal(status, PLM_OK);
  assert_int_equal(again, PLM_OK);
}

/* A number has its mean, everything else its classes. */
static void labels_are_listed(void **state)
{
  (void)state;
  struct plm_corpus_description description = {.info = {.tokenizer = PLM_TOKENIZER_ESM},
                                               .files = {.size_bytes = 10}};
  description.info.splits[PLM_SPLIT_TEST] =
      (struct plm_corpus_split){.documents = 1, .residues = 4, .length_min = 4, .length_max = 4};
  label_schema_make(&description.labels);
  captured_begin(STDOUT_FILENO);
  plm_corpus_summary_print("labels", &description);
  const plm_status status = plm_corpus_summary_json(&description, NULL);
  expected_file("stages/views/corpus/labels", captured_end());
  assert_int_equal(status, PLM_OK);
  plm_label_schema_deinit(&description.labels);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_printed_for_people),
      cmocka_unit_test(only_the_most_frequent_residues_are_listed),
      cmocka_unit_test(it_is_printed_for_programs),
      cmocka_unit_test(labels_are_listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
