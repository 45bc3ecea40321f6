/* The position in the data plan, and its JSON. */
#include "trainer/input/data_cursor.h"
#include "common/base/text/json.h"
#include "common/plan/chain.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void plm_data_cursor_init(struct plm_data_cursor *cursor, struct plm_hash plan, uint64_t seed)
{
  *cursor = (struct plm_data_cursor){
      .seed = seed, .hasher = plm_hasher_open(), .sources = {{.plan = plan}}, .source_count = 1};
}

void plm_data_cursor_deinit(struct plm_data_cursor *cursor)
{
  plm_hasher_close(cursor->hasher);
  plm_mixture_history_deinit(&cursor->mixture);
  *cursor = (struct plm_data_cursor){0};
}

double plm_data_cursor_epochs(const struct plm_data_cursor *cursor)
{
  const struct plm_feed_position *next = &cursor->sources[0].next;
  const struct plm_plan_place *place = &next->place;
  if (place->window == 0 && place->chunk == 0) return (double)place->epoch;
  if (next->windows == 0 || (place->chunk > 0 && next->window_chunks == 0)) return (double)NAN;
  const double part = place->chunk == 0 ? 0 : (double)place->chunk / (double)next->window_chunks;
  return (double)place->epoch + ((double)place->window + part) / (double)next->windows;
}

static void data_cursor_put(uint8_t *bytes, size_t *size, const void *value, size_t count)
{
  memcpy(bytes + *size, value, count);
  *size += count;
}

struct plm_hash plm_data_cursor_plan(const struct plm_data_cursor *cursor)
{
  if (!cursor->mixed) return cursor->sources[0].plan;
  uint8_t bytes[PLM_MAX_SOURCES * 48 + 8];
  size_t size = 0;
  const struct plm_mixture *mixture = &cursor->mixture.parts[cursor->mixture.count - 1].mixture;
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    data_cursor_put(bytes, &size, &cursor->sources[k].plan, sizeof(struct plm_hash));
    data_cursor_put(bytes, &size, &cursor->sources[k].fingerprint, sizeof(struct plm_hash));
    data_cursor_put(bytes, &size, &mixture->weights[k], sizeof(double));
    data_cursor_put(bytes, &size, &mixture->final_weights[k], sizeof(double));
  }
  data_cursor_put(bytes, &size, &mixture->steps, sizeof mixture->steps);
  return plm_hash_bytes(bytes, size);
}

/* ---- consuming ----------------------------------------------------------------------------- */

static void extend_chain(struct plm_data_cursor *cursor, const struct plm_batch *batch)
{
  const size_t chunk_bytes = (size_t)batch->max_length * batch->token_bytes;
  plm_chain_begin(cursor->hasher, cursor->chain, cursor->chunks, batch->chunks);
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const uint32_t begin = batch->document_begin[c];
    plm_chain_add(cursor->hasher, cursor->mixed ? &batch->sources[c] : NULL,
                  batch->documents + begin, batch->document_begin[c + 1] - begin,
                  (const char *)batch->tokens + c * chunk_bytes, chunk_bytes);
  }
  cursor->chain = plm_hasher_digest(cursor->hasher);
}

void plm_data_cursor_consume(struct plm_data_cursor *cursor, const struct plm_batch *batch,
                             const struct plm_feed_position *next)
{
  PLM_ASSERT(batch->chunks > 0);
  extend_chain(cursor, batch);
  cursor->chunks += batch->chunks;
  for (uint32_t c = 0; c < batch->chunks; c++) {
    const uint8_t k = batch->sources[c];
    PLM_ASSERT(k < cursor->source_count);
    cursor->sources[k].chunks++;
    cursor->sources[k].next = next[k];
  }
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

static void add_place(cJSON *json, const struct plm_plan_place *place)
{
  add_integer(json, "epoch", place->epoch);
  add_integer(json, "window", place->window);
  add_integer(json, "window_begin", place->before);
  add_integer(json, "window_chunk", place->chunk);
}

static void add_sources(cJSON *json, const struct plm_data_cursor *cursor)
{
  cJSON *list = cJSON_AddArrayToObject(json, "sources");
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    const struct plm_data_source *source = &cursor->sources[k];
    cJSON *entry = cJSON_CreateObject();
    add_hash(entry, "fingerprint", source->fingerprint);
    add_hash(entry, "plan", source->plan);
    add_integer(entry, "chunks", source->chunks);
    add_place(entry, &source->next.place);
    plm_json_append(list, entry);
  }
  plm_json_put(json, "mixture", plm_mixture_history_to_json(&cursor->mixture));
}

struct cJSON *plm_data_cursor_to_json(const struct plm_data_cursor *cursor)
{
  cJSON *json = cJSON_CreateObject();
  add_hash(json, "fingerprint", cursor->sources[0].fingerprint);
  add_hash(json, "plan", plm_data_cursor_plan(cursor));
  add_integer(json, "seed", cursor->seed);
  add_integer(json, "chunks", cursor->chunks);
  if (!cursor->mixed) add_place(json, &cursor->sources[0].next.place);
  add_hash(json, "chain", cursor->chain);
  if (cursor->mixed) add_sources(json, cursor);
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

static plm_status get_count(const cJSON *json, const char *name, uint64_t *count,
                            struct plm_error *error)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
  if (!is_count(item))
    return plm_error_set(error, PLM_FORMAT, "the cursor's \"%s\" is not a count", name);
  *count = (uint64_t)item->valuedouble;
  return PLM_OK;
}

