/* Seeded shuffles: Fisher-Yates with 64-bit Philox draws. The counters are described in plan.h. */
#ifndef PLM_COMMON_PLAN_SHUFFLE_H
#define PLM_COMMON_PLAN_SHUFFLE_H

#include <stdint.h>

#include "common/base/numbers/philox.h"

/* A sequence of 64-bit draws for (seed, y, purpose): draw d is a half of the words at x = d / 2. */
struct plm_draws {
  uint64_t seed, y;
  uint32_t purpose;
  uint32_t next_block;
  uint64_t second; /* the other half of the last words */
  int second_left;
};

struct plm_draws plm_draws_begin(uint64_t seed, uint64_t y, uint32_t purpose);
/* Uniform in [0, bound), bound >= 1: the high half of draw * bound. */
uint32_t plm_draws_below(struct plm_draws *draws, uint32_t bound);
/* Permutes items[0..count), taking count - 1 draws (none for 0 or 1 items). */
void plm_shuffle(struct plm_draws *draws, uint32_t *items, uint32_t count);

/* One draw in [0, bound), from words 0 and 1 at the counter (x, y, purpose). */
uint64_t plm_draw_below(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose, uint64_t bound);

#endif
