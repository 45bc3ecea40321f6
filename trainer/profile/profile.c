/* Records the events of a profile. */
#include "trainer/profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "trainer/profile/copy_rate.h"
#include "trainer/profile/profile_state.h"

enum { FIRST_ROOM = 1 << 14, FIRST_MARKS = 1 << 12 };

/* Of the copies that are timed: more than fits into caches, and little compared with a run. */
enum { COPY_ON_HOST = 32 << 20, COPY_ON_DEVICE = 128 << 20 };

static void give_up(struct plm_profile *profile, const struct plm_error *error)
{
  plm_warning("the profile is incomplete: %s", error->what);
  profile->failed = true;
}

/* ---- events -------------------------------------------------------------------------------- */

static bool make_room(struct plm_profile *profile)
{
  if (profile->count < profile->room) return true;
  const size_t room = profile->room == 0 ? FIRST_ROOM : 2 * profile->room;
  struct plm_profile_event *events = realloc(profile->events, room * sizeof *events);
  struct plm_error error = {0};
  if (events == NULL) {
    plm_error_set(&error, PLM_NO_MEMORY, "no memory for %zu events", room);
    give_up(profile, &error);
    return false;
  }
  profile->events = events;
  profile->room = room;
  return true;
}

void plm_profile_put(struct plm_profile *profile, const struct plm_profile_event *event)
{
  if (!profile->failed && make_room(profile)) profile->events[profile->count++] = *event;
}

void plm_profile_record(struct plm_profile *profile, const struct plm_profile_event *event)
{
  if (profile == NULL || !profile->recording) return;
  if (event->end_ns <= profile->first_began_ns) return; /* it was over before */
  plm_profile_put(profile, event);
  if (event->kind != PLM_SPAN_DATA) return;
  if (profile->agreed_ns == 0) profile->agreed_ns = event->end_ns;
  struct plm_profile_event on_device = *event; /* which has nothing to do meanwhile */
  on_device.track = PLM_TRACK_DEVICE;
  if (profile->on_device) plm_profile_put(profile, &on_device);
}

/* ---- the device's times -------------------------------------------------------------------- */

/* The next mark, from 1; 0 if there is none. */
static uint32_t next_mark(struct plm_profile *profile, bool beside)
{
  struct plm_ops *ops = profile->options.ops;
  struct plm_error error = {0};
  if (profile->marks == profile->marks_room) {
    const uint32_t room = profile->marks_room == 0 ? FIRST_MARKS : 2 * profile->marks_room;
    if (ops->reserve_marks(ops, room, &error) != PLM_OK) {
      give_up(profile, &error);
      return 0;
    }
    profile->marks_room = room;
  }
  ops->mark(ops, profile->marks, beside);
  return profile->marks++;
}

/* The device has nothing to do, so that the host knows when it comes to mark 0: now. */
static void profile_begin_marks(struct plm_profile *profile)
{
  profile->marks = 0;
  (void)next_mark(profile, false);
  profile->mark_0_ns = plm_clock_ns();
}

static uint64_t time_of_mark(const struct plm_profile *profile, uint32_t mark)
{
  struct plm_ops *ops = profile->options.ops;
  const double ns = ops->between_marks(ops, 0, mark);
  return profile->mark_0_ns + (ns > 0 ? (uint64_t)llround(ns) : 0);
}

/* Fills in the times of the device, which has ended everything. */
static void profile_settle(struct plm_profile *profile)
{
  struct plm_ops *ops = profile->options.ops;
  struct plm_error error = {0};
  if (!profile->on_device || profile->failed) return;
  profile->settling = true;
  plm_status status = ops->wait_copies(ops, &error);
  if (status == PLM_OK) status = ops->synchronize(ops, &error);
  profile->settling = false;
  if (status != PLM_OK) { /* the run ends because of it */
    give_up(profile, &error);
    return;
  }
  for (size_t i = profile->settled; i < profile->count; i++) {
    struct plm_profile_event *event = &profile->events[i];
    if (event->mark == 0) continue;
    event->begin_ns = time_of_mark(profile, event->mark);
    event->end_ns = time_of_mark(profile, event->mark + 1);
  }
  profile->settled = profile->count;
  profile_begin_marks(profile);
}

/* ---- operators ----------------------------------------------------------------------------- */

static void profile_op_begins(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  struct plm_profile *profile = context;
  (void)ops;
  profile->op_began_ns = plm_clock_ns();
  if (!profile->on_device || profile->failed || call->kind == PLM_OP_WAITS) return;
  profile->op_mark = next_mark(profile, call->kind == PLM_OP_BESIDE);
}

/* Whether the host waits until the operator has ended. */
static bool host_waits(const struct plm_op_call *call)
{
  return strcmp(call->name, "upload") == 0 || strcmp(call->name, "download") == 0;
}

static enum plm_span kind_of(const struct plm_op_call *call)
{
  if (call->kind == PLM_OP_COMPUTES) return PLM_SPAN_OPERATOR;
  return call->kind == PLM_OP_WAITS ? PLM_SPAN_WAIT : PLM_SPAN_COPY;
}

