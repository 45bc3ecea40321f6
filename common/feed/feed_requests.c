/* Asking packers until one has answered. */
#include "common/feed/feed_requests.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/feed/feed_peers.h"

struct feed_ask *feed_request_find(struct feed_request *request, const struct feed_peer *peer,
                                   uint64_t id)
{
  for (int i = 0; i < FEED_ASKS; i++) /* a free slot has serial 0, which no peer has */
    if (request->asks[i].request == id && request->asks[i].peer == peer->serial)
      return &request->asks[i];
  return NULL;
}

static void feed_requests_refuse(struct feed_state *feed, struct feed_request *request,
                                 const struct feed_peer *peer, uint64_t id)
{
  struct feed_ask *ask = feed_request_find(request, peer, id);
  if (ask == NULL) return;
  if (request->home == ask->peer) request->home = 0;
  *ask = (struct feed_ask){0};
  request->retry_ms = feed->now_ms + FEED_RETRY_MS;
}

void feed_requests_refused(struct feed_state *feed, const struct feed_peer *peer, uint64_t id)
{
  for (struct feed_window *window = feed->windows; window != NULL; window = window->next)
    feed_requests_refuse(feed, &window->request, peer, id);
  for (struct feed_range *range = feed->head; range != NULL; range = range->next)
    feed_requests_refuse(feed, &range->request, peer, id);
}

/* The first packer to ask. */
static struct feed_peer *first_peer(struct feed_state *feed, struct feed_request *request)
{
  struct feed_peer *peer = feed_peer_serial(feed, request->home);
  if (peer == NULL) peer = feed_peer_next(feed, NULL, 0);
  if (peer != NULL) request->home = peer->serial;
  return peer;
}

/* Another packer, in place of those that are late: the one that serves the next window, if it is
 * not one of them. NULL: nobody else can be asked. */
static struct feed_peer *other_peer(struct feed_state *feed, const uint64_t *asked, int count)
{
  struct feed_peer *peer = feed_peer_serial(feed, feed->prepared);
  for (int i = 0; peer != NULL && i < count; i++)
    if (peer->packer_id == asked[i]) peer = NULL;
  return peer != NULL ? peer : feed_peer_next(feed, asked, count);
}

/* The packer to ask now; NULL: none. *slot receives its place among the asks. */
static struct feed_peer *due(struct feed_state *feed, struct feed_request *request, int64_t late,
                             int *slot)
{
  const int64_t now = feed->now_ms;
  uint64_t asked[FEED_ASKS];
  int count = 0;
  bool overdue = true;
  *slot = -1;
  for (int i = 0; i < FEED_ASKS; i++) {
    struct feed_ask *ask = &request->asks[i];
    const struct feed_peer *peer = feed_peer_serial(feed, ask->peer);
    if (ask->request != 0 && (peer == NULL || now - ask->sent_ms > FEED_DEADLINE_MS + 1000))
      *ask = (struct feed_ask){0};
    if (ask->request == 0) {
      *slot = i;
      continue;
    }
    const int64_t since = ask->sent_ms > peer->progress_ms ? ask->sent_ms : peer->progress_ms;
    overdue &= now - since > late;
    asked[count++] = ask->packer_id;
  }
  if (*slot < 0 || now < request->retry_ms) return NULL;
  if (count == 0) return first_peer(feed, request);
  if (!overdue) return NULL;
  struct feed_peer *peer = other_peer(feed, asked, count);
  if (peer != NULL) feed->counters.retried++;
  return peer;
}

uint64_t feed_request_ask(struct feed_state *feed, struct feed_request *request, int64_t late,
                          const struct plm_header *header, const void *payload, size_t bytes)
{
  int slot;
  struct feed_peer *peer =
      request->state == REQUEST_WANTED ? due(feed, request, late, &slot) : NULL;
  if (peer == NULL) return 0;
  struct plm_header to_peer = feed_header(feed, header->type, peer);
  to_peer.split = feed->split;
  to_peer.epoch = header->epoch;
  to_peer.first = header->first;
  to_peer.count = header->count;
  to_peer.request = feed->network.draw(feed->network.context);
  PLM_ASSERT(to_peer.request != 0 && request->asks[slot].request == 0); /* 0 means: none */
  const uint64_t serial = peer->serial;
  request->asks[slot] = (struct feed_ask){to_peer.request, serial, peer->packer_id, feed->now_ms};
  feed_peer_send(feed, peer, &to_peer, payload, bytes);
  return serial;
}

void feed_request_check(struct feed_state *feed, struct feed_request *request,
                        const struct feed_peer *peer, struct plm_message *message,
                        const struct feed_job *job)
{
  struct feed_job *made = plm_alloc(sizeof *made);
  PLM_ASSERT(request->state == REQUEST_WANTED && job->planned != NULL && job->count > 0);
  memset(request->asks, 0, sizeof request->asks);
  request->state = REQUEST_CHECKING;
  *made = *job;
  made->feed = feed;
  made->packer_id = peer->packer_id;
  snprintf(made->name, sizeof made->name, "%s", peer->name);
  feed_planned_hold(made->planned);
  zmq_msg_init(&made->payload);
  zmq_msg_move(&made->payload, &message->payload);
  feed->network.submit(feed->network.context, made);
}
