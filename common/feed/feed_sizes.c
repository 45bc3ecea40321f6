/* The sizes of windows: packers are asked for them block by block, in order. */
#include "common/feed/feed_sizes.h"

#include <stdlib.h>
#include <string.h>

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
  const uint64_t capacity = oldest->capacity;
  *oldest = empty;
  oldest->used = true;
  oldest->split = split;
  oldest->epoch = epoch;
  oldest->used_at = now;
  oldest->counts = counts;
  oldest->capacity = capacity;
  return oldest;
}

void feed_sizes_ask(struct feed_state *feed, struct feed_sizes *sizes, int64_t now)
{
  if (sizes->complete) return;
  if (sizes->request != 0 && feed_peer_serial(feed, sizes->peer) != NULL &&
      now - sizes->sent_ms < AGAIN_MS)
    return;
  struct feed_peer *peer = feed_peer_next(feed, NULL, 0);
  if (peer == NULL) return;
  struct plm_header header = feed_header(feed, PLM_MESSAGE_SIZES, peer);
  header.request = feed->network.draw(feed->network.context);
  header.split = sizes->split;
  header.epoch = sizes->epoch;
  header.first = sizes->known;
  header.count = FEED_SIZES_BLOCK;
  if (!feed_peer_send(feed, peer, &header, NULL, 0)) return;
  sizes->request = header.request;
  sizes->peer = peer->serial;
  sizes->sent_ms = now;
}

static bool is_asked(const struct feed_sizes *sizes, const struct feed_peer *peer, uint64_t request)
{
  return request != 0 && sizes->request == request && sizes->peer == peer->serial;
}

void feed_sizes_nack(struct feed_state *feed, const struct feed_peer *peer, uint64_t request,
                     int64_t now)
{
  for (int i = 0; i < FEED_EPOCHS; i++)
    if (is_asked(&feed->sizes[i], peer, request))
      feed->sizes[i].sent_ms = now - AGAIN_MS + FEED_RETRY_MS;
}

static bool grow(struct feed_sizes *sizes, uint64_t windows)
{
  if (windows <= sizes->capacity) return true;
  const uint64_t capacity = windows * 2 + 64;
  uint32_t *counts = realloc(sizes->counts, capacity * sizeof *counts);
  if (counts == NULL) return false;
  sizes->counts = counts;
  sizes->capacity = capacity;
  return true;
}

bool feed_sizes_answer(struct feed_state *feed, const struct feed_peer *peer,
                       const struct plm_message *message, struct plm_error *error)
{
  const struct plm_header *header = &message->header;
  struct feed_sizes *sizes = NULL;
  for (int i = 0; i < FEED_EPOCHS; i++)
    if (feed->sizes[i].used && is_asked(&feed->sizes[i], peer, header->request))
      sizes = &feed->sizes[i];
  if (sizes == NULL) return false;
  const uint8_t *bytes = zmq_msg_data((zmq_msg_t *)&message->payload);
  if (header->split != (uint32_t)sizes->split || header->epoch != sizes->epoch ||
      header->first != sizes->known || header->count > FEED_SIZES_BLOCK ||
      header->payload_bytes != 4 * (uint64_t)header->count ||
      sizes->known + header->count > WINDOWS_MOST) {
    (void)plm_error_set(error, PLM_PROTOCOL, "SIZED is not what was asked for");
    return true;
  }
  for (uint32_t i = 0; i < header->count; i++) {
    const uint32_t chunks = plm_data_read_count(bytes + 4 * (size_t)i);
    if (chunks == 0 || chunks > CHUNKS_MOST) {
      (void)plm_error_set(error, PLM_PROTOCOL, "SIZED states a window of %u chunks", chunks);
      return true;
    }
  }
  if (!grow(sizes, sizes->known + header->count)) {
    (void)plm_error_set(error, PLM_NO_MEMORY, "no memory for the sizes of windows");
    feed_fail(feed, error);
    return true;
  }
  for (uint32_t i = 0; i < header->count; i++) {
    const uint32_t chunks = plm_data_read_count(bytes + 4 * (size_t)i);
    sizes->counts[sizes->known++] = chunks;
    sizes->chunks += chunks;
  }
  sizes->request = 0;
  sizes->complete = header->count < FEED_SIZES_BLOCK;
  feed->network.changed(feed->network.context);
  return true;
}
