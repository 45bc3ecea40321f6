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
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/shown_progress.h"

enum { CORPORA = 2, CHUNKS = 3, LENGTH = 64 };

static char run[PLM_PATH_SIZE], checkpoints[PLM_PATH_SIZE];
static struct plm_corpus *corpora[CORPORA];

static int open_corpora(void **state)
{
  (void)state;
  for (int k = 0; k < CORPORA; k++) {
    char name[16];
    snprintf(name, sizeof name, "corpus.%d", k);
    corpora[k] = written_corpus_open(
        name, &(struct written_corpus){.documents = {20 + (uint64_t)k, 0, 0}, .longest = 60});
  }
  return 0;
}

static int close_corpora(void **state)
{
  (void)state;
  for (int k = 0; k < CORPORA; k++) plm_corpus_close(corpora[k]);
  return 0;
}

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  assert_int_equal(plm_path_join(checkpoints, run, "checkpoints", NULL), PLM_OK);
  return plm_directory_make(checkpoints, NULL) != PLM_OK;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* The configuration of a run on the first `count` corpora; as a list if it says so. */
static void configure(int count, bool listed, struct plm_config *config)
{
  char text[4 * PLM_PATH_SIZE], corpus[2 * PLM_PATH_SIZE] = "";
  struct plm_error error = {0};
  for (int k = 0; k < count; k++)
    snprintf(corpus + strlen(corpus), PLM_PATH_SIZE, "%s{path: %.2000s, weight: %d}",
             k > 0 ? ", " : "", plm_corpus_path(corpora[k]), 1 + k);
  if (listed)
    snprintf(text, sizeof text, "corpus: [%s]\n", corpus);
  else
    snprintf(text, sizeof text, "corpus: %.2000s\n", plm_corpus_path(corpora[0]));
  snprintf(text + strlen(text), PLM_PATH_SIZE + 200,
           "run: %.2000s\nseed: 7\ndata: {max_length: %d, window_groups: 1}\n"
           "trainer: {batch_tokens: %d, micro_batch_tokens: %d}\n",
           run, LENGTH, CHUNKS * LENGTH, LENGTH);
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* What the trainer has consumed of a run. */
struct consumed {
  const struct plm_config *config;
  struct plm_hash chain;
  uint64_t steps, chunks, of[CORPORA];
};

/* One chunk of a corpus, its number among those of the corpus. */
static void add_chunk(const struct plm_config *config, uint32_t k, uint64_t number, bool mixed,
                      struct plm_hasher *hasher)
{
  const struct plm_plan_parameters parameters = plm_config_source_plan(config, k);
  const uint8_t source = (uint8_t)k;
  struct plm_plan_corpus from = {.split = PLM_SPLIT_TRAIN};
  struct plm_plan *plan;
  struct plm_trace *trace;
  struct plm_traced_chunk chunk;
  const void *tokens;
  assert_int_equal(plm_plan_open_corpus(&parameters, corpora[k], PLM_SPLIT_TRAIN, &plan, NULL),
                   PLM_OK);
  from.plan = plan;
  assert_int_equal(plm_corpus_cursor_open(corpora[k], &from.cursor, NULL), PLM_OK);
  assert_int_equal(plm_trace_open(&from, NULL, &trace, NULL), PLM_OK);
  assert_int_equal(plm_trace_chunk(trace, number, &chunk, NULL), PLM_OK);
  assert_int_equal(plm_trace_tokens(trace, &tokens, NULL), PLM_OK);
  plm_chain_add(hasher, mixed ? &source : NULL, chunk.documents, chunk.count, tokens, LENGTH);
  plm_trace_close(trace);
  plm_corpus_cursor_close(from.cursor);
  plm_plan_close(plan);
}

/* Trains until a step. mixed: chunks are hashed with their sources. */
static void train(struct consumed *consumed, uint64_t until, bool mixed)
{
  const struct plm_mixture mixture = plm_config_mixture(consumed->config);
  struct plm_hasher *hasher = plm_hasher_open();
  for (; consumed->steps < until; consumed->steps++) {
    uint8_t sources[CHUNKS];
    plm_mixture_draw(&mixture, consumed->config->seed, consumed->steps, CHUNKS, sources);
    plm_chain_begin(hasher, consumed->chain, consumed->chunks, CHUNKS);
    for (int i = 0; i < CHUNKS; i++)
      add_chunk(consumed->config, sources[i], consumed->of[sources[i]]++, mixed, hasher);
    consumed->chain = plm_hasher_digest(hasher);
    consumed->chunks += CHUNKS;
  }
  plm_hasher_close(hasher);
}

static void put_hash(cJSON *json, const char *name, struct plm_hash hash)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(hash, hex);
  cJSON_AddStringToObject(json, name, hex);
}

