/* Seeded shuffles and bounded draws. They use only integers, so the draws are the same on every
 * machine. */
#include "common/plan/shuffle.h"

#include "common/base/status.h"

static uint64_t bounded(uint64_t draw, uint64_t bound)
{
  return (uint64_t)(((unsigned __int128)draw * bound) >> 64);
}

struct plm_draws plm_draws_begin(uint64_t seed, uint64_t y, uint32_t purpose)
{
  return (struct plm_draws){.seed = seed, .y = y, .purpose = purpose};
}

uint32_t plm_draws_below(struct plm_draws *draws, uint32_t bound)
{
  uint64_t draw;
  PLM_ASSERT(bound >= 1);
  if (draws->second_left) {
    draw = draws->second;
    draws->second_left = 0;
  } else {
    const struct plm_philox_words block =
        plm_philox(draws->seed, draws->next_block++, draws->y, draws->purpose);
    draw = (uint64_t)block.w[1] << 32 | block.w[0];
    draws->second = (uint64_t)block.w[3] << 32 | block.w[2];
    draws->second_left = 1;
  }
  return (uint32_t)bounded(draw, bound);
}

void plm_shuffle(struct plm_draws *draws, uint32_t *items, uint32_t count)
{
  for (uint32_t i = count; i-- > 1;) {
    const uint32_t j = plm_draws_below(draws, i + 1);
    const uint32_t held = items[i];
    items[i] = items[j];
    items[j] = held;
  }
}

uint64_t plm_draw_below(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose, uint64_t bound)
{
  const struct plm_philox_words block = plm_philox(seed, x, y, purpose);
  return bounded((uint64_t)block.w[1] << 32 | block.w[0], bound);
}
