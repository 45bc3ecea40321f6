/* Ranges of chunks: requesting them ahead of use within the credit, and taking answers. */
#include "common/feed/feed_ranges.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_requests.h"
#include "common/feed/feed_windows.h"

/* ---- the list ----------------------------------------------------------------------------- */

void feed_ranges_pop(struct feed_state *feed)
{
  struct feed_range *range = feed->head;
  PLM_ASSERT(range != NULL && range->bytes <= feed->in_flight);
  feed->head = range->next;
  if (feed->head == NULL) feed->tail = &feed->head;
  if (range->request.state == REQUEST_DONE) zmq_msg_close(&range->payload);
  feed->in_flight -= range->bytes;
  feed_planned_release(range->planned);
  free(range);
  PLM_ASSERT(feed->head != NULL || feed->in_flight == 0);
}

void feed_ranges_clear(struct feed_state *feed)
{
  while (feed->head != NULL) feed_ranges_pop(feed);
}

/* ---- asking ------------------------------------------------------------------------------- */

/* The number of chunks in the next range of a window: about an eighth of the credit, at least one.
 */
static uint32_t range_chunks(const struct feed_state *feed, const struct feed_planned *planned,
                             uint32_t first)
{
  uint64_t bytes = feed->credit / 8;
  if (bytes < FEED_RANGE_LEAST) bytes = FEED_RANGE_LEAST;
  if (bytes > FEED_RANGE_MOST) bytes = FEED_RANGE_MOST;
  uint32_t end = first + 1;
  PLM_ASSERT(first < planned->window.chunks);
  while (end < planned->window.chunks && planned->offset[end + 1] - planned->offset[first] <= bytes)
    end++;
  return end - first;
}

/* The first window with chunks that were not requested; NULL: it is not planned yet. */
static struct feed_window *next_window(const struct feed_state *feed)
{
  struct feed_window *window = feed->windows;
  while (window != NULL && window->request.state == REQUEST_DONE &&
         window->requested == window->planned->window.chunks)
    window = window->next;
  return window != NULL && window->request.state == REQUEST_DONE ? window : NULL;
}

plm_status feed_chunk_check(const struct feed_planned *planned, uint32_t chunk, uint64_t most,
                            struct plm_error *error)
{
  const struct plm_window *window = &planned->window;
  const uint64_t bytes = planned->offset[chunk + 1] - planned->offset[chunk];
  uint64_t labels = 0;
  if (bytes <= most) return PLM_OK;
  for (uint32_t i = window->chunk_begin[chunk]; i < window->chunk_begin[chunk + 1]; i++)
    if (planned->schema != NULL)
      labels += plm_label_record_size(planned->schema, window->documents[i].residues);
  plm_error_set(error, PLM_LIMIT,
                "chunk %u of window %llu has %llu bytes, more than the %llu of a message", chunk,
                (unsigned long long)planned->index, (unsigned long long)bytes,
                (unsigned long long)most);
  if (bytes - labels > most)
    return plm_error_hint(error, "use a smaller data.max_length, or another data.truncate");
  return plm_error_hint(
      error,
      "%llu of them are labels of its %u documents: ingest fewer columns of labels or columns with "
      "fewer classes, or use a smaller data.max_length%s",
      (unsigned long long)labels, window->chunk_begin[chunk + 1] - window->chunk_begin[chunk],
      plm_plan_parameters(planned->plan)->truncate == PLM_TRUNCATE_SPLIT
          ? ", or data.truncate: random_crop, since each piece of a split document has the labels "
            "of "
            "the whole document"
          : "");
}

/* False: nothing more can be requested now. */
static bool add_range(struct feed_state *feed)
{
  struct feed_window *window = next_window(feed);
  if (window == NULL) return false;
  struct feed_planned *planned = window->planned;
  const uint32_t first = window->requested, count = range_chunks(feed, planned, first);
  const uint64_t bytes = planned->offset[first + count] - planned->offset[first];
  struct plm_error error;
  if (feed_chunk_check(planned, first, feed_data_most(&feed->plan), &error) != PLM_OK) {
    feed_fail(feed, &error);
    return false;
  }
  if (feed->in_flight != 0 && feed->in_flight + bytes > feed->credit) return false;
  struct feed_range *range = plm_alloc_zeroed(1, sizeof *range);
  feed_planned_hold(planned);
  range->planned = planned;
  range->first = first;
  range->count = count;
  range->bytes = bytes;
  range->request.home = window->home;
  window->requested += count;
  PLM_ASSERT(window->requested <= planned->window.chunks);
  feed->home = window->home;
  feed->prepared = window->next != NULL ? window->next->home : window->home;
  feed->in_flight += bytes;
  *feed->tail = range;
  feed->tail = &range->next;
  return true;
}

static void feed_ranges_ask(struct feed_state *feed, struct feed_range *range, int64_t late)
{
  uint8_t payload[8];
  const struct plm_get get = {.deadline_ms = FEED_DEADLINE_MS,
                              .window = (uint32_t)range->planned->index};
  const struct plm_header header = {.type = PLM_MESSAGE_GET,
                                    .epoch = range->planned->epoch,
                                    .first = range->first,
                                    .count = range->count};
  (void)feed_request_ask(feed, &range->request, late, &header, payload,
                         plm_get_encode(&get, payload));
}

void feed_ranges_tick(struct feed_state *feed, int64_t late)
{
  if (feed->peer_count == 0 || feed->seeking) return;
  while (add_range(feed)) continue;
  for (struct feed_range *range = feed->head; range != NULL; range = range->next)
    feed_ranges_ask(feed, range, late);
}

/* ---- answers ------------------------------------------------------------------------------ */

bool feed_ranges_data(struct feed_state *feed, struct feed_peer *peer, struct plm_message *message)
{
  struct feed_ask *ask = NULL;
  struct feed_range *range = feed->head;
  while (range != NULL &&
         (ask = feed_request_find(&range->request, peer, message->header.request)) == NULL)
    range = range->next;
  if (range == NULL) return false;
  PLM_ASSERT(range->request.state == REQUEST_WANTED); /* an answer ends all its questions */
  *ask = (struct feed_ask){0};
  if (message->header.payload_bytes != range->bytes) {
    struct plm_error error;
    (void)plm_error_set(&error, PLM_PROTOCOL, "DATA of %llu bytes, where the plan has %llu",
                        (unsigned long long)message->header.payload_bytes,
                        (unsigned long long)range->bytes);
    feed_peer_lied(feed, peer->packer_id, peer->name, &error);
    return true;
  }
  const struct feed_job job = {
      .planned = range->planned, .first = range->first, .count = range->count};
  feed_request_check(feed, &range->request, peer, message, &job);
  return true;
}

void feed_ranges_checked(struct feed_state *feed, struct feed_job *job, bool truth)
{
  struct feed_range *range = feed->head;
  while (range != NULL && (range->planned != job->planned || range->first != job->first))
    range = range->next;
  if (range == NULL) return;
  PLM_ASSERT(range->request.state == REQUEST_CHECKING && job->count == range->count);
  range->request.state = truth ? REQUEST_DONE : REQUEST_WANTED;
  if (!truth) return;
  range->packer_id = job->packer_id;
  zmq_msg_init(&range->payload);
  zmq_msg_move(&range->payload, &job->payload);
  feed->counters.chunks += range->count;
  feed->counters.real_tokens += job->real_tokens;
  feed->counters.bytes += range->bytes;
  feed->progress_ms = feed->now_ms;
  feed->lie[0] = '\0';
}
