/* Asking for the tables of windows, in order, and finding the user's place in them. */
#include "common/feed/feed_windows.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_requests.h"

/* ---- the list ----------------------------------------------------------------------------- */

static void pop(struct feed_state *feed)
{
  struct feed_window *window = feed->windows;
  feed->windows = window->next;
  if (feed->windows == NULL) feed->window_tail = &feed->windows;
  feed_request_clear(&window->request);
  feed->unplanned -= window->state != WINDOW_PLANNED;
  feed_planned_release(window->planned);
  free(window);
}

void feed_windows_clear(struct feed_state *feed)
{
  while (feed->windows != NULL) pop(feed); /* jobs that look for their window no longer find it */
  if (feed->plan.token_limit != 0) {       /* the tokens before another window are not known */
    feed->place.chunk += feed->place.before;
    feed->place.window = feed->place.before = 0;
  }
  feed->next_epoch = feed->place.epoch;
  feed->next_window = feed->place.window;
  feed->next_tokens = 0;
  feed->home = feed->prepared = 0;
}

static plm_status open_plan(struct feed_state *feed, struct plm_error *error)
{
  const struct plm_proof_split *split = &feed->splits[feed->split];
  struct plm_plan **plan = &feed->plans[feed->split];
  if (*plan != NULL) return PLM_OK;
  const plm_status status =
      plm_plan_open(&feed->plan, split->documents, split->clusters, plan, error);
  if (status != PLM_NOT_FOUND) return status;
  (void)plm_error_set(error, PLM_NOT_FOUND, "the corpus has no documents in split %s",
                      plm_split_name(feed->split));
  return plm_error_hint(error, "ingest more sequences, or with another --split");
}

/* The packer of the next window: another one than the last window's, if there is one, so that each
 * has time to prepare. */
static uint64_t choose_home(struct feed_state *feed)
{
  const struct feed_peer *peer = feed_peer_next(feed, NULL, 0);
  return peer != NULL ? peer->serial : 0;
}

static plm_status add_window(struct feed_state *feed, bool soon, struct plm_error *error)
{
  const struct plm_plan *plan = feed->plans[feed->split];
  const struct feed_planned of = {
      .plan = plan,
      .split = &feed->splits[feed->split],
      .tokenizer = feed->tokenizer,
      .schema = feed->labels.count > 0 ? &feed->labels : NULL,
      .epoch = feed->next_epoch,
      .index = feed->next_window,
      .groups = plm_plan_group_count(plan, feed->next_window),
      .tokens = feed->next_tokens,
      .last = feed->next_window + 1 == plm_plan_windows(plan),
  };
  if (of.groups == 0)
    return plm_error_set(error, PLM_FORMAT,
                         "the run's place is in window %llu of epoch %llu, but an epoch has %llu",
                         (unsigned long long)of.index, (unsigned long long)of.epoch,
                         (unsigned long long)plm_plan_windows(plan));
  struct feed_window *window = plm_alloc_zeroed(1, sizeof *window);
  window->planned = feed_planned_open(&of);
  window->soon = soon;
  window->home = window->request.home = choose_home(feed);
  *feed->window_tail = window;
  feed->window_tail = &window->next;
  feed->unplanned++;
  feed->next_window = of.last ? 0 : of.index + 1;
  feed->next_epoch += of.last;
  return PLM_OK;
}

/* ---- how far ahead ------------------------------------------------------------------------ */

static uint64_t unrequested_bytes(const struct feed_window *window)
{
  const struct feed_planned *planned = window->planned;
  return planned->window.chunks == 0
             ? 0
             : planned->offset[planned->window.chunks] - planned->offset[window->requested];
}

/* Whether another window is to be added: there are always two that no chunks were requested from,
 * and more if these are small. With a token limit, what a window has depends on those before it. */
static bool wants_window(const struct feed_state *feed)
{
  uint64_t bytes = 0;
  uint32_t untouched = 0;
  if (feed->plan.token_limit != 0 && feed->unplanned > 0) return false;
  for (const struct feed_window *window = feed->windows; window != NULL; window = window->next) {
    untouched += window->requested == 0;
    if (window->state == WINDOW_PLANNED) bytes += unrequested_bytes(window);
  }
  return untouched < 2 || (bytes < feed->credit / 4 && feed->unplanned < FEED_UNPLANNED);
}

static void add_windows(struct feed_state *feed)
{
  struct plm_error error;
  plm_status status = open_plan(feed, &error);
  while (status == PLM_OK && wants_window(feed))
    status = add_window(feed, feed->windows == NULL || !feed->seeking, &error);
  if (status != PLM_OK) feed_fail(feed, &error);
}

/* ---- the place ---------------------------------------------------------------------------- */

/* Moves the place from the first window to the next one. */
static void pass(struct feed_state *feed)
{
  const struct feed_planned *planned = feed->windows->planned;
  struct plm_plan_place *place = &feed->place;
  if (planned->last)
    *place = (struct plm_plan_place){.epoch = place->epoch + 1, .chunk = place->chunk};
  else
    *place = (struct plm_plan_place){place->epoch, place->window + 1,
                                     place->before + planned->window.chunks, place->chunk};
  place->chunk -= planned->window.chunks;
  pop(feed);
}

