/* Runs whose chain is computed here, chunk by chunk. */
#include "tests/support/corpora/chained_run.h"

#include <stdio.h>
#include <string.h>

#include "common/checkpoint/checkpoint.h"
#include "common/plan/chain.h"
#include "common/plan/trace.h"
#include "tests/support/corpora/written_corpus.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { LENGTH = 64 };

char chained_run[PLM_PATH_SIZE], chained_checkpoints[PLM_PATH_SIZE];
struct plm_corpus *chained_corpora[CHAINED_CORPORA];

int chained_open_corpora(void **state)
{
  (void)state;
  for (int k = 0; k < CHAINED_CORPORA; k++) {
    char name[16];
    snprintf(name, sizeof name, "corpus.%d", k);
    chained_corpora[k] = written_corpus_open(
        name, &(struct written_corpus){.documents = {20 + (uint64_t)k, 0, 0}, .longest = 60});
  }
  return 0;
}

int chained_close_corpora(void **state)
{
  (void)state;
  for (int k = 0; k < CHAINED_CORPORA; k++) plm_corpus_close(chained_corpora[k]);
  return 0;
}

int chained_setup(void **state)
{
  (void)state;
  scratch_run(chained_run);
  assert_int_equal(plm_path_join(chained_checkpoints, chained_run, "checkpoints", NULL), PLM_OK);
  return plm_directory_make(chained_checkpoints, NULL) != PLM_OK;
}

/* The configuration of a run on the first `count` corpora; as a list if it says so. */
void chained_configure(int count, bool listed, struct plm_config *config)
{
  char text[4 * PLM_PATH_SIZE], corpus[2 * PLM_PATH_SIZE] = "";
  struct plm_error error = {0};
  for (int k = 0; k < count; k++)
    snprintf(corpus + strlen(corpus), PLM_PATH_SIZE, "%s{path: %.2000s, weight: %d}",
             k > 0 ? ", " : "", plm_corpus_path(chained_corpora[k]), 1 + k);
  if (listed)
    snprintf(text, sizeof text, "corpus: [%s]\n", corpus);
  else
    snprintf(text, sizeof text, "corpus: %.2000s\n", plm_corpus_path(chained_corpora[0]));
  snprintf(text + strlen(text), PLM_PATH_SIZE + 200,
           "run: %.2000s\nseed: 7\ndata: {max_length: %d, window_groups: 1}\n"
           "trainer: {batch_tokens: %d, micro_batch_tokens: %d}\n",
           chained_run, LENGTH, CHAINED_CHUNKS * LENGTH, LENGTH);
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

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
  assert_int_equal(
      plm_plan_open_corpus(&parameters, chained_corpora[k], PLM_SPLIT_TRAIN, &plan, NULL), PLM_OK);
  from.plan = plan;
  assert_int_equal(plm_corpus_cursor_open(chained_corpora[k], &from.cursor, NULL), PLM_OK);
  assert_int_equal(plm_trace_open(&from, NULL, &trace, NULL), PLM_OK);
  assert_int_equal(plm_trace_chunk(trace, number, &chunk, NULL), PLM_OK);
  assert_int_equal(plm_trace_tokens(trace, &tokens, NULL), PLM_OK);
  plm_chain_add(hasher, mixed ? &source : NULL, chunk.documents, chunk.count, tokens, LENGTH);
  plm_trace_close(trace);
  plm_corpus_cursor_close(from.cursor);
  plm_plan_close(plan);
}

/* Trains until a step. mixed: chunks are hashed with their sources. */
void chained_train(struct chained_consumed *consumed, uint64_t until, bool mixed)
{
  const struct plm_mixture mixture = plm_config_mixture(consumed->config);
  struct plm_hasher *hasher = plm_hasher_open();
  for (; consumed->steps < until; consumed->steps++) {
    uint8_t sources[CHAINED_CHUNKS];
    plm_mixture_draw(&mixture, consumed->config->seed, consumed->steps, CHAINED_CHUNKS, sources);
    plm_chain_begin(hasher, consumed->chain, consumed->chunks, CHAINED_CHUNKS);
    for (int i = 0; i < CHAINED_CHUNKS; i++)
      add_chunk(consumed->config, sources[i], consumed->of[sources[i]]++, mixed, hasher);
    consumed->chain = plm_hasher_digest(hasher);
    consumed->chunks += CHAINED_CHUNKS;
  }
  plm_hasher_close(hasher);
}

void chained_put_hash(cJSON *json, const char *name, struct plm_hash hash)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(hash, hex);
  cJSON_AddStringToObject(json, name, hex);
}

struct plm_hash chained_fingerprint(int k)
{
  return plm_corpus_info(chained_corpora[k])->fingerprint;
}

/* The cursor of a checkpoint, as the trainer writes it; sources: 0: the run is no mixture. */
cJSON *chained_cursor_of(const struct chained_consumed *consumed, int sources)
{
  cJSON *cursor = cJSON_CreateObject();
  chained_put_hash(cursor, "fingerprint", chained_fingerprint(0));
  cJSON_AddNumberToObject(cursor, "chunks", (double)consumed->chunks);
  chained_put_hash(cursor, "chain", consumed->chain);
  if (sources == 0) return cursor;
  cJSON *list = cJSON_AddArrayToObject(cursor, "sources");
  for (int k = 0; k < sources; k++) {
    cJSON *source = cJSON_CreateObject();
    chained_put_hash(source, "fingerprint", chained_fingerprint(k));
    cJSON_AddItemToArray(list, source);
  }
  return cursor;
}

void chained_write_state(const char *folder, uint64_t step, cJSON *cursor)
{
  char directory[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  cJSON *json = cJSON_CreateObject();
  cJSON_AddNumberToObject(json, "step", (double)step);
  cJSON_AddItemToObject(json, "cursor", cursor);
  char *text = cJSON_PrintUnformatted(json);
  assert_int_equal(plm_path_join(directory, chained_checkpoints, folder, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(directory, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, directory, "trainer.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  cJSON_free(text);
  cJSON_Delete(json);
}

void chained_write_checkpoint(uint64_t step, cJSON *cursor)
{
  char name[PLM_CHECKPOINT_NAME_SIZE];
  plm_checkpoint_name(step, name);
  chained_write_state(name, step, cursor);
}

/* Trains until a step, which has a checkpoint. */
void chained_train_and_save(struct chained_consumed *consumed, uint64_t step, int sources)
{
  chained_train(consumed, step, sources > 0);
  chained_write_checkpoint(step, chained_cursor_of(consumed, sources));
}

void chained_remove_checkpoint(uint64_t step)
{
  char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(path, chained_checkpoints, name, NULL), PLM_OK);
  assert_int_equal(plm_path_remove(path, NULL), PLM_OK);
}
