/* The sets that a watching evaluator opens: their order, their bits, and what is said of a corpus
 * that does not fit. */
#include "evaluator/watch/held_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/metrics/metrics.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static void write_corpus(const char *name, enum plm_tokenizer_kind tokenizer, bool with_train)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {
      .directory = scratch_path(name), .tokenizer = tokenizer, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 2};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int s = with_train ? 0 : 1; s < 2; s++)
    assert_int_equal(plm_corpus_writer_add(writer, s == 0 ? PLM_SPLIT_TRAIN : PLM_SPLIT_VALID, "x",
                                           1, (const uint8_t *)"LAGVSERTIDPKQNFY", 16, NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

static int setup(void **state)
{
  (void)state;
  write_corpus("apart", PLM_TOKENIZER_ESM, false);
  write_corpus("split", PLM_TOKENIZER_ESM, true);
  write_corpus("other", PLM_TOKENIZER_BYTE, false);
  return 0;
}

/* Opens the sets of the configuration; both are to be closed, also after an error. */
static plm_status open_sets(const char *sets, struct plm_config *config,
                            struct plm_held_out_list *list, struct plm_error *error)
{
  char yaml[4 * PLM_PATH_SIZE];
  *list = (struct plm_held_out_list){0};
  snprintf(yaml, sizeof yaml, "version: 1\nevaluator: {splits: [valid], sets: [%s]}\n", sets);
  if (plm_config_load_text(yaml, strlen(yaml), config, error) != PLM_OK)
    fail_msg("%s: %s", yaml, error->what);
  return plm_held_out_open(config, list, error);
}

static void splits_come_before_sets(void **state)
{
  (void)state;
  char sets[3 * PLM_PATH_SIZE];
  struct plm_config config;
  struct plm_held_out_list list;
  struct plm_error error = {0};
  snprintf(sets, sizeof sets,
           "{name: one, corpus: \"%s\", split: valid}, {name: two, corpus: \"%s\"}",
           scratch_path("apart"), scratch_path("split"));
  captured_begin(STDERR_FILENO);
  const plm_status status = open_sets(sets, &config, &list, &error);
  const char *said = captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  /* only the second one has sequences to train on beside the held-out ones */
  assert_string_equal(said, "t: set two: split without clusters: homologues may be shared with "
                            "its split train\n");
  static const char *const names[] = {PLM_OWN_SET, "one", "two"};
  static const unsigned bits[] = {PLM_SPLIT_VALID, PLM_SPLIT_COUNT, PLM_SPLIT_COUNT + 1};
  assert_int_equal(list.count, 3);
  for (uint32_t i = 0; i < 3; i++) {
    assert_string_equal(list.items[i].set, names[i]);
    assert_int_equal(list.items[i].split, PLM_SPLIT_VALID);
    assert_int_equal(list.items[i].bit, bits[i]);
    assert_int_equal(list.items[i].stream != NULL, i > 0);
    assert_int_equal(list.items[i].corpus != NULL, i > 0);
    /* of 16 letters that are equally frequent */
    const double entropy = i > 0 ? log(16) : 0;
    assert_true(fabs(list.items[i].baseline_entropy - entropy) < 1e-9);
  }
  plm_held_out_close(&list);
  assert_int_equal(list.count, 0);
  plm_config_deinit(&config);
}

static void what_does_not_fit_is_refused(void **state)
{
  (void)state;
  static const struct {
    const char *corpus, *split;
    plm_status status;
    const char *what, *hint;
  } rows[] = {
      {"nowhere", "valid", PLM_UNAVAILABLE, "nowhere is not a corpus", "make one with"},
      {"other", "valid", PLM_CONFIG,
       "evaluator.sets: the corpus of \"one\" has another tokenizer than the run (data.tokenizer)",
       "ingest its sequences with --tokenizer esm"},
      {"apart", "test", PLM_CONFIG,
       "evaluator.sets: the corpus of \"one\" has no documents in split test: ",
       "name another split of it, or ingest it with --split test=1"},
      {"apart", "train", PLM_CONFIG,
       "evaluator.sets: the corpus of \"one\" has no documents in split train: ",
       "name another split of it, or ingest it with --split train=1"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char sets[2 * PLM_PATH_SIZE];
    struct plm_config config;
    struct plm_held_out_list list;
    struct plm_error error = {0};
    snprintf(sets, sizeof sets, "{name: one, corpus: \"%s\", split: %s}",
             scratch_path(rows[i].corpus), rows[i].split);
    assert_int_equal(open_sets(sets, &config, &list, &error), rows[i].status);
    assert_int_equal(error.status, rows[i].status);
    if (strstr(error.what, rows[i].what) == NULL) fail_msg("row %zu: %s", i, error.what);
    if (strstr(error.hint, rows[i].hint) == NULL) fail_msg("row %zu: %s", i, error.hint);
    plm_held_out_close(&list);
    plm_config_deinit(&config);
  }
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits_come_before_sets),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
