/* What a feed shows of its packers: a row for each of them, and the counters. */
#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/feed/feed.h"
#include "common/feed/feed_handle.h"

/* What one packer is to the lanes. */
struct row {
  const struct feed_peer *peer; /* of the first lane that it serves */
  struct plm_packer_counters counters;
  double tokens_per_second;
  bool standby;     /* in all lanes that it serves */
  int64_t heard_ms; /* when its last message came; monotonic */
  uint64_t ahead;   /* chunks of it that are here and wait to be used */
  uint32_t sources[PLM_MAX_SOURCES], source_count;
};

static void add_up(struct row *row, const struct feed_peer *peer)
{
  const struct plm_packer_counters *counters = &peer->counters;
  row->counters.windows += counters->windows;
  row->counters.documents += counters->documents;
  row->counters.tokens += counters->tokens;
  row->counters.padded_tokens += counters->padded_tokens;
  row->counters.queue += counters->queue;
  row->tokens_per_second += peer->rate.tokens_per_second;
}

static uint64_t chunks_ahead(const struct feed_state *lane, uint64_t packer_id)
{
  uint64_t chunks = 0;
  for (const struct feed_range *range = lane->head; range != NULL; range = range->next)
    if (range->request.state == REQUEST_DONE && range->packer_id == packer_id)
      chunks += range->count - range->taken;
  return chunks;
}

/* Collects what lanes k and above say about a packer that no lane before k has. False: one has. */
static bool feed_rows_collect(const struct plm_feed *feed, uint32_t k, const struct feed_peer *peer,
                              struct row *row)
{
  *row = (struct row){.peer = peer, .standby = true};
  for (uint32_t l = 0; l < feed->lane_count; l++) {
    const struct feed_state *lane = &feed->lanes[l];
    for (int i = 0; i < FEED_PEERS; i++) {
      const struct feed_peer *other = &lane->peers[i];
      if (!other->used || other->packer_id != peer->packer_id) continue;
      if (l < k) return false;
      row->standby &= other->serial == lane->prepared && other->serial != lane->home;
      row->sources[row->source_count++] = l;
      row->ahead += chunks_ahead(lane, peer->packer_id);
      if (other->heard_ms > row->heard_ms) row->heard_ms = other->heard_ms;
      add_up(row, other);
    }
  }
  return true;
}

/* The folders of the corpora that it serves, as this consumer knows them. */
static void add_corpora(const struct plm_feed *feed, const struct row *row, cJSON *json)
{
  if (feed->folder_count == 0) return;
  cJSON *corpora = cJSON_AddArrayToObject(json, "corpora");
  for (uint32_t i = 0; i < row->source_count; i++)
    if (row->sources[i] < feed->folder_count)
      plm_json_append(corpora, cJSON_CreateString(feed->folders[row->sources[i]]));
}

static void add_row(const struct plm_feed *feed, const struct row *row, int64_t now, cJSON *peers)
{
  const bool mixture = feed->lanes[0].of_source[0] != '\0';
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "packer", row->peer->name);
  cJSON_AddStringToObject(json, "host", row->peer->host);
  cJSON_AddNumberToObject(json, "pid", row->peer->pid);
  cJSON_AddStringToObject(json, "state", row->standby ? "standby" : "serving");
  cJSON_AddNumberToObject(json, "windows", (double)row->counters.windows);
  cJSON_AddNumberToObject(json, "documents", (double)row->counters.documents);
  cJSON_AddNumberToObject(json, "tokens", (double)row->counters.tokens);
  cJSON_AddNumberToObject(json, "padded_tokens", (double)row->counters.padded_tokens);
  cJSON_AddNumberToObject(json, "queue", (double)row->counters.queue);
  cJSON_AddBoolToObject(json, "standby", row->standby);
  cJSON_AddNumberToObject(json, "ahead", (double)row->ahead);
  cJSON_AddNumberToObject(json, "rate", row->tokens_per_second);
  cJSON_AddNumberToObject(json, "sign_age_s", (double)(now - row->heard_ms) / 1e3);
  cJSON_AddNumberToObject(json, "age_s", (double)(now - row->peer->joined_ms) / 1e3);
  cJSON *sources = mixture ? cJSON_AddArrayToObject(json, "sources") : NULL;
  for (uint32_t i = 0; i < row->source_count && mixture; i++)
    plm_json_append(sources, cJSON_CreateNumber(row->sources[i]));
  add_corpora(feed, row, json);
  plm_json_append(peers, json);
}

char *plm_feed_peers_json(struct plm_feed *feed)
{
  cJSON *peers = cJSON_CreateArray();
  struct row row;
  pthread_mutex_lock(&feed->mutex);
  const int64_t now = plm_clock_ms();
  for (uint32_t k = 0; k < feed->lane_count; k++)
    for (int i = 0; i < FEED_PEERS; i++) {
      const struct feed_peer *peer = &feed->lanes[k].peers[i];
      if (peer->used && feed_rows_collect(feed, k, peer, &row)) add_row(feed, &row, now, peers);
    }
  pthread_mutex_unlock(&feed->mutex);
  char *text = plm_json_bytes(peers, false);
  cJSON_Delete(peers);
  return text;
}

/* A packer that serves several sources counts once for each in `peers`. */
void plm_feed_counters(struct plm_feed *feed, struct plm_feed_counters *counters)
{
  *counters = (struct plm_feed_counters){0};
  pthread_mutex_lock(&feed->mutex);
  for (uint32_t k = 0; k < feed->lane_count; k++) {
    const struct plm_feed_counters *lane = &feed->lanes[k].counters;
    counters->chunks += lane->chunks;
    counters->real_tokens += lane->real_tokens;
    counters->bytes += lane->bytes;
    counters->refused += lane->refused;
    counters->dropped += lane->dropped;
    counters->invalid += lane->invalid;
    counters->retried += lane->retried;
    counters->peers += lane->peers;
  }
  pthread_mutex_unlock(&feed->mutex);
}
