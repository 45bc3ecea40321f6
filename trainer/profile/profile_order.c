/* Orders the events of a profile, and adds what no event covers. */
#include <stdlib.h>

#include "trainer/profile/profile_state.h"

/* By track and time; of two that begin together, the longer one first, which contains the other. */
static int by_time(const void *a, const void *b)
{
  const struct plm_profile_event *x = a, *y = b;
  if (x->track != y->track) return x->track < y->track ? -1 : 1;
  if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
  if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
  return (y->kind == PLM_SPAN_STEP) - (x->kind == PLM_SPAN_STEP);
}

static void sort(struct plm_profile *profile)
{
  qsort(profile->events, profile->count, sizeof *profile->events, by_time);
}

/* Events of a device are at times that were computed from two clocks. Keeps them in their step and
 * one after the other. */
static void keep_in_order(struct plm_profile_event *event, uint64_t from_ns, uint64_t until_ns)
{
  if (event->begin_ns < from_ns) event->begin_ns = from_ns;
  if (event->end_ns < event->begin_ns) event->end_ns = event->begin_ns;
  if (event->end_ns > until_ns) event->end_ns = until_ns;
}

static void put_gap(struct plm_profile *profile, enum plm_track track, uint64_t from_ns,
                    uint64_t until_ns)
{
  const bool host = track == PLM_TRACK_STEP;
  if (until_ns <= from_ns) return;
  plm_profile_put(profile,
                  &(struct plm_profile_event){.track = track,
                                              .kind = host ? PLM_SPAN_OTHER : PLM_SPAN_IDLE,
                                              .name = host ? "other" : "idle",
                                              .number = -1,
                                              .begin_ns = from_ns,
                                              .end_ns = until_ns});
}

/* Fills the gaps of a track in a step. Its events, from `first`, are in the order of time; what is
 * within another one counts as a part of it. */
static void fill_step(struct plm_profile *profile, struct plm_profile_event step,
                      enum plm_track track, size_t first, size_t end)
{
  uint64_t now_ns = step.begin_ns;
  for (size_t i = first; i < end && profile->events[i].begin_ns < step.end_ns; i++) {
    struct plm_profile_event *event = &profile->events[i];
    if (event->kind == PLM_SPAN_STEP || event->end_ns <= step.begin_ns) continue;
    if (track == PLM_TRACK_DEVICE) keep_in_order(event, now_ns, step.end_ns);
    if (event->begin_ns < now_ns) continue;
    const uint64_t begin_ns = event->begin_ns, end_ns = event->end_ns;
    put_gap(profile, track, now_ns, begin_ns);
    now_ns = end_ns;
  }
  put_gap(profile, track, now_ns, step.end_ns);
}

/* Where the events of a track are. */
static size_t track_begin(const struct plm_profile *profile, size_t count, enum plm_track track)
{
  size_t i = 0;
  while (i < count && profile->events[i].track < track) i++;
  return i;
}

/* Fills the gaps of a track in all steps, which are on the first track, in the order of time. */
static void fill_track(struct plm_profile *profile, size_t count, enum plm_track track)
{
  const size_t steps_end = track_begin(profile, count, PLM_TRACK_STEP + 1);
  const size_t end = track_begin(profile, count, track + 1);
  size_t first = track_begin(profile, count, track);
  for (size_t i = 0; i < steps_end; i++) {
    const struct plm_profile_event step = profile->events[i];
    if (step.kind != PLM_SPAN_STEP) continue;
    while (first < end && profile->events[first].end_ns <= step.begin_ns) first++;
    fill_step(profile, step, track, first, end);
  }
}

void plm_profile_complete(struct plm_profile *profile)
{
  sort(profile);
  const size_t count = profile->count;
  fill_track(profile, count, PLM_TRACK_STEP);
  if (profile->on_device) fill_track(profile, count, PLM_TRACK_DEVICE);
  sort(profile);
}
