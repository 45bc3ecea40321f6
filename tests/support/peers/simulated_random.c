/* The random numbers of a simulation, which its seed determines. */
#include "tests/support/peers/simulated_answers.h"

uint64_t sim_draw(struct sim_world *world) /* splitmix64 */
{
  uint64_t z = world->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  z ^= z >> 31;
  return z != 0 ? z : 1;
}

uint32_t sim_below(struct sim_world *world, uint32_t limit)
{
  return (uint32_t)(((sim_draw(world) >> 32) * limit) >> 32);
}

bool sim_chance(struct sim_world *world, uint32_t percent)
{
  return sim_below(world, 100) < percent;
}
