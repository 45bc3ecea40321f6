/* Asking for the tables of windows, in order, and finding the user's place in them. */
#include "common/feed/feed_windows.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/feed/feed_peers.h"
#include "common/feed/feed_requests.h"

/* ---- the list ----------------------------------------------------------------------------- */

static bool is_planned(const struct feed_window *window)
{
  return window->request.state == REQUEST_DONE;
}

static void pop(struct feed_state *feed)
{
  struct feed_window *window = feed->windows;
  feed->windows = window->next;
  if (feed->windows == NULL) feed->window_tail = &feed->windows;
  feed->unplanned -= !is_planned(window);
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
  if (status == PLM_OK)
    feed->known[feed->split] =
        plm_known_groups_open(split->documents, plm_tables_leaf_bytes(feed->labels.count > 0));
  if (status != PLM_NOT_FOUND) return status;
  (void)plm_error_set(error, PLM_NOT_FOUND, "the corpus has no documents in split %s",
                      plm_split_name(feed->split));
  return plm_error_hint(error, "ingest more sequences, or with another --split");
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
      .tables = {.known = feed->known[feed->split]},
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
  /* another packer than the last window's, if there is one, so that each has time to prepare */
  const struct feed_peer *home = feed_peer_next(feed, NULL, 0);
  window->home = window->request.home = home != NULL ? home->serial : 0;
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
    if (is_planned(window)) bytes += unrequested_bytes(window);
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
  if (!feed_is_time(feed, &feed->seek_said_ms, FEED_WAITING_MS)) return;
  plm_info("counting the chunks of epoch %llu up to the %s's place: window %llu of %llu",
           (unsigned long long)feed->place.epoch, feed->role,
           (unsigned long long)feed->place.window + 1,
           (unsigned long long)plm_plan_windows(feed->plans[feed->split]));
}

void feed_windows_leave(struct feed_state *feed)
{
  while (feed->windows != NULL && is_planned(feed->windows) &&
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
  if (feed->windows == NULL || !is_planned(feed->windows)) return;
  feed->windows->requested = (uint32_t)feed->place.chunk;
  feed->seeking = false;
}

/* ---- asking ------------------------------------------------------------------------------- */

static void feed_windows_ask(struct feed_state *feed, struct feed_window *window, int64_t late)
{
  uint8_t payload[8];
  const struct feed_planned *of = window->planned;
  if (window->request.state != REQUEST_WANTED) return; /* a job has the tables, or they are gone */
  const struct plm_prove prove = {.group = of->tables.groups, .soon = window->soon};
  const struct plm_header header = {.type = PLM_MESSAGE_PROVE,
                                    .epoch = of->epoch,
                                    .first = of->index,
                                    .count = of->groups - prove.group};
  const uint64_t asked = feed_request_ask(feed, &window->request, late, &header, payload,
                                          plm_prove_encode(&prove, payload));
  if (asked != 0) window->home = asked;
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
  PLM_ASSERT(window->request.state == REQUEST_WANTED); /* an answer ends all its questions */
  const struct feed_job job = {
      .planned = window->planned, .tables = true, .count = message->header.count};
  if (job.count == 0 || job.count > job.planned->groups - job.planned->tables.groups) {
    struct plm_error error;
    (void)plm_error_set(&error, PLM_PROTOCOL, "PROOF of %u groups, which were not asked for",
                        job.count);
    feed_peer_lied(feed, peer->packer_id, peer->name, &error);
    return true;
  }
  feed_request_check(feed, &window->request, peer, message, &job);
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

void feed_windows_checked(struct feed_state *feed, const struct feed_job *job, bool truth)
{
  struct feed_window *window = feed->windows;
  while (window != NULL && window->planned != job->planned) window = window->next;
  if (window == NULL) return;
  PLM_ASSERT(window->request.state == REQUEST_CHECKING);
  window->request.state = REQUEST_WANTED;
  if (truth) feed->progress_ms = feed->now_ms;
  if (!truth || !job->planned->complete) return;
  window->request.state = REQUEST_DONE;
  PLM_ASSERT(feed->unplanned > 0 && window->requested == 0);
  feed->unplanned--;
  note_tokens(feed, job->planned);
}
