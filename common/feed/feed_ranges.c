/* Ranges of chunks: requesting them ahead of use within the credit, taking answers, and comparing
 * duplicate answers. */
#include "common/feed/feed_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "common/feed/feed_dispute.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_sizes.h"

/* ---- the list ----------------------------------------------------------------------------- */

static struct feed_range *make_range(struct feed_state *feed)
{
  struct feed_range *range = feed->spare;
  if (range != NULL)
    feed->spare = range->next;
  else
    range = malloc(sizeof *range);
  if (range != NULL) memset(range, 0, sizeof *range);
  return range;
}

static void clear_ask(struct feed_state *feed, struct feed_ask *ask, uint64_t bytes)
{
  struct feed_peer *peer = feed_peer_serial(feed, ask->peer);
  if (ask->request != 0 && peer != NULL)
    peer->outstanding -= bytes < peer->outstanding ? bytes : peer->outstanding;
  ask->request = 0;
  ask->peer = 0;
}

void feed_ranges_pop(struct feed_state *feed)
{
  struct feed_range *range = feed->head;
  feed->head = range->next;
  if (feed->head == NULL) feed->tail = &feed->head;
  for (int i = 0; i < FEED_ASKS; i++) clear_ask(feed, &range->asks[i], range->bytes);
  if (range->state == RANGE_READY) zmq_msg_close(&range->payload);
  feed->in_flight -= range->bytes;
  range->next = feed->spare;
  feed->spare = range;
}

void feed_ranges_clear(struct feed_state *feed)
{
  while (feed->head != NULL) feed_ranges_pop(feed);
  memset(feed->history, 0, sizeof feed->history);
  feed_dispute_close(feed);
}

/* ---- asking ------------------------------------------------------------------------------- */

static void ask_range(struct feed_state *feed, struct feed_range *range, struct feed_peer *peer,
                      int slot, int64_t now)
{
  if (feed_peer_get(feed, peer, &range->span, now, &range->asks[slot]))
    peer->outstanding += range->bytes;
}

static void prepare(struct feed_state *feed, struct feed_peer *peer, uint64_t epoch,
                    uint64_t window)
{
  struct plm_header header = feed_header(feed, PLM_MESSAGE_PREPARE, peer);
  header.split = feed->split;
  header.epoch = epoch;
  header.first = window;
  header.count = 1;
  (void)feed_peer_send(feed, peer, &header, NULL, 0);
}

/* Chooses a packer for the window to request from next, and a standby that prepares the window
 * after it. */
static void choose_home(struct feed_state *feed, const struct feed_sizes *sizes)
{
  struct feed_peer *home = feed_peer_serial(feed, feed->prepared);
  if (home == NULL) home = feed_peer_next(feed, NULL, 0);
  if (home == NULL) return;
  feed->home = home->serial;
  feed->home_chosen = true;
  struct feed_peer *standby = feed_peer_next(feed, &home->packer_id, 1);
  if (standby == NULL) standby = home;
  feed->prepared = standby->serial;
  if (feed->ask_window + 1 < sizes->known)
    prepare(feed, standby, feed->ask_epoch, feed->ask_window + 1);
}

static uint64_t chunk_bytes(const struct feed_state *feed)
{
  const uint32_t documents =
      feed->plan.max_length / 128 + 2; /* a guess of 128 residues a document */
  return plm_data_chunk_bytes(feed->tokenizer, feed->plan.max_length, documents);
}

static uint32_t range_chunks(const struct feed_state *feed, uint32_t left)
{
  uint64_t bytes = feed->credit / 8;
  if (bytes < FEED_RANGE_LEAST) bytes = FEED_RANGE_LEAST;
  if (bytes > FEED_RANGE_MOST) bytes = FEED_RANGE_MOST;
  uint64_t chunks = bytes / chunk_bytes(feed);
  const uint64_t worst =
      plm_data_chunk_most(feed->tokenizer, feed->plan.max_length, feed->plan.alignment);
  if (chunks > FEED_RANGE_MOST / worst) chunks = FEED_RANGE_MOST / worst; /* feed_data_most */
  if (chunks == 0) chunks = 1;
  return chunks < left ? (uint32_t)chunks : left;
}

