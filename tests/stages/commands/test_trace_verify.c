/* `trace --verify`: between which checkpoints it proves a step, on runs whose chain is computed
 * here, and what it says if a checkpoint or a corpus is another one. */
#include "stages/commands/trace_verify.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/plan/chain.h"
#include "tests/support/corpora/chained_run.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/shown_progress.h"

/* ---- what is said ---------------------------------------------------------------------------- */

static plm_status verify(const struct plm_config *config, uint64_t step, const char **said,
                         struct plm_error *error)
{
  struct plm_trace_sources sources = {0};
  captured_begin(STDERR_FILENO);
  plm_status status = plm_trace_sources_open(config, 0, &sources, error);
  if (status == PLM_OK) status = plm_trace_verify(config, step, &sources, error);
  plm_trace_sources_close(&sources);
  *said = captured_end();
  return status;
}

/* from: the checkpoint before; 0: the start. */
static void expect_proof(const struct plm_config *config, uint64_t step, uint64_t from, uint64_t to)
{
  struct plm_error error = {0};
  const char *said;
  char expected[200];
  if (verify(config, step, &said, &error) != PLM_OK) fail_msg("step %d: %s", (int)step, error.what);
  snprintf(expected, sizeof expected,
           "t: proved: step %d was trained on exactly these documents (chain from %s %d to "
           "checkpoint %d)\n",
           (int)step, from == 0 ? "step" : "checkpoint", (int)from, (int)to);
  assert_string_equal(said, expected);
}

static void expect_error(const struct plm_config *config, uint64_t step, plm_status status,
                         const char *what)
{
  struct plm_error error = {0};
  const char *said;
  assert_int_equal(verify(config, step, &said, &error), status);
  assert_string_equal(error.what, what);
  assert_string_equal(said, "");
}

/* From the last checkpoint before the step to the first one that contains it, of as many as fill
 * the list of steps. The oldest one is often not that of step 0, which retention deletes. */
static void the_nearest_checkpoints_prove_a_step(void **state)
{
  enum { LIST = 16 };
  struct plm_config config;
  char expected[PLM_PATH_SIZE + 64];
  (void)state;
  chained_configure(1, false, &config);
  struct chained_consumed consumed = {.config = &config};
  for (uint64_t i = 1; i <= LIST; i++) chained_train_and_save(&consumed, i < 3 ? 2 * i : 3 + i, 0);
  static const uint64_t nearest[][3] = {{1, 0, 2}, {2, 0, 2},    {3, 2, 4},    {4, 2, 4},
                                        {5, 4, 6}, {6, 4, 6},    {7, 6, 7},    {8, 7, 8},
                                        {9, 8, 9}, {17, 16, 17}, {18, 17, 18}, {19, 18, 19}};
  for (size_t i = 0; i < sizeof nearest / sizeof *nearest; i++)
    expect_proof(&config, nearest[i][0], nearest[i][1], nearest[i][2]);
  snprintf(expected, sizeof expected, "%s has no checkpoint that contains step 20", chained_run);
  expect_error(&config, 20, PLM_NOT_FOUND, expected);
  chained_remove_checkpoint(2);
  expect_proof(&config, 1, 0, 4);
  expect_proof(&config, 4, 0, 4);
  chained_remove_checkpoint(4);
  chained_remove_checkpoint(7);
  expect_proof(&config, 7, 6, 8);
  plm_config_deinit(&config);
}

/* It is not taken for a run without checkpoints. */
static void a_folder_that_cannot_be_read_is_an_error(void **state)
{
  struct plm_config config;
  char path[PLM_PATH_SIZE], expected[PLM_PATH_SIZE + 64];
  (void)state;
  chained_configure(1, false, &config);
  assert_int_equal(plm_path_join(path, chained_run, "checkpoints", NULL), PLM_OK);
  (void)rmdir(path);
  scratch_write(path, "", 0);
  snprintf(expected, sizeof expected, "cannot open the folder %s: Not a directory", path);
  expect_error(&config, 1, PLM_IO, expected);
  assert_int_equal(unlink(path), 0);
  plm_config_deinit(&config);
}

static plm_status verify_the_last(void *context, struct plm_error *error)
{
  const char *said;
  return verify(context, 3, &said, error);
}

