/* The sizes of windows: packers are asked for them block by block, in order. Two packers are asked
 * for each block if there are two, and a third one decides if they disagree. */
#include "common/feed/feed_sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/feed/feed_dispute.h"
#include "common/feed/feed_peers.h"

enum { WINDOWS_MOST = 1 << 24, CHUNKS_MOST = 1 << 28, AGAIN_MS = FEED_WAITING_MS / 10 };

struct feed_sizes *feed_sizes_of(struct feed_state *feed, enum plm_split split, uint64_t epoch)
{
  static const struct feed_sizes empty;
  struct feed_sizes *oldest = &feed->sizes[0];
  const uint64_t now = ++feed->next_serial;
  for (int i = 0; i < FEED_EPOCHS; i++) {
    struct feed_sizes *sizes = &feed->sizes[i];
    if (sizes->used && sizes->split == split && sizes->epoch == epoch) {
      sizes->used_at = now;
      return sizes;
    }
    if (!sizes->used || (oldest->used && sizes->used_at < oldest->used_at)) oldest = sizes;
  }
  uint32_t *counts = oldest->counts;
  uint64_t *sole = oldest->sole;
  const uint64_t capacity = oldest->capacity;
  *oldest = empty;
  oldest->used = true;
  oldest->split = split;
  oldest->epoch = epoch;
  oldest->used_at = now;
  oldest->counts = counts;
  oldest->sole = sole;
  oldest->capacity = capacity;
  return oldest;
}

void feed_sizes_rely(struct feed_state *feed, enum plm_split split, uint64_t epoch,
                     uint64_t windows)
{
  for (int i = 0; i < FEED_EPOCHS; i++) {
    struct feed_sizes *sizes = &feed->sizes[i];
    if (sizes->used && sizes->split == split && sizes->epoch == epoch && sizes->relied < windows)
      sizes->relied = windows;
  }
}

/* ---- accepting answers --------------------------------------------------------------------- */

static bool grow(struct feed_sizes *sizes, uint64_t windows)
{
  if (windows < sizes->capacity) return true; /* an empty last block has an entry as well */
  const uint64_t capacity = (windows / FEED_SIZES_BLOCK * 2 + 4) * FEED_SIZES_BLOCK;
  uint32_t *counts = realloc(sizes->counts, capacity * sizeof *counts);
  if (counts == NULL) return false;
  sizes->counts = counts;
  uint64_t *sole = realloc(sizes->sole, capacity / FEED_SIZES_BLOCK * sizeof *sole);
  if (sole == NULL) return false;
  sizes->sole = sole;
  sizes->capacity = capacity;
  return true;
}

/* sole: the packer that was the only one to answer, or 0. */
static void accept(struct feed_state *feed, struct feed_sizes *sizes,
                   const struct feed_sizes_ask *answer, uint64_t sole)
{
  struct plm_error error;
  if (!grow(sizes, sizes->known + answer->count)) {
    (void)plm_error_set(&error, PLM_NO_MEMORY, "no memory for the sizes of windows");
    feed_fail(feed, &error);
    return;
  }
  sizes->sole[sizes->known / FEED_SIZES_BLOCK] = sole;
  for (uint32_t i = 0; i < answer->count; i++) {
    sizes->counts[sizes->known++] = answer->counts[i];
    sizes->chunks += answer->counts[i];
  }
  sizes->complete = answer->count < FEED_SIZES_BLOCK;
  memset(sizes->asks, 0, sizeof sizes->asks);
  feed->network.changed(feed->network.context);
}

static bool same(const struct feed_sizes_ask *a, const struct feed_sizes_ask *b)
{
  return a->count == b->count && memcmp(a->counts, b->counts, a->count * sizeof *a->counts) == 0;
}