static bool empty_split(struct feed_state *feed, const struct feed_sizes *sizes)
{
  if (!sizes->complete || sizes->known != 0) return false;
  struct plm_error error;
  (void)plm_error_set(&error, PLM_NOT_FOUND, "the corpus has no documents in split %s",
                      plm_split_name(sizes->split));
  (void)plm_error_hint(&error, "ingest more sequences, or with another --split");
  feed_fail(feed, &error);
  return true;
}

/* Finds the window that contains (epoch, chunk), once enough sizes are known. */
static void place_seek(struct feed_state *feed, int64_t now)
{
  struct feed_sizes *sizes = feed_sizes_of(feed, feed->split, feed->epoch);
  if (empty_split(feed, sizes)) return;
  if (sizes->complete && feed->chunk >= sizes->chunks) { /* in a later epoch */
    feed_sizes_rely(feed, feed->split, feed->epoch, UINT64_MAX);
    feed->chunk -= sizes->chunks;
    feed->epoch++;
    return;
  }
  if (feed->chunk >= sizes->chunks) {
    feed_sizes_ask(feed, sizes, now);
    return;
  }
  uint64_t window = 0, first = 0;
  while (feed->chunk - first >= sizes->counts[window]) first += sizes->counts[window++];
  feed->ask_epoch = feed->epoch;
  feed->ask_window = window;
  feed->ask_window_first = first;
  feed->ask_chunk = (uint32_t)(feed->chunk - first);
  feed->home_chosen = false;
  feed->seeking = false;
}

/* Moves the position of the next request to the window that contains it. False: that window's size,
 * or whether another window follows it, is not known yet. */
static bool place_cursor(struct feed_state *feed, struct feed_sizes **found, int64_t now)
{
  struct feed_sizes *sizes = feed_sizes_of(feed, feed->split, feed->ask_epoch);
  if (empty_split(feed, sizes)) return false;
  if (feed->ask_window < sizes->known &&
      feed->ask_chunk == sizes->counts[feed->ask_window]) { /* all of it was requested */
    feed->ask_window_first += sizes->counts[feed->ask_window++];
    feed->ask_chunk = 0;
    feed->home_chosen = false;
  }
  if (sizes->complete && feed->ask_window == sizes->known) {
    feed->ask_epoch++;
    feed->ask_window = feed->ask_window_first = 0;
    sizes = feed_sizes_of(feed, feed->split, feed->ask_epoch);
  }
  if (!sizes->complete && sizes->known < feed->ask_window + FEED_SIZES_BLOCK / 2)
    feed_sizes_ask(feed, sizes, now);
  *found = sizes;
  return sizes->complete || sizes->known > feed->ask_window + 1;
}

static void add_ranges(struct feed_state *feed, int64_t now)
{
  while (feed->peer_count != 0 && feed->failed.status == PLM_OK && !feed->dispute.open) {
    struct feed_sizes *sizes;
    if (feed->seeking) {
      const uint64_t epoch = feed->epoch;
      place_seek(feed, now);
      if (feed->seeking && feed->epoch == epoch) return;
      continue;
    }
    if (!place_cursor(feed, &sizes, now)) return;
    const uint32_t window_chunks = sizes->counts[feed->ask_window];
    const uint32_t count = range_chunks(feed, window_chunks - feed->ask_chunk);
    const uint64_t bytes = count * chunk_bytes(feed);
    if (feed->in_flight != 0 && feed->in_flight + bytes > feed->credit) return;
    if (!feed->home_chosen || feed_peer_serial(feed, feed->home) == NULL) choose_home(feed, sizes);
    struct feed_range *range = make_range(feed);
    if (range == NULL) return; /* the next turn tries again */
    range->span = (struct feed_span){.epoch = feed->ask_epoch,
                                     .window = feed->ask_window,
                                     .window_first = feed->ask_window_first,
                                     .first = feed->ask_window_first + feed->ask_chunk,
                                     .count = count};
    range->bytes = bytes;
    range->home = feed->home;
    range->last_of_epoch = sizes->complete && feed->ask_window + 1 == sizes->known &&
                           feed->ask_chunk + count == window_chunks;
    feed->ask_chunk += count;
    feed->in_flight += bytes;
    *feed->tail = range;
    feed->tail = &range->next;
  }
}