static void the_progress_counts_steps(void **state)
{
  struct plm_trace_sources sources = {0};
  struct plm_config config;
  (void)state;
  chained_configure(1, false, &config);
  struct chained_consumed consumed = {.config = &config};
  chained_train_and_save(&consumed, 2, 0);
  chained_train_and_save(&consumed, 6, 0);
  assert_int_equal(plm_trace_sources_open(&config, 0, &sources, NULL), PLM_OK);
  shown_progress_begin();
  assert_int_equal(plm_trace_verify(&config, 4, &sources, NULL), PLM_OK);
  shown_progress_end("verify 0 %  0 steps, 0 steps/s\nverify 25 %  1 step, 0 steps/s, \n"
                     "verify 50 %  2 steps, \nverify 75 %  3 steps, ");
  plm_log_init("t", PLM_LOG_INFO);
  plm_trace_sources_close(&sources);
  if (CHECKED_MEMORY) failing_memory_try(verify_the_last, &config, 10);
  plm_config_deinit(&config);
}

static void another_chain_is_found(void **state)
{
  struct plm_config config;
  (void)state;
  chained_configure(1, false, &config);
  struct chained_consumed consumed = {.config = &config}, other;
  chained_train_and_save(&consumed, 2, 0);
  chained_train_and_save(&consumed, 4, 0);
  other = consumed;
  other.chain.high ^= 1;
  chained_write_checkpoint(4, chained_cursor_of(&other, 0));
  chained_train_and_save(&consumed, 6, 0);
  expect_proof(&config, 2, 0, 2);
  expect_error(&config, 3, PLM_CORRUPT,
               "steps 3 to 4 were not trained on these documents: their chain differs from the one "
               "in checkpoint 4");
  expect_error(&config, 6, PLM_CORRUPT,
               "steps 5 to 6 were not trained on these documents: their chain differs from the one "
               "in checkpoint 6");
  chained_remove_checkpoint(2);
  expect_error(&config, 2, PLM_CORRUPT,
               "steps 1 to 4 were not trained on these documents: their chain differs from the one "
               "in checkpoint 4");
  plm_config_deinit(&config);
}

/* A checkpoint must say the chunks, the chain and the fingerprint of each source. */
static void what_a_checkpoint_does_not_say(void **state)
{
  static const char *const members[] = {"chunks", "chain", "fingerprint"};
  struct plm_config config;
  struct chained_consumed consumed;
  char expected[PLM_PATH_SIZE + 100], path[PLM_PATH_SIZE];
  (void)state;
  chained_configure(1, false, &config);
  consumed = (struct chained_consumed){.config = &config};
  chained_train(&consumed, 2, false);
  snprintf(expected, sizeof expected,
           "%.4000s/step_00000002/trainer.json does not say what the run consumed",
           chained_checkpoints);
  for (size_t i = 0; i < 3; i++) {
    cJSON *cursor = chained_cursor_of(&consumed, 0);
    cJSON_DeleteItemFromObjectCaseSensitive(cursor, members[i]);
    chained_write_checkpoint(2, cursor);
    expect_error(&config, 1, PLM_FORMAT, expected);
    cursor = chained_cursor_of(&consumed, 0);
    cJSON_ReplaceItemInObjectCaseSensitive(cursor, members[i], cJSON_CreateNumber(-1));
    chained_write_checkpoint(2, cursor);
    expect_error(&config, 1, PLM_FORMAT, expected);
  }
  cJSON *cursor = chained_cursor_of(&consumed, 1);
  cJSON_AddItemToArray(cJSON_GetObjectItem(cursor, "sources"), cJSON_CreateObject());
  chained_write_checkpoint(2, cursor);
  expect_error(&config, 1, PLM_FORMAT, expected);
  for (int more = 0; more < 2; more++) { /* as many sources as there can be, and one more */
    cursor = chained_cursor_of(&consumed, 1);
    cJSON *list = cJSON_GetObjectItem(cursor, "sources");
    for (int k = 1; k < PLM_MAX_SOURCES + more; k++)
      cJSON_AddItemToArray(list, cJSON_Duplicate(cJSON_GetArrayItem(list, 0), true));
    chained_write_checkpoint(2, cursor);
    if (more == 1)
      expect_error(&config, 1, PLM_FORMAT, expected);
    else
      expect_error(&config, 1, PLM_CORRUPT,
                   "steps 1 to 2 were not trained on these documents: their chain differs from the "
                   "one in checkpoint 2");
  }
  assert_int_equal(plm_path_join(path, chained_checkpoints, "step_00000002/trainer.json", NULL),
                   PLM_OK);
  assert_int_equal(unlink(path), 0);
  snprintf(expected, sizeof expected, "%.4000s/step_00000002 has no trainer.json",
           chained_checkpoints);
  expect_error(&config, 1, PLM_NOT_FOUND, expected);
  plm_config_deinit(&config);
}