/* Two agree on `right`: whoever said something else is banned. */
static void accept_majority(struct feed_state *feed, struct feed_sizes *sizes, int right)
{
  const struct feed_sizes_ask answer = sizes->asks[right];
  for (int i = 0; i < FEED_ASKS; i++) {
    const struct feed_sizes_ask *other = &sizes->asks[i];
    if (!other->answered || same(other, &answer)) continue;
    feed_sizes_ban(feed, sizes, sizes->known, other->ask.packer_id, other->name);
  }
  accept(feed, sizes, &answer, 0);
}

void feed_sizes_ban(struct feed_state *feed, const struct feed_sizes *sizes, uint64_t first,
                    uint64_t packer_id, const char *name)
{
  plm_warning("packer %s gave wrong sizes for windows %llu.. of epoch %llu", name,
              (unsigned long long)first, (unsigned long long)sizes->epoch);
  feed_peer_ban(feed, packer_id, "its sizes of windows differ from those of two other packers");
  feed_dispute_distrust(feed, packer_id);
}

void feed_sizes_disagree(struct feed_state *feed, const struct feed_sizes *sizes, uint64_t first,
                         const char *a, const char *b, const char *why)
{
  struct plm_error error;
  (void)plm_error_set(&error, PLM_CORRUPT,
                      "packers %s and %s disagree on how many chunks windows %llu.. of epoch %llu "
                      "(%s) have; %s",
                      a, b, (unsigned long long)first, (unsigned long long)sizes->epoch,
                      plm_split_name(sizes->split), why);
  (void)plm_error_hint(&error, "verify the corpus on both hosts: plm-pipeline corpus DIR --verify");
  feed_fail(feed, &error);
}

/* Accepts, or fails, as soon as the answers allow it. One answer is enough if nobody else is here,
 * or if nobody else answers for a second; another packer is then asked later (feed_audit.c). */
static void decide(struct feed_state *feed, struct feed_sizes *sizes)
{
  const struct feed_sizes_ask *given[FEED_ASKS];
  uint64_t excluded[FEED_ASKS];
  int count = 0;
  for (int i = 0; i < FEED_ASKS; i++) {
    if (!sizes->asks[i].answered) continue;
    for (int j = 0; j < count; j++)
      if (same(given[j], &sizes->asks[i])) {
        accept_majority(feed, sizes, i);
        return;
      }
    excluded[count] = sizes->asks[i].ask.packer_id;
    given[count++] = &sizes->asks[i];
  }
  if (count == 0) return;
  const bool no_other = feed_peer_next(feed, excluded, count) == NULL;
  if (count == 1 && (no_other || feed->now_ms - given[0]->answered_ms >= AGAIN_MS))
    accept(feed, sizes, given[0], given[0]->ask.packer_id);
  else if (count == FEED_ASKS || (count > 1 && no_other))
    feed_sizes_disagree(feed, sizes, sizes->known, given[0]->name, given[1]->name,
                        count > 2 ? "a third packer says something else"
                                  : "there is no third packer to decide");
}

/* ---- asking -------------------------------------------------------------------------------- */

bool feed_sizes_ask_peer(struct feed_state *feed, const struct feed_sizes *sizes,
                         struct feed_peer *peer, int64_t now, struct feed_sizes_ask *made)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_SIZES, peer);
  header.request = feed->network.draw(feed->network.context);
  header.split = sizes->split;
  header.epoch = sizes->epoch;
  header.first = made->first;
  header.count = FEED_SIZES_BLOCK;
  const struct feed_ask ask = {header.request, peer->serial, peer->packer_id, now};
  made->ask = ask;
  snprintf(made->name, sizeof made->name, "%s", peer->name);
  if (feed_peer_send(feed, peer, &header, NULL, 0)) return true;
  *made = (struct feed_sizes_ask){0};
  return false;
}

void feed_sizes_expire(struct feed_state *feed, struct feed_sizes_ask *asked, int64_t now)
{
  if (asked->ask.request != 0 && !asked->answered &&
      (feed_peer_serial(feed, asked->ask.peer) == NULL || now >= asked->until_ms))
    *asked = (struct feed_sizes_ask){0};
}

