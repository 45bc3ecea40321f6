/* clang-format off */
/* What sm_90a adds, on the CPU: barriers in shared memory, copies of tiles that complete at them,
 * asynchronous matrix products of a warpgroup, and named barriers. The semantics are those of the
 * PTX ISA (mbarrier, cp.async.bulk.tensor, wgmma). What the ISA leaves undefined ends the process
 * here or gives NaN:
 *   - The bytes of a tile are NaN from the start of its copy until somebody waits at its barrier.
 *   - Accumulators are NaN from the product until the wait for its group, and neither they nor A's
 *     registers may change in between. A product reads shared memory at its commit or at its wait,
 *     drawn from the seed; correct kernels give the same in both cases.
 *   - Matrices that a warp stores are NaN until it settles them or makes them visible to products.
 *   - The process ends with a message if there is no fence before the first product after a wait,
 *     or if registers of a product changed after the fence;
 *   - if a product reads matrices that a warp stored and did not make visible to products;
 *   - if the threads of a warpgroup begin different products or wait differently, or if lanes meet
 *     in one instruction at different places of the source;
 *   - if a tile does not begin at a multiple of the swizzle's period or lies over a barrier, or if
 *     a map of tiles breaks a rule of the driver or is not in the kernel's parameters;
 *   - if a barrier is used before the fence of its initialisation, if the threads at a named
 *     barrier disagree about their number, or if a warpgroup takes more registers than there are;
 *   - if work is under way at the end of a block. */
/* clang-format on */
#ifndef PLM_TESTS_EMULATION_HOPPER_H
#define PLM_TESTS_EMULATION_HOPPER_H

#include "tests/emulation/emulation.h"

namespace plm::emulation
{

/* The device's address of shared memory; deliberately not a multiple of the swizzle's period. */
enum { SHARED_BASE = 0x480 };
unsigned shared_address(const void *p);

/* A swizzled address, and the host's pointer to `bytes` of shared memory. */
uint64_t swizzle(uint64_t address);
char *shared_pointer(uint64_t address, size_t bytes);

/* A map of global memory with 16-bit elements in `rank` dimensions; the other dimensions have
 * size 1. Sizes are in elements, strides in bytes. A copy takes `box` elements of each dimension
 * (128 bytes of the first), and zeros beyond the sizes. The copy engine reads a map only in a
 * kernel's parameters (__grid_constant__), so a map counts how often it was copied on the device:
 * once, into the parameters. */
class alignas(64) TensorMap
{
public:
  const char *base;
  int64_t size[4], stride[4];
  int box[4];
  int rank;
  TensorMap() = default;
  TensorMap(const TensorMap &other)
  {
    *this = other;
  }
  TensorMap &operator=(const TensorMap &other);
  int copies_on_device() const
  {
    return copies;
  }

private:
  int copies = 0;
};
/* rank is that of the instruction and must be the map's. */
void tile_copy(void *to, const TensorMap &map, uint64_t *barrier, const int at[4], int rank);

void barrier_init(uint64_t *barrier, unsigned arrivals);
void barrier_init_fence();
void barrier_arrive(uint64_t *barrier, unsigned bytes_to_come);
void barrier_wait(uint64_t *barrier, unsigned parity);

void named_arrive(int name, int threads);
void named_sync(int name, int threads);

/* setmaxnreg. A block begins with 65,536 registers, as many for each thread as fit. */
void registers_change(bool acquire, int count);

/* d (64, n) = or += a b over 16 steps of k. If a_descriptor is NULL, a is in registers. */
struct Product {
  const uint64_t *a_descriptor;
  const unsigned *a; /* 4 words a thread */
  uint64_t b_descriptor;
  float *d;
  int n;
  bool b_transposed; /* b is stored as (k, n), else as (n, k) */
  bool accumulate;
};
bool wrong_products();  /* plm_emulation_capability */
double product_scale(); /* of the results */
bool faulty_products(); /* plm_emulation_faulty_products */
void product_fence();
void product_begin(const Product &product);
void product_commit();
void product_wait(int groups_that_may_be_left);

void matrices_store(void *row, const unsigned r[4], bool turned);
void matrices_settle();
void matrices_publish();
/* Tiles that are copied to these bytes replace what was stored there. */
void matrices_replaced(const char *begin, size_t bytes);

/* What plm_cuda_planted_everywhere was told (planted_hopper.h). */
int planted_everywhere();

/* Called by fibers.cc. */
void hopper_block_begins(unsigned threads, uint64_t seed);
void hopper_block_ends();
/* Called by these two. */
void hopper_barriers_begin();
void hopper_barriers_end();
void hopper_registers_begin(unsigned threads);

} // namespace plm::emulation

#endif
