/* The position in the data plan, and its JSON. */
#include "trainer/data_cursor.h"
#include "common/base/json.h"
#include "common/plan/chain.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  for (uint32_t k = 0; k < cursor->source_count; k++) free(cursor->sources[k].epoch_totals);
  free(cursor->sources);
  plm_mixture_history_deinit(&cursor->mixture);
  *cursor = (struct plm_data_cursor){0};
}

void plm_data_cursor_position(const struct plm_data_cursor *cursor, uint64_t *epoch,
                              uint64_t *chunk)
{
  *epoch = cursor->epoch_count;
  *chunk = cursor->chunks - cursor->passed;
}

double plm_data_cursor_epochs(const struct plm_data_cursor *cursor)
{
  const struct plm_data_cursor *of = cursor->source_count > 0 ? &cursor->sources[0] : cursor;
  const uint64_t chunk = of->chunks - of->passed;
  if (chunk == 0) return (double)of->epoch_count;
  return of->current_total == 0
             ? (double)NAN
             : (double)of->epoch_count + (double)chunk / (double)of->current_total;
}

/* ---- sources ------------------------------------------------------------------------------- */

plm_status plm_data_cursor_add_sources(struct plm_data_cursor *cursor, uint32_t count,
                                       const struct plm_hash *plans,
                                       const struct plm_hash *fingerprints, struct plm_error *error)
{
  PLM_ASSERT(count >= cursor->source_count && count <= PLM_MAX_SOURCES);
  struct plm_data_cursor *sources = realloc(cursor->sources, count * sizeof *sources);
  if (sources == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for the cursor");
  cursor->sources = sources;
  for (uint32_t k = cursor->source_count; k < count; k++)
    sources[k] = (struct plm_data_cursor){
        .plan = plans[k], .fingerprint = fingerprints[k], .seed = cursor->seed};
  if (cursor->source_count == 0) { /* the corpus that the run had until now */
    sources[0].chunks = cursor->chunks;
    sources[0].passed = cursor->passed;
    sources[0].epoch_totals = cursor->epoch_totals;
    sources[0].epoch_count = cursor->epoch_count;
    sources[0].epoch_capacity = cursor->epoch_capacity;
    cursor->epoch_totals = NULL;
    cursor->passed = cursor->epoch_count = cursor->epoch_capacity = 0;
    cursor->fingerprint = fingerprints[0];
  }
  cursor->source_count = count;
  return PLM_OK;
}

static void put(uint8_t *bytes, size_t *size, const void *value, size_t count)
{
  memcpy(bytes + *size, value, count);
  *size += count;
}

struct plm_hash plm_data_cursor_mixed_plan(const struct plm_data_cursor *cursor)
{
  uint8_t bytes[PLM_MAX_SOURCES * 48 + 8];
  size_t size = 0;
  const struct plm_mixture *mixture = &cursor->mixture.parts[cursor->mixture.count - 1].mixture;
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    put(bytes, &size, &cursor->sources[k].plan, sizeof(struct plm_hash));
    put(bytes, &size, &cursor->sources[k].fingerprint, sizeof(struct plm_hash));
    put(bytes, &size, &mixture->weights[k], sizeof(double));
    put(bytes, &size, &mixture->final_weights[k], sizeof(double));
  }
  put(bytes, &size, &mixture->steps, sizeof mixture->steps);
  return plm_hash_bytes(bytes, size);
}

/* ---- consuming ----------------------------------------------------------------------------- */

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

static void extend_chain(struct plm_data_cursor *cursor, const struct plm_batch *batch)
{
  const size_t chunk_bytes = (size_t)batch->max_length * batch->token_bytes;
  plm_chain_begin(cursor->hasher, cursor->chain, cursor->chunks, batch->chunks);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const uint32_t begin = batch->document_begin[c];
    plm_chain_add(cursor->hasher, batch->sources == NULL ? NULL : &batch->sources[c],
                  batch->documents + begin, batch->document_begin[c + 1] - begin,
                  (const char *)batch->tokens + c * chunk_bytes, chunk_bytes);
  }
  cursor->chain = plm_hasher_digest(cursor->hasher);
}

/* Moves past `chunks` chunks of a corpus, which is source k of a mixture or the only one. */
static plm_status move(struct plm_data_cursor *cursor, uint32_t k, uint64_t chunks,
                       plm_epoch_chunks *total, void *context, struct plm_error *error)
{
  cursor->chunks += chunks;
  while (cursor->chunks > cursor->passed) {
    if (cursor->current_total == 0)
      PLM_TRY(total(context, k, cursor->epoch_count, &cursor->current_total, error));
    if (cursor->current_total == 0)
      return plm_error_set(error, PLM_PROTOCOL, "epoch %zu has no chunks", cursor->epoch_count);
    if (cursor->chunks - cursor->passed < cursor->current_total) break;
    PLM_TRY(pass_epoch(cursor, cursor->current_total, error));
  }
  return PLM_OK;
}

