/* What sm_90a adds, on the CPU: barriers in shared memory, the copies of tiles that complete at
 * them, matrix products of a warpgroup that run beside it, barriers with names. Semantics after the
 * PTX ISA (mbarrier, cp.async.bulk.tensor, wgmma); what it leaves undefined ends the process here,
 * or shows as NaN:
 *   - a tile's bytes are NaN from the copy's start until somebody waits at its barrier;
 *   - accumulators are NaN from the product until the wait for its group, and neither they nor A's
 *     registers may change in between; what a product reads from shared memory it reads at its
 *     commit or at its wait, drawn from the seed: both must find the same;
 *   - matrices that a warp stores are NaN until it settles them;
 *   - no fence before the first product after a wait, products that differ within a warpgroup,
 * tiles that do not begin where the swizzle does, work left
 *     under way at the block's end: the process ends with a message.
 */
#ifndef PLM_TESTS_EMULATION_HOPPER_H
#define PLM_TESTS_EMULATION_HOPPER_H

#include "tests/emulation/emulation.h"

namespace plm::emulation
{

/* Where shared memory begins as the device counts: not where the swizzle does. */
enum { SHARED_BASE = 0x480 };
unsigned shared_address(const void *p);

/* A view of global memory with 16-bit elements in `rank` dimensions (the others are of size 1):
 * sizes and strides in bytes; a copy takes box elements of each, 128 bytes of the first, and zeros
 * beyond the sizes. rank: of the instruction, which must be the map's. */
struct TensorMap {
  const char *base;
  int64_t size[4], stride[4];
  int box[4];
  int rank;
};
void tile_copy(void *to, const TensorMap &map, uint64_t *barrier, const int at[4], int rank);

void barrier_init(uint64_t *barrier, unsigned arrivals);
void barrier_arrive(uint64_t *barrier, unsigned bytes_to_come);
void barrier_wait(uint64_t *barrier, unsigned parity);

void named_arrive(int name, int threads);
void named_sync(int name, int threads);

/* d (64, n) += a b, of 16 steps of k; a from registers where a_descriptor is NULL. */
struct Product {
  const uint64_t *a_descriptor;
  const unsigned *a; /* 4 words a thread */
  uint64_t b_descriptor;
  float *d;
  int n;
  bool b_transposed; /* b lies (k, n) in memory, else (n, k) */
  bool accumulate;
};
bool wrong_products(); /* plm_emulation_capability */
void product_fence();
void product_begin(const Product &product);
void product_commit();
void product_wait(int groups_that_may_be_left);

void matrices_store(void *row, const unsigned r[4]);
void matrices_settle();

/* fibers.cc */
void hopper_block_begins(unsigned threads, uint64_t seed);
void hopper_block_ends();

} // namespace plm::emulation

#endif