/* ---- time --------------------------------------------------------------------------------- */

/* Half the time for which the credit lasts at the measured rate, from 10 ms to FEED_LATE_MS. */
static int64_t late_ms(const struct feed_state *feed)
{
  if (feed->rate <= 0) return FEED_LATE_MS;
  const double half = 500.0 * (double)feed->credit / feed->rate;
  return half >= FEED_LATE_MS ? FEED_LATE_MS : half < 10 ? 10 : (int64_t)half;
}

static void tend_range(struct feed_state *feed, struct feed_range *range, int64_t late, int64_t now)
{
  int free_slot = -1, asked = 0;
  bool overdue = true;
  uint64_t excluded[FEED_ASKS];
  for (int i = 0; i < FEED_ASKS; i++) {
    struct feed_ask *ask = &range->asks[i];
    const struct feed_peer *peer = feed_peer_serial(feed, ask->peer);
    if (ask->request != 0 && (peer == NULL || now - ask->sent_ms > FEED_DEADLINE_MS + 1000))
      clear_ask(feed, ask, range->bytes);
    if (ask->request == 0) {
      free_slot = i;
      continue;
    }
    const int64_t since = ask->sent_ms > peer->progress_ms ? ask->sent_ms : peer->progress_ms;
    overdue &= now - since > late;
    excluded[asked++] = ask->packer_id;
  }
  if (free_slot < 0 || now < range->retry_ms) return;
  if (asked == 0) {
    struct feed_peer *peer = feed_peer_serial(feed, range->home);
    if (peer == NULL) peer = feed_peer_next(feed, NULL, 0);
    if (peer == NULL) return;
    range->home = peer->serial;
    ask_range(feed, range, peer, free_slot, now);
  } else if (overdue) {
    struct feed_peer *peer = feed_peer_serial(feed, feed->prepared);
    for (int i = 0; peer != NULL && i < asked; i++)
      if (peer->packer_id == excluded[i]) peer = NULL;
    if (peer == NULL) peer = feed_peer_next(feed, excluded, asked);
    if (peer == NULL) return; /* nobody else can be asked */
    feed->counters.retried++;
    ask_range(feed, range, peer, free_slot, now);
  }
}

/* Sets the credit to what the caller uses in 2.5 seconds. It doubles while the caller has to wait,
 * and shrinks slowly. */
static void measure(struct feed_state *feed, int64_t now)
{
  const int64_t elapsed = now - feed->rate_ms;
  if (elapsed < 250) return;
  const double rate = 1e3 * (double)(feed->consumed_bytes - feed->rate_bytes) / (double)elapsed;
  feed->rate_bytes = feed->consumed_bytes;
  feed->rate_ms = now;
  feed->rate = feed->rate > 0 ? 0.7 * feed->rate + 0.3 * rate : rate;
  uint64_t credit = (uint64_t)(2.5 * feed->rate);
  if (feed->starved && credit < 2 * feed->credit) credit = 2 * feed->credit;
  if (!feed->starved && credit < feed->credit) credit = feed->credit - (feed->credit - credit) / 8;
  if (credit < FEED_CREDIT_START) credit = FEED_CREDIT_START;
  feed->credit = credit < feed->credit_most ? credit : feed->credit_most;
  feed->starved = false;
}

void feed_ranges_tick(struct feed_state *feed, int64_t now)
{
  measure(feed, now);
  if (!feed->wanted || feed->failed.status != PLM_OK) return;
  add_ranges(feed, now);
  const int64_t late = late_ms(feed);
  for (struct feed_range *range = feed->head; range != NULL; range = range->next)
    if (range->state == RANGE_WANTED) tend_range(feed, range, late, now);
}

/* ---- answers ------------------------------------------------------------------------------ */

static struct feed_range *find_ask(struct feed_state *feed, uint64_t request, uint64_t peer,
                                   struct feed_ask **ask)
{
  for (struct feed_range *range = feed->head; range != NULL; range = range->next)
    for (int i = 0; i < FEED_ASKS; i++)
      if (range->asks[i].request == request && request != 0 && range->asks[i].peer == peer) {
        *ask = &range->asks[i];
        return range;
      }
  return NULL;
}

/* Remembers the other packers that were asked for this range: if they also answer, their answers
 * are compared. */