plm_status plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                                   plm_epoch_chunks *total, void *context, struct plm_error *error)
{
  uint64_t counts[PLM_MAX_SOURCES] = {0};
  extend_chain(cursor, batch);
  if (cursor->source_count == 0) return move(cursor, 0, batch->chunks, total, context, error);
  PLM_ASSERT(batch->sources != NULL);
  for (uint32_t c = 0; c < batch->chunks; c++) counts[batch->sources[c]]++;
  cursor->chunks += batch->chunks;
  for (uint32_t k = 0; k < cursor->source_count; k++)
    if (counts[k] > 0) PLM_TRY(move(&cursor->sources[k], k, counts[k], total, context, error));
  return PLM_OK;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

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

static void add_position(cJSON *json, const struct plm_data_cursor *cursor)
{
  add_integer(json, "chunks", cursor->chunks);
  cJSON *totals = cJSON_AddArrayToObject(json, "epoch_totals");
  for (size_t i = 0; i < cursor->epoch_count; i++)
    plm_json_append(totals, cJSON_CreateNumber((double)cursor->epoch_totals[i]));
}

static void add_sources(cJSON *json, const struct plm_data_cursor *cursor)
{
  cJSON *sources = cJSON_AddArrayToObject(json, "sources");
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    cJSON *source = cJSON_CreateObject();
    add_hash(source, "fingerprint", cursor->sources[k].fingerprint);
    add_hash(source, "plan", cursor->sources[k].plan);
    add_position(source, &cursor->sources[k]);
    plm_json_append(sources, source);
  }
  plm_json_put(json, "mixture", plm_mixture_history_to_json(&cursor->mixture));
}

struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor)
{
  cJSON *json = cJSON_CreateObject();
  add_hash(json, "fingerprint", cursor->fingerprint);
  add_hash(json, "plan", cursor->plan);
  add_integer(json, "seed", cursor->seed);
  add_position(json, cursor);
  add_hash(json, "chain", cursor->chain);
  if (cursor->source_count > 0) add_sources(json, cursor);
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

static plm_status get_position(struct plm_data_cursor *cursor, const cJSON *json,
                               struct plm_error *error)
{
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

static plm_status get_source(struct plm_data_cursor *cursor, const cJSON *json,
                             struct plm_error *error)
{
  PLM_TRY(get_hash(json, "plan", &cursor->plan, error));
  PLM_TRY(get_hash(json, "fingerprint", &cursor->fingerprint, error));
  return get_position(cursor, json, error);
}

static plm_status get_sources(struct plm_data_cursor *cursor, const cJSON *json,
                              struct plm_error *error)
{
  static const struct plm_hash unknown[PLM_MAX_SOURCES];
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "sources");
  const cJSON *mixture = cJSON_GetObjectItemCaseSensitive(json, "mixture");
  uint64_t sum = 0;
  if (list == NULL && mixture == NULL) return PLM_OK;
  const int count = cJSON_GetArraySize(list);
  if (!cJSON_IsArray(list) || count < 1 || count > PLM_MAX_SOURCES || cursor->source_count > 0)
    return plm_error_set(error, PLM_FORMAT, "the cursor's sources are not a list of 1 to %d",
                         PLM_MAX_SOURCES);
  const struct plm_hash fingerprint = cursor->fingerprint;
  const uint64_t chunks = cursor->chunks;
  PLM_TRY(plm_data_cursor_add_sources(cursor, (uint32_t)count, unknown, unknown, error));
  cursor->fingerprint = fingerprint;
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    PLM_TRY(get_source(&cursor->sources[k], cJSON_GetArrayItem(list, (int)k), error));
    sum += cursor->sources[k].chunks;
  }
  PLM_TRY(plm_mixture_history_from_json(&cursor->mixture, mixture, error));
  if (sum != chunks ||
      cursor->mixture.parts[cursor->mixture.count - 1].mixture.count != cursor->source_count)
    return plm_error_set(error, PLM_FORMAT, "the cursor's sources do not add up to it");
  return PLM_OK;
}

plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error)
{
  PLM_TRY(get_hash(json, "plan", &cursor->plan, error));
  PLM_TRY(get_hash(json, "fingerprint", &cursor->fingerprint, error));
  PLM_TRY(get_hash(json, "chain", &cursor->chain, error));
  PLM_TRY(get_position(cursor, json, error));
  return get_sources(cursor, json, error);
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
