/* Keeps the recordings by key. */
#include "trainer/step/replays.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"

enum { OPERATIONS_MAX = 64 };

struct segment {
  struct plm_recording *recording; /* NULL: not recorded yet */
};

struct operation {
  struct plm_replay_key key;
  uint32_t segments;
  struct segment *each; /* (segments) */
  bool ran;             /* all segments have run once */
};

struct plm_replays {
  struct plm_ops *ops;
  struct operation operations[OPERATIONS_MAX];
  uint32_t count;
  bool failed; /* a recording; what is not recorded yet runs directly from then on */
};

struct plm_replays *plm_replays_open(struct plm_ops *ops)
{
  struct plm_replays *replays = plm_alloc_zeroed(1, sizeof *replays);
  replays->ops = ops;
  return replays;
}

void plm_replays_close(struct plm_replays *replays)
{
  if (replays == NULL) return;
  for (uint32_t i = 0; i < replays->count; i++) {
    const struct operation *operation = &replays->operations[i];
    for (uint32_t segment = 0; segment < operation->segments; segment++)
      if (operation->each[segment].recording != NULL)
        replays->ops->release_recording(replays->ops, operation->each[segment].recording);
    free(operation->each);
  }
  free(replays);
}

static struct operation *replays_find(struct plm_replays *replays, struct plm_replay_key key)
{
  for (uint32_t i = 0; i < replays->count; i++) {
    const struct plm_replay_key *other = &replays->operations[i].key;
    if (other->kind == key.kind && other->chunks == key.chunks && other->rows == key.rows)
      return &replays->operations[i];
  }
  return NULL;
}

/* Remembers that the operation has run. */
static void replays_remember(struct plm_replays *replays, struct plm_replay_key key,
                             uint32_t segments)
{
  if (replays->count == OPERATIONS_MAX) return; /* the rest run directly */
  replays->operations[replays->count++] =
      (struct operation){.key = key,
                         .segments = segments,
                         .each = plm_alloc_zeroed(segments, sizeof(struct segment)),
                         .ran = segments == 1};
}

/* Says once that recordings fail. The first reason is the one that matters. */
static void give_up(struct plm_replays *replays, const struct plm_error *error)
{
  replays->failed = true;
  plm_warning("the steps cannot be recorded as CUDA graphs, so they run without: %s (they are "
              "slower, and their results are the same)",
              error->what);
}

/* Whether the segment was recorded. */
static bool replays_record(struct plm_replays *replays, struct operation *operation,
                           uint32_t segment, plm_replay_call *call, void *context)
{
  struct plm_ops *ops = replays->ops;
  struct plm_error error = {0};
  plm_status status = ops->record_begin(ops, &error);
  if (status == PLM_OK) {
    call(context, operation->key, segment);
    status = ops->record_end(ops, &operation->each[segment].recording, &error);
  }
  if (status != PLM_OK) give_up(replays, &error);
  return status == PLM_OK;
}

void plm_replays_run(struct plm_replays *replays, struct plm_replay_key key, uint32_t segment,
                     uint32_t segments, plm_replay_call *call, void *context)
{
  struct plm_ops *ops = replays->ops;
  /* who observes the operators wants to see each of them, which a recording would hide */
  const bool directly = ops->record_begin == NULL || ops->observation != NULL;
  struct operation *found = directly ? NULL : replays_find(replays, key);
  if (found == NULL || !found->ran) {
    call(context, key, segment);
    if (directly) return;
    if (found == NULL && segment == 0) replays_remember(replays, key, segments);
    if (found != NULL && segment + 1 == segments) found->ran = true;
    return;
  }
  PLM_ASSERT(found->segments == segments);
  if (found->each[segment].recording == NULL &&
      (replays->failed || !replays_record(replays, found, segment, call, context)))
    call(context, key, segment);
  else
    ops->replay(ops, found->each[segment].recording);
}