/* ---- mixtures -------------------------------------------------------------------------------- */

/* The corpora are those of the newer checkpoint, each at its place. */
static void each_corpus_is_compared(void **state)
{
  struct plm_config config;
  char expected[PLM_PATH_SIZE + 200], hex[2][PLM_HASH_HEX_SIZE];
  (void)state;
  chained_configure(1, false, &config);
  struct chained_consumed alone = {.config = &config};
  chained_train(&alone, 1, false);
  cJSON *other = chained_cursor_of(&alone, 0);
  cJSON_ReplaceItemInObject(other, "fingerprint",
                            cJSON_CreateString("00000000000000010000000000000002"));
  chained_write_checkpoint(1, other);
  plm_hash_to_hex(chained_fingerprint(0), hex[0]);
  snprintf(expected, sizeof expected,
           "the run was trained on corpus 00000000000000010000000000000002, but %s is %s",
           plm_corpus_path(chained_corpora[0]), hex[0]);
  expect_error(&config, 1, PLM_CONFIG, expected);
  plm_config_deinit(&config);
  chained_configure(2, true, &config);
  struct chained_consumed consumed = {.config = &config};
  chained_train_and_save(&consumed, 1, 2);
  chained_train_and_save(&consumed, 3, 2);
  assert_true(consumed.of[0] > 0 && consumed.of[1] > 0);
  expect_proof(&config, 1, 0, 1);
  expect_proof(&config, 2, 1, 3);
  for (int k = 0; k < CHAINED_CORPORA; k++) {
    const struct plm_hash another = {.low = 1, .high = 2};
    cJSON *cursor = chained_cursor_of(&consumed, 2);
    cJSON *source = cJSON_GetArrayItem(cJSON_GetObjectItem(cursor, "sources"), k);
    cJSON_DeleteItemFromObject(source, "fingerprint");
    chained_put_hash(source, "fingerprint", another);
    chained_write_checkpoint(3, cursor);
    plm_hash_to_hex(another, hex[0]);
    plm_hash_to_hex(chained_fingerprint(k), hex[1]);
    snprintf(expected, sizeof expected, "the run was trained on corpus %s, but %s is %s", hex[0],
             plm_corpus_path(chained_corpora[k]), hex[1]);
    expect_error(&config, 3, PLM_CONFIG, expected);
    expect_proof(&config, 1, 0, 1);
  }
  plm_config_deinit(&config);
}

/* The state of the newest checkpoint, whose history says which corpora the run had: one until
 * step `alone`, then those of the configuration. */
static void write_latest(const struct chained_consumed *consumed, uint64_t alone)
{
  const struct plm_mixture one = {.count = 1, .weights = {1}, .final_weights = {-1}};
  const struct plm_mixture now = plm_config_mixture(consumed->config);
  struct plm_mixture_history history = {0};
  cJSON *cursor = chained_cursor_of(consumed, (int)now.count);
  if (alone > 0) plm_mixture_history_add(&history, 0, CHAINED_CHUNKS, &one);
  plm_mixture_history_add(&history, alone, CHAINED_CHUNKS, &now);
  cJSON_AddItemToObject(cursor, "mixture", plm_mixture_history_to_json(&history));
  plm_mixture_history_deinit(&history);
  chained_write_state("latest", consumed->steps, cursor);
}

/* A run that had one corpus becomes a mixture at a resume. From there on, chunks are hashed with
 * their sources, whether or not the checkpoint of the resume is still there. */
static void one_corpus_becomes_several(void **state)
{
  struct plm_config alone, config;
  (void)state;
  chained_configure(1, false, &alone);
  chained_configure(2, true, &config);
  struct chained_consumed consumed = {.config = &alone};
  chained_train_and_save(&consumed, 2, 0);
  chained_train_and_save(&consumed, 3, 0);
  consumed.config = &config;
  chained_train_and_save(&consumed, 5, 2);
  chained_train_and_save(&consumed, 6, 2);
  write_latest(&consumed, 3);
  expect_proof(&config, 2, 0, 2);
  expect_proof(&config, 3, 2, 3);
  expect_proof(&config, 4, 3, 5);
  expect_proof(&config, 6, 5, 6);
  chained_remove_checkpoint(3);
  expect_proof(&config, 3, 2, 5);
  expect_proof(&config, 5, 2, 5);
  chained_remove_checkpoint(2);
  expect_proof(&config, 1, 0, 5);
  expect_proof(&config, 4, 0, 5);
  chained_remove_checkpoint(5);
  expect_proof(&config, 6, 0, 6);
  plm_config_deinit(&alone);
  plm_config_deinit(&config);
}

