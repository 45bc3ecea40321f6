/* Counts the chunks of windows without packing them: best fit from a histogram of sizes, next fit
 * from the lengths in order. These counts map the number of a chunk in the run to its window. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/plan/packing.h"
#include "common/plan/plan_internal.h"

/* The groups of a window, and who knows them. */
struct groups_of {
  const struct plm_plan *plan;
  uint64_t epoch;
  uint64_t *groups; /* (window_groups) */
  uint32_t count;   /* of the window */
  plm_plan_read *read;
  const void *context;
};

/* Adds the sizes of the pieces of a group's documents to the histogram, whose numbers overflow if
 * there are too many. Returns how many there are. */
static uint64_t count_sizes(const struct plm_plan *plan, const struct plm_plan_group *group,
                            uint32_t *histogram)
{
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  uint64_t pieces = group->count;
  for (uint32_t i = 0; i < group->count; i++) {
    uint64_t tokens = tokens_of(group->lengths[i]);
    if (tokens > max_length) {
      if (split) histogram[units_of(plan, max_length)] += (uint32_t)(tokens / max_length);
      if (split) pieces += (tokens - 1) / max_length;
      tokens = split ? tokens % max_length : max_length;
      if (tokens == 0) continue;
    }
    histogram[units_of(plan, tokens)]++;
  }
  return pieces;
}

static plm_status count_best_fit(const struct groups_of *of, struct plm_rooms *rooms,
                                 uint32_t *histogram, uint64_t *chunks, struct plm_error *error)
{
  struct plm_plan_group group;
  uint64_t pieces = 0;
  memset(histogram, 0, ((size_t)rooms->capacity + 1) * sizeof *histogram);
  for (uint32_t i = 0; i < of->count; i++) {
    PLM_TRY(of->read(of->context, of->epoch, i, of->groups[i], &group, error));
    pieces += count_sizes(of->plan, &group, histogram);
  }
  *chunks = pieces < INT32_MAX ? plm_pack_best_fit_count(rooms, histogram) : pieces;
  return PLM_OK;
}

static plm_status count_next_fit(const struct groups_of *of, uint32_t capacity, uint64_t *chunks,
                                 struct plm_error *error)
{
  const struct plm_plan *plan = of->plan;
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  struct plm_plan_group group;
  uint32_t room = 0;
  *chunks = 0;
  for (uint32_t i = 0; i < of->count; i++) {
    PLM_TRY(of->read(of->context, of->epoch, i, of->groups[i], &group, error));
    for (uint32_t k = 0; k < group.count; k++) {
      uint64_t tokens = tokens_of(group.lengths[k]);
      if (tokens > max_length) { /* it fills whole chunks */
        *chunks += split ? tokens / max_length : 1;
        tokens = split ? tokens % max_length : 0;
        room = 0;
        if (tokens == 0) continue;
      }
      const uint32_t units = units_of(plan, tokens);
      if (units > room) {
        ++*chunks;
        room = capacity;
      }
      room -= units;
    }
  }
  return PLM_OK;
}

plm_status plm_plan_window_chunks(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                  uint64_t count, plm_plan_read *read, const void *context,
                                  uint32_t *counts, struct plm_error *error)
{
  const uint32_t capacity = plan->parameters.max_length >> plan->alignment_shift;
  struct groups_of of = {.plan = plan,
                         .epoch = plan->parameters.shuffle ? epoch : 0,
                         .read = read,
                         .context = context};
  struct plm_rooms rooms;
  PLM_TRY(plm_plan_check_place(plan, of.epoch, first, count, error));
  of.groups = plm_alloc(plan->parameters.window_groups * sizeof *of.groups);
  uint32_t *histogram = plm_alloc(((size_t)capacity + 1) * sizeof *histogram);
  plm_status status = PLM_OK;
  plm_rooms_open(capacity, &rooms);
  for (uint64_t w = 0; w < count && status == PLM_OK; w++) {
    uint64_t chunks = 0;
    of.count = plm_plan_window_groups(plan, of.epoch, first + w, of.groups);
    status = plan->parameters.packing == PLM_PACKING_BEST_FIT
                 ? count_best_fit(&of, &rooms, histogram, &chunks, error)
                 : count_next_fit(&of, capacity, &chunks, error);
    if (status == PLM_OK && chunks >= INT32_MAX)
      status = plm_error_set(error, PLM_LIMIT, "window %llu has too many chunks to count",
                             (unsigned long long)(first + w));
    counts[w] = (uint32_t)chunks;
  }
  plm_rooms_deinit(&rooms);
  free(histogram);
  free(of.groups);
  return status;
}