/* Older checkpoints have the chunks of each finished epoch instead of a place. The rest are chunks
 * of the next epoch, whose windows they do not know. */
static plm_status get_place_from_totals(const cJSON *totals, uint64_t chunks,
                                        struct plm_plan_place *place, struct plm_error *error)
{
  const cJSON *total;
  uint64_t left = chunks;
  *place = (struct plm_plan_place){0};
  if (!cJSON_IsArray(totals))
    return plm_error_set(error, PLM_FORMAT, "the cursor's epoch_totals are not a list");
  cJSON_ArrayForEach(total, totals)
  {
    if (!is_count(total) || total->valuedouble == 0)
      return plm_error_set(error, PLM_FORMAT, "an entry of epoch_totals is not a positive count");
    if ((uint64_t)total->valuedouble > left)
      return plm_error_set(error, PLM_FORMAT, "epoch_totals exceed the chunks consumed");
    left -= (uint64_t)total->valuedouble;
    place->epoch++;
  }
  place->chunk = left;
  return PLM_OK;
}

/* Each epoch and each window has a chunk. All counts are below 2^53, so sums cannot overflow. */
static bool is_place_after(const struct plm_plan_place *place, uint64_t chunks)
{
  const uint64_t of_epoch = place->before + place->chunk;
  if (place->before < place->window || (place->window == 0 && place->before > 0)) return false;
  return place->epoch == 0 ? of_epoch == chunks : place->epoch + of_epoch <= chunks;
}

static plm_status get_position(struct plm_data_source *source, const cJSON *json,
                               struct plm_error *error)
{
  const cJSON *totals = cJSON_GetObjectItemCaseSensitive(json, "epoch_totals");
  struct plm_plan_place place;
  PLM_TRY(get_count(json, "chunks", &source->chunks, error));
  if (totals != NULL) {
    PLM_TRY(get_place_from_totals(totals, source->chunks, &place, error));
  } else {
    PLM_TRY(get_count(json, "epoch", &place.epoch, error));
    PLM_TRY(get_count(json, "window", &place.window, error));
    PLM_TRY(get_count(json, "window_begin", &place.before, error));
    PLM_TRY(get_count(json, "window_chunk", &place.chunk, error));
    if (!is_place_after(&place, source->chunks))
      return plm_error_set(error, PLM_FORMAT,
                           "the cursor's epoch, window, window_begin and window_chunk do not fit "
                           "the chunks consumed");
  }
  source->next = (struct plm_feed_position){.place = place};
  return PLM_OK;
}

static plm_status get_source(struct plm_data_source *source, const cJSON *json,
                             struct plm_error *error)
{
  PLM_TRY(get_hash(json, "plan", &source->plan, error));
  PLM_TRY(get_hash(json, "fingerprint", &source->fingerprint, error));
  return get_position(source, json, error);
}

static plm_status get_sources(struct plm_data_cursor *cursor, const cJSON *json,
                              struct plm_error *error)
{
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "sources");
  const cJSON *mixture = cJSON_GetObjectItemCaseSensitive(json, "mixture");
  uint64_t sum = 0;
  const int count = cJSON_GetArraySize(list);
  if (!cJSON_IsArray(list) || count < 1 || count > PLM_MAX_SOURCES)
    return plm_error_set(error, PLM_FORMAT, "the cursor's sources are not a list of 1 to %d",
                         PLM_MAX_SOURCES);
  PLM_TRY(get_count(json, "chunks", &cursor->chunks, error));
  cursor->mixed = true;
  cursor->source_count = (uint32_t)count;
  for (uint32_t k = 0; k < cursor->source_count; k++) {
    PLM_TRY(get_source(&cursor->sources[k], cJSON_GetArrayItem(list, (int)k), error));
    sum += cursor->sources[k].chunks;
  }
  PLM_TRY(plm_mixture_history_from_json(&cursor->mixture, mixture, error));
  if (sum != cursor->chunks ||
      cursor->mixture.parts[cursor->mixture.count - 1].mixture.count != cursor->source_count)
    return plm_error_set(error, PLM_FORMAT, "the cursor's sources do not add up to it");
  return PLM_OK;
}

plm_status plm_data_cursor_from_json(struct plm_data_cursor *cursor, const struct cJSON *json,
                                     struct plm_error *error)
{
  struct plm_data_source *first = &cursor->sources[0];
  PLM_ASSERT(!cursor->mixed); /* nothing was read into it */
  PLM_TRY(get_hash(json, "plan", &first->plan, error));
  PLM_TRY(get_hash(json, "fingerprint", &first->fingerprint, error));
  PLM_TRY(get_hash(json, "chain", &cursor->chain, error));
  if (cJSON_GetObjectItemCaseSensitive(json, "sources") != NULL ||
      cJSON_GetObjectItemCaseSensitive(json, "mixture") != NULL)
    return get_sources(cursor, json, error);
  PLM_TRY(get_position(first, json, error));
  cursor->chunks = first->chunks;
  return PLM_OK;
}

plm_status plm_data_source_check_plan(const struct plm_data_source *source, struct plm_hash plan,
                                      struct plm_error *error)
{
  if (plm_hash_equal(plan, source->plan)) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "the checkpoint was trained on the data in another order");
  plm_error_hint(error,
                 "seed and the keys of data: must be those that the run began with; to take only "
                 "its weights, start a new run with trainer.init_from");
  return PLM_CONFIG;
}