void feed_sizes_ask(struct feed_state *feed, struct feed_sizes *sizes, int64_t now)
{
  uint64_t excluded[FEED_ASKS];
  int count = 0, answers = 0;
  if (sizes->complete || feed->failed.status != PLM_OK) return;
  decide(feed, sizes);
  if (sizes->complete || feed->failed.status != PLM_OK) return;
  for (int i = 0; i < FEED_ASKS; i++) {
    struct feed_sizes_ask *asked = &sizes->asks[i];
    feed_sizes_expire(feed, asked, now);
    if (asked->ask.request == 0) continue;
    answers += asked->answered;
    excluded[count++] = asked->ask.packer_id;
  }
  for (int i = 0; i < FEED_ASKS && count < (answers > 1 ? FEED_ASKS : 2); i++) {
    if (sizes->asks[i].ask.request != 0) continue;
    struct feed_peer *peer = feed_peer_next(feed, excluded, count);
    if (peer == NULL) return;
    const uint64_t packer_id = peer->packer_id;
    sizes->asks[i] = (struct feed_sizes_ask){.first = sizes->known, .until_ms = now + AGAIN_MS};
    if (feed_sizes_ask_peer(feed, sizes, peer, now, &sizes->asks[i])) excluded[count++] = packer_id;
  }
}

static struct feed_sizes_ask *find_in(struct feed_sizes_ask *asks, int count,
                                      const struct feed_peer *peer, uint64_t request)
{
  for (int i = 0; i < count; i++)
    if (!asks[i].answered && asks[i].ask.request == request && asks[i].ask.peer == peer->serial)
      return &asks[i];
  return NULL;
}

static struct feed_sizes_ask *find_ask(struct feed_state *feed, const struct feed_peer *peer,
                                       uint64_t request, struct feed_sizes **found)
{
  struct feed_sizes_ask *asked = NULL;
  for (int i = 0; i < FEED_EPOCHS && request != 0 && asked == NULL; i++) {
    struct feed_sizes *sizes = *found = &feed->sizes[i];
    if (!sizes->used) continue;
    asked = find_in(sizes->asks, FEED_ASKS, peer, request);
    if (asked == NULL) asked = find_in(sizes->audits, 2, peer, request);
  }
  return asked;
}

void feed_sizes_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request,
                     int64_t now)
{
  struct feed_sizes *sizes;
  struct feed_sizes_ask *asked = find_ask(feed, peer, request, &sizes);
  if (asked != NULL) asked->until_ms = now + FEED_RETRY_MS;
}

bool feed_sizes_answer(struct feed_state *feed, const struct feed_peer *peer,
                       const struct plm_message *message, struct plm_error *error)
{
  const struct plm_header *header = &message->header;
  struct feed_sizes *sizes;
  struct feed_sizes_ask *asked = find_ask(feed, peer, header->request, &sizes);
  if (asked == NULL) return false;
  const uint8_t *bytes = zmq_msg_data((zmq_msg_t *)&message->payload);
  if (header->split != (uint32_t)sizes->split || header->epoch != sizes->epoch ||
      header->first != asked->first || header->count > FEED_SIZES_BLOCK ||
      header->payload_bytes != 4 * (uint64_t)header->count ||
      asked->first + header->count > WINDOWS_MOST) {
    (void)plm_error_set(error, PLM_PROTOCOL, "SIZED is not what was asked for");
    return true;
  }
  for (uint32_t i = 0; i < header->count; i++) {
    asked->counts[i] = plm_data_read_count(bytes + 4 * (size_t)i);
    if (asked->counts[i] == 0 || asked->counts[i] > CHUNKS_MOST) {
      (void)plm_error_set(error, PLM_PROTOCOL, "SIZED states a window of %u chunks",
                          asked->counts[i]);
      return true;
    }
  }
  asked->count = header->count;
  asked->answered = true;
  asked->answered_ms = feed->now_ms;
  if (!sizes->complete) decide(feed, sizes);
  return true;
}
