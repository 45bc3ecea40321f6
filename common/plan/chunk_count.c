/* Counts the chunks of windows without packing them: best fit from a histogram of sizes, next fit
 * from the lengths in order. These counts map the number of a chunk in the run to its window. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/plan/packing.h"
#include "common/plan/plan_internal.h"

/* Adds the sizes of the pieces of a group's documents to the histogram. */
static void count_sizes(const struct plm_plan *plan, const struct plm_plan_group *group,
                        uint32_t *histogram)
{
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  for (uint32_t i = 0; i < group->count; i++) {
    uint64_t tokens = tokens_of(group->lengths[i]);
    if (tokens > max_length) {
      if (split) histogram[units_of(plan, max_length)] += (uint32_t)(tokens / max_length);
      tokens = split ? tokens % max_length : max_length;
      if (tokens == 0) continue;
    }
    histogram[units_of(plan, tokens)]++;
  }
}

static uint64_t count_best_fit(const struct known_groups *known, const uint64_t *groups,
                               uint32_t count, struct plm_rooms *rooms, uint32_t *histogram)
{
  struct plm_plan_group group;
  memset(histogram, 0, ((size_t)rooms->capacity + 1) * sizeof *histogram);
  for (uint32_t i = 0; i < count; i++) {
    plm_plan_known_group(known, i, groups[i], &group);
    count_sizes(known->plan, &group, histogram);
  }
  return plm_pack_best_fit_count(rooms, histogram);
}

static uint64_t count_next_fit(const struct known_groups *known, const uint64_t *groups,
                               uint32_t count, uint32_t capacity)
{
  const struct plm_plan *plan = known->plan;
  const uint64_t max_length = plan->parameters.max_length;
  const bool split = plan->parameters.truncate == PLM_TRUNCATE_SPLIT;
  struct plm_plan_group group;
  uint64_t chunks = 0;
  uint32_t room = 0;
  for (uint32_t i = 0; i < count; i++) {
    plm_plan_known_group(known, i, groups[i], &group);
    for (uint32_t k = 0; k < group.count; k++) {
      uint64_t tokens = tokens_of(group.lengths[k]);
      if (tokens > max_length) { /* it fills whole chunks */
        chunks += split ? tokens / max_length : 1;
        tokens = split ? tokens % max_length : 0;
        room = 0;
        if (tokens == 0) continue;
      }
      const uint32_t units = units_of(plan, tokens);
      if (units > room) {
        chunks++;
        room = capacity;
      }
      room -= units;
    }
  }
  return chunks;
}

plm_status plm_plan_window_chunks(const struct plm_plan *plan, uint64_t epoch, uint64_t first,
                                  uint64_t count, uint32_t *counts, struct plm_error *error)
{
  const uint32_t capacity = plan->parameters.max_length >> plan->alignment_shift;
  const struct known_groups known = {plan, plan->parameters.shuffle ? epoch : 0};
  struct plm_rooms rooms;
  PLM_TRY(plm_plan_check_place(plan, known.epoch, first, count, error));
  uint64_t *groups = plm_alloc(plan->parameters.window_groups * sizeof *groups);
  uint32_t *histogram = plm_alloc(((size_t)capacity + 1) * sizeof *histogram);
  plm_status status = PLM_OK;
  plm_rooms_open(capacity, &rooms);
  for (uint64_t w = 0; w < count; w++) {
    const uint32_t group_count = plm_plan_window_groups(plan, known.epoch, first + w, groups);
    const uint64_t chunks = plan->parameters.packing == PLM_PACKING_BEST_FIT
                                ? count_best_fit(&known, groups, group_count, &rooms, histogram)
                                : count_next_fit(&known, groups, group_count, capacity);
    if (chunks >= INT32_MAX) {
      status = plm_error_set(error, PLM_LIMIT, "window %llu has too many chunks to count",
                             (unsigned long long)(first + w));
      break;
    }
    counts[w] = (uint32_t)chunks;
  }
  plm_rooms_deinit(&rooms);
  free(histogram);
  free(groups);
  return status;
}