static void say_seeking(struct feed_state *feed)
{
  if (feed->now_ms - feed->seek_said_ms < FEED_WAITING_MS) return;
  feed->seek_said_ms = feed->now_ms;
  plm_info("counting the chunks of epoch %llu up to the %s's place: window %llu of %llu",
           (unsigned long long)feed->place.epoch, feed->role,
           (unsigned long long)feed->place.window + 1,
           (unsigned long long)plm_plan_windows(feed->plans[feed->split]));
}

void feed_windows_leave(struct feed_state *feed)
{
  while (feed->windows != NULL && feed->windows->state == WINDOW_PLANNED &&
         feed->place.chunk >= feed->windows->planned->window.chunks)
    pass(feed);
}

/* Counts its way to the place. */
static void seek(struct feed_state *feed)
{
  const uint64_t window = feed->place.window;
  feed_windows_leave(feed);
  if (feed->place.window != window) {
    feed->progress_ms = feed->now_ms;
    say_seeking(feed);
  }
  if (feed->windows == NULL || feed->windows->state != WINDOW_PLANNED) return;
  feed->windows->requested = (uint32_t)feed->place.chunk;
  feed->seeking = false;
}

/* ---- asking ------------------------------------------------------------------------------- */

static void feed_windows_ask(struct feed_state *feed, struct feed_window *window, int64_t late)
{
  int slot;
  uint8_t payload[8];
  struct feed_peer *peer = feed_request_due(feed, &window->request, late, &slot);
  if (peer == NULL) return;
  const struct feed_planned *planned = window->planned;
  const struct plm_prove prove = {.group = planned->tables.groups, .soon = window->soon};
  struct plm_header header = feed_header(feed, PLM_MESSAGE_PROVE, peer);
  header.split = feed->split;
  header.epoch = planned->epoch;
  header.first = planned->index;
  header.count = planned->groups - prove.group;
  window->home = peer->serial;
  feed_request_send(feed, &window->request, slot, peer, &header, payload,
                    plm_prove_encode(&prove, payload));
}

void feed_windows_tick(struct feed_state *feed, int64_t late)
{
  if (!feed->corpus_known || feed->peer_count == 0) return;
  if (feed->seeking)
    seek(feed);
  else
    feed_windows_leave(feed); /* one beyond the token limit, which has no chunks */
  add_windows(feed);
  for (struct feed_window *window = feed->windows; window != NULL; window = window->next)
    if (window->state == WINDOW_ASKED && feed->failed.status == PLM_OK)
      feed_windows_ask(feed, window, late);
}

/* ---- answers ------------------------------------------------------------------------------ */

bool feed_windows_proof(struct feed_state *feed, struct feed_peer *peer,
                        struct plm_message *message)
{
  struct feed_window *window = feed->windows;
  while (window != NULL &&
         feed_request_find(&window->request, peer, message->header.request) == NULL)
    window = window->next;
  if (window == NULL) return false;
  PLM_ASSERT(window->state == WINDOW_ASKED); /* an answer ends all its questions */
  feed_request_clear(&window->request);
  struct feed_planned *planned = window->planned;
  const uint32_t count = message->header.count;
  struct plm_error error;
  if (count == 0 || count > planned->groups - planned->tables.groups) {
    (void)plm_error_set(&error, PLM_PROTOCOL, "PROOF of %u groups, which were not asked for",
                        count);
    feed_peer_lied(feed, peer->packer_id, peer->name, &error);
    return true;
  }
  window->state = WINDOW_CHECKING;
  feed_request_check(
      feed, peer, message,
      &(struct feed_job){.planned = planned, .tables = true, .count = count, .owner = window});
  return true;
}

/* After the last window within a token limit, the next epoch begins. */
static void note_tokens(struct feed_state *feed, const struct feed_planned *planned)
{
  if (feed->plan.token_limit == 0) return;
  feed->next_tokens = planned->last ? 0 : planned->tokens_after;
  if (!planned->last || feed->next_epoch != planned->epoch) return;
  feed->next_epoch++;
  feed->next_window = 0;
}

void feed_windows_checked(struct feed_state *feed, struct feed_window *window, bool truth)
{
  const struct feed_planned *planned = window->planned;
  PLM_ASSERT(window->state == WINDOW_CHECKING);
  window->state = WINDOW_ASKED;
  if (truth) feed->progress_ms = feed->now_ms;
  if (!truth || !planned->complete) return;
  window->state = WINDOW_PLANNED;
  PLM_ASSERT(feed->unplanned > 0 && window->requested == 0);
  feed->unplanned--;
  note_tokens(feed, planned);
}

struct feed_window *feed_windows_find(const struct feed_state *feed, const struct feed_job *job)
{
  for (struct feed_window *window = feed->windows; window != NULL; window = window->next)
    if (window == job->owner && window->planned == job->planned) return window;
  return NULL;
}