static void remember_others(struct feed_state *feed, struct feed_range *range)
{
  for (int i = 0; i < FEED_ASKS; i++) {
    if (feed_peer_serial(feed, range->asks[i].peer) == NULL) continue;
    feed->history[feed->history_next++ % FEED_HISTORY] = (struct feed_answered){
        .late = range->asks[i], .first = range->answered, .span = range->span, .hash = range->hash};
    clear_ask(feed, &range->asks[i], range->bytes);
  }
}

static void accept_answer(struct feed_state *feed, struct feed_range *range, struct feed_ask *ask,
                          struct plm_message *message, uint64_t real_tokens)
{
  range->answered = *ask;
  clear_ask(feed, ask, range->bytes);
  zmq_msg_init(&range->payload);
  zmq_msg_move(&range->payload, &message->payload);
  range->hash = message->header.payload_hash;
  range->real_tokens = real_tokens;
  range->state = RANGE_READY;
  remember_others(feed, range);
  feed->in_flight = feed->in_flight - range->bytes + message->header.payload_bytes;
  range->bytes = message->header.payload_bytes;
  feed->counters.chunks += range->span.count;
  feed->counters.real_tokens += real_tokens;
  feed->counters.bytes += range->bytes;
  feed->network.changed(feed->network.context);
}

static void second_answer(struct feed_state *feed, struct feed_answered *answered,
                          struct plm_message *message, uint64_t real_tokens)
{
  const struct feed_ask late = answered->late;
  feed->counters.duplicate++;
  answered->late.request = 0;
  if (plm_hash_equal(answered->hash, message->header.payload_hash)) return;
  if (feed->dispute.open) return; /* one at a time */
  feed_dispute_open(feed, answered, &late, message, real_tokens);
}

bool feed_ranges_data(struct feed_state *feed, struct feed_peer *peer, struct plm_message *message,
                      uint64_t real_tokens)
{
  const struct plm_header *header = &message->header;
  struct feed_ask *ask;
  const int64_t now = feed->now_ms;
  peer->progress_ms = now;
  feed->progress_ms = now;
  if (feed_dispute_asked(feed, peer, header->request)) {
    if (!feed_span_is(feed, &feed->dispute.span, header)) return false;
    feed_dispute_answer(feed, message);
    return true;
  }
  struct feed_range *range = find_ask(feed, header->request, peer->serial, &ask);
  if (range != NULL) {
    if (!feed_span_is(feed, &range->span, header)) return false;
    accept_answer(feed, range, ask, message, real_tokens);
    return true;
  }
  for (int i = 0; i < FEED_HISTORY; i++) {
    struct feed_answered *answered = &feed->history[i];
    if (answered->late.request == 0 || answered->late.request != header->request ||
        answered->late.peer != peer->serial)
      continue;
    if (!feed_span_is(feed, &answered->span, header)) return false;
    second_answer(feed, answered, message, real_tokens);
    return true;
  }
  feed->counters.dropped++; /* it was asked for before a seek, or the request timed out */
  return true;
}

void feed_ranges_nack(struct feed_state *feed, struct feed_peer *peer,
                      const struct plm_message *message)
{
  enum plm_nack_reason reason;
  char text[PLM_WIRE_TEXT + 1];
  struct plm_error error;
  struct feed_ask *ask;
  const int64_t now = feed->now_ms;
  if (plm_nack_decode(zmq_msg_data((zmq_msg_t *)&message->payload),
                      (size_t)message->header.payload_bytes, &reason, text, &error) != PLM_OK) {
    feed->counters.invalid++;
    return;
  }
  struct feed_range *range = find_ask(feed, message->header.request, peer->serial, &ask);
  if (now - feed->logged_invalid_ms >= 1000) {
    feed->logged_invalid_ms = now;
    plm_warning("packer %s does not serve chunk %llu: %s", peer->name,
                (unsigned long long)message->header.first, text);
  }
  feed_dispute_nack(feed, peer, message->header.request);
  feed_sizes_nack(feed, peer, message->header.request, now);
  if (range == NULL) return;
  clear_ask(feed, ask, range->bytes);
  if (range->home == peer->serial) range->home = 0; /* another packer, if there is one */
  range->retry_ms = now + FEED_RETRY_MS;
}