static void profile_op_ended(void *context, struct plm_ops *ops, const struct plm_op_call *call)
{
  struct plm_profile *profile = context;
  (void)ops;
  /* on the CPU there is nothing to wait for */
  if (call->kind == PLM_OP_WAITS && (!profile->on_device || profile->settling)) return;
  struct plm_profile_event event = {.track = PLM_TRACK_STEP,
                                    .kind = kind_of(call),
                                    .name = call->name,
                                    .number = -1,
                                    .begin_ns = profile->op_began_ns,
                                    .bytes = call->bytes,
                                    .flops = call->flops};
  memcpy(event.sizes, call->sizes, sizeof event.sizes);
  if (profile->on_device && call->kind != PLM_OP_WAITS && !profile->failed) {
    const bool beside = call->kind == PLM_OP_BESIDE;
    struct plm_profile_event there = event;
    const uint32_t end = next_mark(profile, beside);
    there.track = beside ? PLM_TRACK_COPIES : PLM_TRACK_DEVICE;
    there.mark = profile->op_mark;
    PLM_ASSERT(profile->failed || (there.mark > 0 && end == there.mark + 1));
    plm_profile_put(profile, &there);
    if (!host_waits(call)) event.kind = PLM_SPAN_LAUNCH;
  }
  event.end_ns = plm_clock_ns();
  plm_profile_put(profile, &event);
}

static double profile_pairs(void *context, const struct plm_interval_mask *mask)
{
  const struct plm_profile *profile = context;
  return (double)plm_masks_pairs_of(profile->options.masks, mask);
}

/* ---- steps --------------------------------------------------------------------------------- */

plm_status plm_profile_open(const struct plm_profile_options *options, struct plm_profile **out,
                            struct plm_error *error)
{
  struct plm_profile *profile = calloc(1, sizeof *profile);
  if (profile == NULL) return plm_error_set(error, PLM_NO_MEMORY, "no memory for a profile");
  profile->options = *options;
  profile->on_device = options->ops->mark != NULL;
  *out = profile;
  return PLM_OK;
}

static void profile_end_recording(struct plm_profile *profile)
{
  if (profile->recording) plm_ops_unobserve(profile->options.ops);
  profile->recording = false;
}

void plm_profile_close(struct plm_profile *profile)
{
  if (profile == NULL) return;
  profile_end_recording(profile);
  free(profile->events);
  free(profile);
}

static void profile_begin_recording(struct plm_profile *profile, uint64_t step, uint64_t now_ns)
{
  const struct plm_ops_observer observer = {.begins = profile_op_begins,
                                            .ended = profile_op_ended,
                                            .pairs = profile_pairs,
                                            .context = profile};
  struct plm_error error = {0};
  profile->first_step = step;
  profile->first_began_ns = now_ns;
  (void)make_room(profile);
  if (plm_ops_observe(profile->options.ops, &observer, &error) != PLM_OK) {
    give_up(profile, &error);
    return;
  }
  profile->recording = true;
  if (profile->on_device && !profile->failed) profile_begin_marks(profile);
}

void plm_profile_step_begins(struct plm_profile *profile, uint64_t step, uint64_t now_ns)
{
  if (profile == NULL || profile->written || step < profile->options.first ||
      step > profile->options.last)
    return;
  if (profile->first_step == 0) profile_begin_recording(profile, step, now_ns);
  profile->step = step;
  profile->step_began_ns = now_ns;
  profile->before_step = profile->count;
}

void plm_profile_step_ended(struct plm_profile *profile, uint64_t now_ns)
{
  if (profile == NULL || profile->step == 0) return;
  plm_profile_record(profile, &(struct plm_profile_event){.track = PLM_TRACK_STEP,
                                                          .kind = PLM_SPAN_STEP,
                                                          .name = "step",
                                                          .number = (int64_t)profile->step,
                                                          .begin_ns = profile->step_began_ns,
                                                          .end_ns = now_ns});
  profile->last_step = profile->step;
  profile->step = 0;
  profile_settle(profile);
}

bool plm_profile_is_pending(const struct plm_profile *profile)
{
  return profile != NULL && !profile->written && profile->last_step > 0;
}

bool plm_profile_is_due(const struct plm_profile *profile)
{
  return plm_profile_is_pending(profile) && profile->last_step == profile->options.last;
}

/* Leaves out what was recorded since a step began that has not ended, except checkpoints, which
 * the writer has written beside it. */
static void leave_out_open_step(struct plm_profile *profile)
{
  size_t kept = profile->before_step;
  if (profile->step == 0) return;
  for (size_t i = kept; i < profile->count; i++)
    if (profile->events[i].track == PLM_TRACK_WRITER) profile->events[kept++] = profile->events[i];
  profile->count = kept;
}

plm_status plm_profile_finish(struct plm_profile *profile, bool measure, struct plm_error *error)
{
  if (!plm_profile_is_pending(profile)) return PLM_OK;
  profile->written = true;
  leave_out_open_step(profile);
  profile_settle(profile);
  profile_end_recording(profile);
  if (measure && plm_ranks_first(profile->options.ranks)) /* which writes the rate */
    profile->copy_rate = plm_copy_rate(
        profile->options.ops, profile->on_device ? COPY_ON_DEVICE : COPY_ON_HOST, plm_clock_ns);
  plm_profile_complete(profile);
  const plm_status status = plm_profile_write(profile, error);
  free(profile->events);
  profile->events = NULL;
  profile->count = profile->room = 0;
  return status;
}
