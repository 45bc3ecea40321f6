/* The position in the data plan, and its JSON. */
#include "trainer/data_cursor.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

plm_status plm_data_cursor_init(struct plm_data_cursor *cursor, struct plm_hash plan, uint64_t seed,
                                struct plm_error *error)
{
  *cursor = (struct plm_data_cursor){.plan = plan, .seed = seed, .hasher = plm_hasher_open()};
  if (cursor->hasher == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the cursor's hash");
  return PLM_OK;
}

void plm_data_cursor_deinit(struct plm_data_cursor *cursor)
{
  plm_hasher_close(cursor->hasher);
  free(cursor->epoch_totals);
  *cursor = (struct plm_data_cursor){0};
}

void plm_data_cursor_position(const struct plm_data_cursor *cursor, uint64_t *epoch,
                              uint64_t *chunk)
{
  *epoch = cursor->epoch_count;
  *chunk = cursor->chunks - cursor->passed;
}

static plm_status pass_epoch(struct plm_data_cursor *cursor, uint64_t total,
                             struct plm_error *error)
{
  if (cursor->epoch_count == cursor->epoch_capacity) {
    const size_t capacity = cursor->epoch_capacity == 0 ? 64 : 2 * cursor->epoch_capacity;
    uint64_t *totals = realloc(cursor->epoch_totals, capacity * sizeof *totals);
    if (totals == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu epochs", capacity);
    cursor->epoch_totals = totals;
    cursor->epoch_capacity = capacity;
  }
  cursor->epoch_totals[cursor->epoch_count++] = total;
  cursor->passed += total;
  cursor->current_total = 0;
  return PLM_OK;
}

/* chain' = XXH3-128(chain, g, number of chunks, then each chunk's document table and tokens) */
static void extend_chain(struct plm_data_cursor *cursor, const struct plm_batch *batch)
{
  struct plm_hasher *hasher = cursor->hasher;
  const uint64_t head[] = {cursor->chain.low, cursor->chain.high, cursor->chunks, batch->chunks};
  const size_t chunk_bytes = (size_t)batch->max_length * batch->token_bytes;
  plm_hasher_reset(hasher);
  plm_hasher_update(hasher, head, sizeof head);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const uint32_t begin = batch->document_begin[c];
    const uint32_t documents = batch->document_begin[c + 1] - begin;
    plm_hasher_update(hasher, &documents, sizeof documents);
    plm_hasher_update(hasher, batch->documents + begin, documents * sizeof *batch->documents);
    plm_hasher_update(hasher, (const char *)batch->tokens + c * chunk_bytes, chunk_bytes);
  }
  cursor->chain = plm_hasher_digest(hasher);
}

plm_status plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                                   plm_epoch_chunks *total, void *context, struct plm_error *error)
{
  extend_chain(cursor, batch);
  cursor->chunks += batch->chunks;
  while (cursor->chunks > cursor->passed) {
    if (cursor->current_total == 0)
      PLM_TRY(total(context, cursor->epoch_count, &cursor->current_total, error));
    if (cursor->current_total == 0)
      return plm_error_set(error, PLM_PROTOCOL, "epoch %zu has no chunks", cursor->epoch_count);
    if (cursor->chunks - cursor->passed < cursor->current_total) break;
    PLM_TRY(pass_epoch(cursor, cursor->current_total, error));
  }
  return PLM_OK;
}

static void add_hash(cJSON *json, const char *name, struct plm_hash hash)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(hash, hex);
  if (hash.low == 0 && hash.high == 0)
    cJSON_AddNullToObject(json, name);
  else
    cJSON_AddStringToObject(json, name, hex);
}

static void add_integer(cJSON *json, const char *name, uint64_t value)
{
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  cJSON_AddRawToObject(json, name, digits);
}

struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor)
{
  cJSON *json = cJSON_CreateObject();
  add_hash(json, "fingerprint", cursor->fingerprint);
  add_hash(json, "plan", cursor->plan);
  add_integer(json, "seed", cursor->seed);
  add_integer(json, "chunks", cursor->chunks);
  cJSON *totals = cJSON_AddArrayToObject(json, "epoch_totals");
  for (size_t i = 0; i < cursor->epoch_count; i++)
    cJSON_AddItemToArray(totals, cJSON_CreateNumber((double)cursor->epoch_totals[i]));
  add_hash(json, "chain", cursor->chain);
  return json;
}

static plm_status get_hash(const cJSON *json, const char *name, struct plm_hash *hash,
                           struct plm_error *error)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
  *hash = (struct plm_hash){0};
  if (cJSON_IsNull(item)) return PLM_OK;
  if (!cJSON_IsString(item)) return plm_error_set(error, PLM_FORMAT, "the cursor has no %s", name);
  return plm_hash_from_hex(item->valuestring, hash, error);
}

/* Counts are far below 2^53, where a double holds every integer. */
static bool is_count(const cJSON *item)
{
  return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 0x1p53 &&
         item->valuedouble == (double)(uint64_t)item->valuedouble;
}

plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error)
{
  PLM_TRY(get_hash(json, "plan", &cursor->plan, error));
  PLM_TRY(get_hash(json, "fingerprint", &cursor->fingerprint, error));
  PLM_TRY(get_hash(json, "chain", &cursor->chain, error));
  const cJSON *chunks = cJSON_GetObjectItemCaseSensitive(json, "chunks");
  const cJSON *totals = cJSON_GetObjectItemCaseSensitive(json, "epoch_totals"), *total;
  if (!is_count(chunks) || !cJSON_IsArray(totals))
    return plm_error_set(error, PLM_FORMAT, "the cursor has no chunks or epoch_totals");
  cursor->chunks = (uint64_t)chunks->valuedouble;
  cursor->epoch_count = 0;
  cursor->passed = 0;
  cJSON_ArrayForEach(total, totals)
  {
    if (!is_count(total))
      return plm_error_set(error, PLM_FORMAT, "an entry of epoch_totals is not a count");
    PLM_TRY(pass_epoch(cursor, (uint64_t)total->valuedouble, error));
    if (cursor->passed > cursor->chunks) /* checked for each, so that the sum cannot overflow */
      return plm_error_set(error, PLM_FORMAT, "epoch_totals exceed the chunks consumed");
  }
  return PLM_OK;
}

plm_status plm_data_cursor_check_plan(const struct plm_data_cursor *cursor, struct plm_hash plan,
                                      struct plm_error *error)
{
  if (plm_hash_equal(plan, cursor->plan)) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "the checkpoint was trained on the data in another order");
  plm_error_hint(error,
                 "seed and the keys of data: must be those that the run began with; to take only "
                 "its weights, start a new run with trainer.init_from");
  return PLM_CONFIG;
}