/* A list of one corpus is a mixture too. */
static void a_list_of_one_is_a_mixture(void **state)
{
  struct plm_config alone, listed, config;
  (void)state;
  chained_configure(1, false, &alone);
  chained_configure(1, true, &listed);
  chained_configure(2, true, &config);
  struct chained_consumed consumed = {.config = &listed};
  chained_train_and_save(&consumed, 2, 1);
  expect_proof(&listed, 1, 0, 2);
  consumed.config = &config;
  chained_train_and_save(&consumed, 4, 2);
  write_latest(&consumed, 2);
  expect_proof(&config, 2, 0, 2);
  expect_proof(&config, 3, 2, 4);
  chained_remove_checkpoint(2);
  expect_proof(&config, 2, 0, 4);
  consumed =
      (struct chained_consumed){.config = &alone}; /* also after a checkpoint without sources */
  chained_train_and_save(&consumed, 1, 0);
  consumed.config = &listed;
  chained_train(&consumed, 2, true);
  consumed.config = &config;
  chained_train_and_save(&consumed, 4, 2);
  write_latest(&consumed, 2);
  expect_proof(&config, 2, 1, 4);
  consumed.chain.high ^= 1;
  chained_write_checkpoint(4, chained_cursor_of(&consumed, 2));
  expect_error(&config, 2, PLM_CORRUPT,
               "steps 2 to 4 were not trained on these documents: their chain differs from the one "
               "in checkpoint 4");
  chained_remove_checkpoint(1);
  /* and so is one that follows a corpus without a list */
  chained_remove_checkpoint(4);
  consumed = (struct chained_consumed){.config = &alone};
  chained_train_and_save(&consumed, 1, 0);
  consumed.config = &listed;
  chained_train_and_save(&consumed, 3, 1);
  write_latest(&consumed, 0);
  expect_proof(&listed, 1, 0, 1);
  expect_proof(&listed, 2, 1, 3);
  plm_config_deinit(&alone);
  plm_config_deinit(&listed);
  plm_config_deinit(&config);
}

static void halve(uint8_t *record, size_t *size, const void *context)
{
  (void)record, (void)context;
  *size /= 2;
}

static void damaged_documents_are_an_error(void **state)
{
  struct plm_config config;
  struct plm_error error = {0};
  struct plm_corpus *kept = chained_corpora[0];
  const char *said;
  (void)state;
  chained_corpora[0] =
      written_corpus_open("damaged", &(struct written_corpus){.documents = {20}, .longest = 60});
  chained_configure(1, false, &config);
  struct chained_consumed consumed = {.config = &config};
  chained_train_and_save(&consumed, 1, 0);
  plm_corpus_close(chained_corpora[0]);
  chained_corpora[0] = kept;
  forged_corpus_change(scratch_path("damaged"), PLM_RECORD_GROUPS, halve, NULL);
  assert_int_equal(verify(&config, 1, &said, &error), PLM_CORRUPT);
  assert_non_null(strstr(error.what, "train.groups"));
  plm_config_deinit(&config);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_nearest_checkpoints_prove_a_step, chained_setup),
      cmocka_unit_test_setup(a_folder_that_cannot_be_read_is_an_error, chained_setup),
      cmocka_unit_test_setup(the_progress_counts_steps, chained_setup),
      cmocka_unit_test_setup(another_chain_is_found, chained_setup),
      cmocka_unit_test_setup(what_a_checkpoint_does_not_say, chained_setup),
      cmocka_unit_test_setup(each_corpus_is_compared, chained_setup),
      cmocka_unit_test_setup(one_corpus_becomes_several, chained_setup),
      cmocka_unit_test_setup(a_list_of_one_is_a_mixture, chained_setup),
      cmocka_unit_test_setup(damaged_documents_are_an_error, chained_setup),
  };
  return cmocka_run_group_tests(tests, chained_open_corpora, chained_close_corpora);
}