static struct plm_hash fingerprint(int k)
{
  return plm_corpus_info(corpora[k])->fingerprint;
}

/* The cursor of a checkpoint, as the trainer writes it; sources: 0: the run is no mixture. */
static cJSON *cursor_of(const struct consumed *consumed, int sources)
{
  cJSON *cursor = cJSON_CreateObject();
  put_hash(cursor, "fingerprint", fingerprint(0));
  cJSON_AddNumberToObject(cursor, "chunks", (double)consumed->chunks);
  put_hash(cursor, "chain", consumed->chain);
  if (sources == 0) return cursor;
  cJSON *list = cJSON_AddArrayToObject(cursor, "sources");
  for (int k = 0; k < sources; k++) {
    cJSON *source = cJSON_CreateObject();
    put_hash(source, "fingerprint", fingerprint(k));
    cJSON_AddItemToArray(list, source);
  }
  return cursor;
}

static void write_state(const char *folder, uint64_t step, cJSON *cursor)
{
  char directory[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  cJSON *json = cJSON_CreateObject();
  cJSON_AddNumberToObject(json, "step", (double)step);
  cJSON_AddItemToObject(json, "cursor", cursor);
  char *text = cJSON_PrintUnformatted(json);
  assert_int_equal(plm_path_join(directory, checkpoints, folder, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(directory, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, directory, "trainer.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  cJSON_free(text);
  cJSON_Delete(json);
}

static void write_checkpoint(uint64_t step, cJSON *cursor)
{
  char name[PLM_CHECKPOINT_NAME_SIZE];
  plm_checkpoint_name(step, name);
  write_state(name, step, cursor);
}

/* Trains until a step, which has a checkpoint. */
static void train_and_save(struct consumed *consumed, uint64_t step, int sources)
{
  train(consumed, step, sources > 0);
  write_checkpoint(step, cursor_of(consumed, sources));
}

static void remove_checkpoint(uint64_t step)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(path, checkpoints, name, NULL), PLM_OK);
  assert_int_equal(plm_path_remove(path, NULL), PLM_OK);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static plm_status verify(const struct plm_config *config, uint64_t step, const char **said,
                         struct plm_error *error)
{
  struct plm_trace_sources sources = {0};
  captured_begin(STDERR_FILENO);
  plm_status status = plm_trace_sources_open(config, &sources, error);
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
  configure(1, false, &config);
  struct consumed consumed = {.config = &config};
  for (uint64_t i = 1; i <= LIST; i++) train_and_save(&consumed, i < 3 ? 2 * i : 3 + i, 0);
  static const uint64_t nearest[][3] = {{1, 0, 2}, {2, 0, 2},    {3, 2, 4},    {4, 2, 4},
                                        {5, 4, 6}, {6, 4, 6},    {7, 6, 7},    {8, 7, 8},
                                        {9, 8, 9}, {17, 16, 17}, {18, 17, 18}, {19, 18, 19}};
  for (size_t i = 0; i < sizeof nearest / sizeof *nearest; i++)
    expect_proof(&config, nearest[i][0], nearest[i][1], nearest[i][2]);
  snprintf(expected, sizeof expected, "%s has no checkpoint that contains step 20", run);
  expect_error(&config, 20, PLM_NOT_FOUND, expected);
  remove_checkpoint(2);
  expect_proof(&config, 1, 0, 4);
  expect_proof(&config, 4, 0, 4);
  remove_checkpoint(4);
  remove_checkpoint(7);
  expect_proof(&config, 7, 6, 8);
  plm_config_deinit(&config);
}

/* It is not taken for a run without checkpoints. */
static void a_folder_that_cannot_be_read_is_an_error(void **state)
{
  struct plm_config config;
  char path[PLM_PATH_SIZE], expected[PLM_PATH_SIZE + 64];
  (void)state;
  configure(1, false, &config);
  assert_int_equal(plm_path_join(path, run, "checkpoints", NULL), PLM_OK);
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
  configure(1, false, &config);
  struct consumed consumed = {.config = &config};
  train_and_save(&consumed, 2, 0);
  train_and_save(&consumed, 6, 0);
  assert_int_equal(plm_trace_sources_open(&config, &sources, NULL), PLM_OK);
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
  configure(1, false, &config);
  struct consumed consumed = {.config = &config}, other;
  train_and_save(&consumed, 2, 0);
  train_and_save(&consumed, 4, 0);
  other = consumed;
  other.chain.high ^= 1;
  write_checkpoint(4, cursor_of(&other, 0));
  train_and_save(&consumed, 6, 0);
  expect_proof(&config, 2, 0, 2);
  expect_error(&config, 3, PLM_CORRUPT,
               "steps 3 to 4 were not trained on these documents: their chain differs from the one "
               "in checkpoint 4");
  expect_error(&config, 6, PLM_CORRUPT,
               "steps 5 to 6 were not trained on these documents: their chain differs from the one "
               "in checkpoint 6");
  remove_checkpoint(2);
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
  struct consumed consumed;
  char expected[PLM_PATH_SIZE + 100], path[PLM_PATH_SIZE];
  (void)state;
  configure(1, false, &config);
  consumed = (struct consumed){.config = &config};
  train(&consumed, 2, false);
  snprintf(expected, sizeof expected,
           "%.4000s/step_00000002/trainer.json does not say what the run consumed", checkpoints);
  for (size_t i = 0; i < 3; i++) {
    cJSON *cursor = cursor_of(&consumed, 0);
    cJSON_DeleteItemFromObjectCaseSensitive(cursor, members[i]);
    write_checkpoint(2, cursor);
    expect_error(&config, 1, PLM_FORMAT, expected);
    cursor = cursor_of(&consumed, 0);
    cJSON_ReplaceItemInObjectCaseSensitive(cursor, members[i], cJSON_CreateNumber(-1));
    write_checkpoint(2, cursor);
    expect_error(&config, 1, PLM_FORMAT, expected);
  }
  cJSON *cursor = cursor_of(&consumed, 1);
  cJSON_AddItemToArray(cJSON_GetObjectItem(cursor, "sources"), cJSON_CreateObject());
  write_checkpoint(2, cursor);
  expect_error(&config, 1, PLM_FORMAT, expected);
  for (int more = 0; more < 2; more++) { /* as many sources as there can be, and one more */
    cursor = cursor_of(&consumed, 1);
    cJSON *list = cJSON_GetObjectItem(cursor, "sources");
    for (int k = 1; k < PLM_MAX_SOURCES + more; k++)
      cJSON_AddItemToArray(list, cJSON_Duplicate(cJSON_GetArrayItem(list, 0), true));
    write_checkpoint(2, cursor);
    if (more == 1)
      expect_error(&config, 1, PLM_FORMAT, expected);
    else
      expect_error(&config, 1, PLM_CORRUPT,
                   "steps 1 to 2 were not trained on these documents: their chain differs from the "
                   "one in checkpoint 2");
  }
  assert_int_equal(plm_path_join(path, checkpoints, "step_00000002/trainer.json", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  snprintf(expected, sizeof expected, "%.4000s/step_00000002 has no trainer.json", checkpoints);
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
  configure(2, true, &config);
  struct consumed consumed = {.config = &config};
  train_and_save(&consumed, 1, 2);
  train_and_save(&consumed, 3, 2);
  assert_true(consumed.of[0] > 0 && consumed.of[1] > 0);
  expect_proof(&config, 1, 0, 1);
  expect_proof(&config, 2, 1, 3);
  for (int k = 0; k < CORPORA; k++) {
    const struct plm_hash other = {.low = 1, .high = 2};
    cJSON *cursor = cursor_of(&consumed, 2);
    cJSON *source = cJSON_GetArrayItem(cJSON_GetObjectItem(cursor, "sources"), k);
    cJSON_DeleteItemFromObject(source, "fingerprint");
    put_hash(source, "fingerprint", other);
    write_checkpoint(3, cursor);
    plm_hash_to_hex(other, hex[0]);
    plm_hash_to_hex(fingerprint(k), hex[1]);
    snprintf(expected, sizeof expected, "the run was trained on corpus %s, but %s is %s", hex[0],
             plm_corpus_path(corpora[k]), hex[1]);
    expect_error(&config, 3, PLM_CONFIG, expected);
    expect_proof(&config, 1, 0, 1);
  }
  plm_config_deinit(&config);
}

/* The state of the newest checkpoint, whose history says which corpora the run had: one until
 * step `alone`, then those of the configuration. */
static void write_latest(const struct consumed *consumed, uint64_t alone)
{
  const struct plm_mixture one = {.count = 1, .weights = {1}, .final_weights = {-1}};
  const struct plm_mixture now = plm_config_mixture(consumed->config);
  struct plm_mixture_history history = {0};
  cJSON *cursor = cursor_of(consumed, (int)now.count);
  if (alone > 0) plm_mixture_history_add(&history, 0, CHUNKS, &one);
  plm_mixture_history_add(&history, alone, CHUNKS, &now);
  cJSON_AddItemToObject(cursor, "mixture", plm_mixture_history_to_json(&history));
  plm_mixture_history_deinit(&history);
  write_state("latest", consumed->steps, cursor);
}

/* A run that had one corpus becomes a mixture at a resume. From there on, chunks are hashed with
 * their sources, whether or not the checkpoint of the resume is still there. */
static void one_corpus_becomes_several(void **state)
{
  struct plm_config alone, config;
  (void)state;
  configure(1, false, &alone);
  configure(2, true, &config);
  struct consumed consumed = {.config = &alone};
  train_and_save(&consumed, 2, 0);
  train_and_save(&consumed, 3, 0);
  consumed.config = &config;
  train_and_save(&consumed, 5, 2);
  train_and_save(&consumed, 6, 2);
  write_latest(&consumed, 3);
  expect_proof(&config, 2, 0, 2);
  expect_proof(&config, 3, 2, 3);
  expect_proof(&config, 4, 3, 5);
  expect_proof(&config, 6, 5, 6);
  remove_checkpoint(3);
  expect_proof(&config, 3, 2, 5);
  expect_proof(&config, 5, 2, 5);
  remove_checkpoint(2);
  expect_proof(&config, 1, 0, 5);
  expect_proof(&config, 4, 0, 5);
  remove_checkpoint(5);
  expect_proof(&config, 6, 0, 6);
  plm_config_deinit(&alone);
  plm_config_deinit(&config);
}

/* A list of one corpus is a mixture too. */
static void a_list_of_one_is_a_mixture(void **state)
{
  struct plm_config alone, listed, config;
  (void)state;
  configure(1, false, &alone);
  configure(1, true, &listed);
  configure(2, true, &config);
  struct consumed consumed = {.config = &listed};
  train_and_save(&consumed, 2, 1);
  expect_proof(&listed, 1, 0, 2);
  consumed.config = &config;
  train_and_save(&consumed, 4, 2);
  write_latest(&consumed, 2);
  expect_proof(&config, 2, 0, 2);
  expect_proof(&config, 3, 2, 4);
  remove_checkpoint(2);
  expect_proof(&config, 2, 0, 4);
  /* and so is one that follows a corpus without a list */
  remove_checkpoint(4);
  consumed = (struct consumed){.config = &alone};
  train_and_save(&consumed, 1, 0);
  consumed.config = &listed;
  train_and_save(&consumed, 3, 1);
  write_latest(&consumed, 0);
  expect_proof(&listed, 1, 0, 1);
  expect_proof(&listed, 2, 1, 3);
  plm_config_deinit(&alone);
  plm_config_deinit(&listed);
  plm_config_deinit(&config);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_INFO);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_nearest_checkpoints_prove_a_step, setup),
      cmocka_unit_test_setup(a_folder_that_cannot_be_read_is_an_error, setup),
      cmocka_unit_test_setup(the_progress_counts_steps, setup),
      cmocka_unit_test_setup(another_chain_is_found, setup),
      cmocka_unit_test_setup(what_a_checkpoint_does_not_say, setup),
      cmocka_unit_test_setup(each_corpus_is_compared, setup),
      cmocka_unit_test_setup(one_corpus_becomes_several, setup),
      cmocka_unit_test_setup(a_list_of_one_is_a_mixture, setup),
  };
  return cmocka_run_group_tests(tests, open_corpora, close_corpora);
}
