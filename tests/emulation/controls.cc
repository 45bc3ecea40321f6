/* The state behind controls.h, and how the rest of the emulation reads it. */
#include "tests/emulation/card.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/hopper.h"
#include "tests/emulation/runtime.h"

extern "C" {
#include "tests/emulation/controls.h"
}
#include "kernels/cuda/device/cuda_ops.cuh"

#include <map>

#include <unistd.h>

namespace plm::emulation
{

namespace
{

constexpr size_t SCRATCH_BYTES = 1 << 20; /* enough for the shapes of tests */

uint64_t order = 1;
/* As on a card, each process finds other algorithms unless a test says what it finds. */
uint64_t tuning = (uint64_t)getpid();
size_t scratch = SCRATCH_BYTES;
struct plm_emulation_work work;
std::map<const void *, uint64_t> launches;

} // namespace

void count_multiply_adds(uint64_t count)
{
  work.multiply_adds += count;
}

void count_copied_bytes(uint64_t bytes)
{
  work.copied_bytes += bytes;
}

void count_exchange()
{
  work.exchanges++;
}

void count_launch(const void *kernel)
{
  launches[kernel]++;
}

uint64_t order_seed()
{
  return order;
}

uint64_t tuning_seed()
{
  const char *seed = getenv("PLM_EMULATED_TUNING");
  return seed != nullptr ? strtoull(seed, nullptr, 10) : tuning;
}

size_t scratch_bytes()
{
  return scratch;
}

bool faulty_products()
{
  return card().faulty_products;
}

bool wrong_products()
{
  return card().wrong_products;
}

double product_scale()
{
  return card().large_products ? 1.025 : 1;
}

} // namespace plm::emulation

extern "C" void plm_emulation_order(uint64_t seed)
{
  plm::emulation::order = seed;
}

extern "C" void plm_emulation_tuning(uint64_t seed)
{
  plm::emulation::tuning = seed;
}

extern "C" struct plm_emulation_work plm_emulation_work_done(void)
{
  return plm::emulation::work;
}

extern "C" void plm_emulation_launches(void (*each)(void *context, const void *kernel,
                                                    uint64_t launches),
                                       void *context)
{
  for (const auto &[kernel, count] : plm::emulation::launches) each(context, kernel, count);
}

extern "C" void plm_emulation_scratch(size_t bytes)
{
  plm::emulation::scratch = bytes > 0 ? bytes : plm::emulation::SCRATCH_BYTES;
}

extern "C" void plm_emulation_faulty_products(bool faulty)
{
  plm::emulation::card().faulty_products = faulty;
}

extern "C" void plm_emulation_capability(int capability, bool wrong_products)
{
  plm::emulation::card().capability = capability;
  plm::emulation::card().wrong_products = wrong_products;
  plm_cuda_forget_checks();
}
