/* The emulation of sm_90a: see hopper.h. Descriptors, layouts and fragments: PTX ISA, "Asynchronous
 * Warpgroup Level Matrix Instructions". The swizzle of 128 bytes permutes pieces of 16 bytes within
 * 1,024 bytes: it XORs bits 4-6 of the address with bits 7-9. */
#include <map>
#include <vector>

extern "C" {
#include "tests/emulation/planted_hopper.h"
}
#include "tests/emulation/hopper.h"

namespace plm::emulation
{

namespace
{

enum plm_planted_everywhere planted;

enum { WARPGROUP = 128, ROWS = 64, STEP = 16, SWIZZLE_BYTES = 1024, NAMES = 16 };

struct Tile {
  char *to;
  TensorMap map;
  int at[4];
  unsigned bytes;
};
struct Barrier {
  unsigned arrivals, pending, bytes = 0;
  uint64_t phases = 0; /* completed */
  std::vector<Tile> tiles;
  bool of_tiles = false; /* whether copies complete at it */
};
std::map<const uint64_t *, Barrier> barriers;

struct Named {
  int arrived = 0;
  uint64_t times = 0;
} named[NAMES];

/* The values of a thread's accumulators while products are under way; the memory holds NaN. */
struct Accumulators {
  float *d;
  std::vector<float> values;
  int products = 0; /* that were begun and not waited for */
};
struct Begun {
  Product product;
  unsigned a[4];
};
struct Thread {
  bool fenced = false;
  std::vector<Begun> open;
  std::vector<std::vector<Begun>> groups; /* that were committed and not waited for, oldest first */
  std::vector<Accumulators> accumulators;
};
struct Warpgroup {
  int arrived = 0;
  uint64_t times = 0;   /* how often all have met */
  uint64_t commits = 0; /* of all its threads */
  size_t done = 0;      /* how many of the oldest groups are computed */
};
/* Eight elements of a row that a warp has stored and not settled. */
struct Row {
  void *to;
  unsigned words[4];
};
std::map<int, std::vector<Row>> rows_of_warps;
std::vector<Thread> threads;
std::vector<Warpgroup> warpgroups;
uint64_t seed_of_draws;

Thread &self_thread()
{
  return threads[(size_t)thread()];
}

uint64_t swizzle(uint64_t address)
{
  return address ^ (address >> 7 & 7) << 4;
}

char *shared_pointer(uint64_t address, size_t bytes)
{
  if (address < SHARED_BASE || address + bytes > SHARED_BASE + self->shared_bytes)
    stop("shared memory ends before address %#lx", (unsigned long)address);
  return (char *)self->shared + (address - SHARED_BASE);
}

float from_bf16(const char *p)
{
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return from_word<float>((uint64_t)bits << 16);
}

/* Writes a tile to shared memory: consecutive rows of 128 bytes, swizzled. */
void make_tile(const Tile &tile)
{
  const TensorMap &map = tile.map;
  const uint64_t start = shared_address(tile.to);
  uint64_t offset = 0;
  int64_t i[4];
  for (i[3] = 0; i[3] < map.box[3]; i[3]++)
    for (i[2] = 0; i[2] < map.box[2]; i[2]++)
      for (i[1] = 0; i[1] < map.box[1]; i[1]++)
        for (i[0] = 0; i[0] < map.box[0]; i[0]++, offset += 2) {
          const char *from = map.base;
          bool inside = true;
          for (int d = 0; d < 4; d++) {
            const int64_t at = tile.at[d] + i[d];
            inside = inside && at >= 0 && at < map.size[d];
            if (inside) from += at * map.stride[d];
          }
          uint16_t value = 0;
          if (inside) memcpy(&value, from, sizeof value);
          memcpy(shared_pointer(swizzle(start + offset), 2), &value, sizeof value);
        }
}

/* Ends the phase if all arrivals and bytes have come. Copies are made only now, as late as
 * possible. */
bool phase_ends(Barrier &barrier)
{
  unsigned bytes = 0;
  for (const Tile &tile : barrier.tiles) bytes += tile.bytes;
  if (barrier.pending > 0 || bytes != barrier.bytes) return false;
  for (const Tile &tile : barrier.tiles) make_tile(tile);
  barrier.tiles.clear();
  barrier.bytes = 0;
  barrier.pending = barrier.arrivals;
  barrier.phases++;
  return true;
}

Barrier &find_barrier(const uint64_t *barrier)
{
  const auto found = barriers.find(barrier);
  if (found == barriers.end()) stop("a barrier that was not initialised");
  return found->second;
}

/* ---- products ---- */
struct Descriptor {
  uint64_t start, leading, stride;
  explicit Descriptor(uint64_t bits)
      : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4)
  {
    if (bits >> 62 != 1) stop("a matrix descriptor without the swizzle of 128 bytes");
    if ((bits & (UINT64_C(3) << 14 | UINT64_C(3) << 30 | UINT64_C(0xffff) << 46)) != 0)
      stop("a matrix descriptor with a base offset or reserved bits: %#lx", (unsigned long)bits);
  }
};

/* Element (row, k) if k is contiguous: groups of 8 rows of 128 bytes are a stride apart. */
float major_k(const Descriptor &at, int row, int k)
{
  const uint64_t offset =
      (uint64_t)(row / 8) * at.stride + (uint64_t)(row % 8) * 128 + (uint64_t)k * 2;
  return from_bf16(shared_pointer(swizzle(at.start + offset), 2));
}

/* Element (row, k) if rows are contiguous: groups of 64 rows are a leading offset apart, and groups
 * of 8 k of 128 bytes are a stride apart. */
float major_row(const Descriptor &at, int row, int k)
{
  const uint64_t offset = (uint64_t)(row / 64) * at.leading + (uint64_t)(row % 64) * 2 +
                          (uint64_t)(k / 8) * at.stride + (uint64_t)(k % 8) * 128;
  return from_bf16(shared_pointer(swizzle(at.start + offset), 2));
}

Accumulators &find_accumulators(Thread &of, float *d)
{
  for (Accumulators &each : of.accumulators) {
    if (each.d == d) return each;
  }
  stop("accumulators of a product that nobody began");
}

void compute(int first, size_t group, size_t index)
{
  static double a[ROWS][STEP], b[STEP][256];
  const Begun &leader = threads[(size_t)first].groups[group][index];
  const Product &product = leader.product;
  for (int t = 0; t < WARPGROUP; t++) {
    const std::vector<Begun> &of = threads[(size_t)(first + t)].groups[group];
    if (index >= of.size()) stop("a product that not all of a warpgroup began");
    const Begun &begun = of[index];
    if (begun.product.n != product.n || begun.product.b_descriptor != product.b_descriptor ||
        (begun.product.a_descriptor == nullptr) != (product.a_descriptor == nullptr) ||
        begun.product.accumulate != product.accumulate ||
        begun.product.b_transposed != product.b_transposed)
      stop("threads of a warpgroup began different products");
    const int row = t / LANES * 16 + t % LANES / 4, column = t % 4 * 2;
    for (int word = 0; word < 4 && product.a_descriptor == nullptr; word++)
      for (int half = 0; half < 2; half++)
        a[row + word % 2 * 8][column + word / 2 * 8 + half] =
            (double)from_word<float>((uint64_t)(begun.a[word] >> 16 * half & 0xffff) << 16);
  }
  if (product.a_descriptor != nullptr) {
    const uint64_t bits = (uint64_t)leader.a[1] << 32 | leader.a[0];
    const Descriptor at(bits);
    for (int row = 0; row < ROWS; row++)
      for (int k = 0; k < STEP; k++) a[row][k] = (double)major_k(at, row, k);
  }
  const Descriptor at(product.b_descriptor);
  for (int k = 0; k < STEP; k++)
    for (int n = 0; n < product.n; n++)
      b[k][n] = (double)(product.b_transposed ? major_row(at, n, k) : major_k(at, n, k));
  count_multiply_adds((uint64_t)ROWS * STEP * (uint64_t)product.n);
  double sums[256];
  for (int row = 0; row < ROWS; row++) {
    for (int n = 0; n < product.n; n++) sums[n] = 0;
    for (int k = 0; k < STEP; k++)
      for (int n = 0; n < product.n; n++) sums[n] += a[row][k] * b[k][n];
    if (wrong_products() && row == 9) sums[3] = -sums[3];
    float *values[4]; /* of the lanes that share the row */
    for (int pair = 0; pair < 4; pair++) {
      Thread &of = threads[(size_t)(first + row / 16 * LANES + row % 8 * 4 + pair)];
      values[pair] = find_accumulators(of, of.groups[group][index].product.d).values.data();
    }
    for (int n = 0; n < product.n; n++) {
      float &d = values[n % 8 / 2][n / 8 * 4 + row % 16 / 8 * 2 + n % 2];
      d = (float)((product.accumulate ? (double)d : 0.0) + sums[n]);
    }
  }
}

/* Waits for all threads of the warpgroup. The last one to come computes the `count` oldest groups,
 * as far as they are not computed yet. */
void meet(const char *what, size_t count)
{
  const int first = thread() / WARPGROUP * WARPGROUP;
  if (first + WARPGROUP > (int)threads.size()) stop("%s outside a warpgroup", what);
  Warpgroup &group = warpgroups[(size_t)(first / WARPGROUP)];
  if (++group.arrived == WARPGROUP) {
    group.arrived = 0;
    for (; group.done < count; group.done++) {
      for (int t = 0; t < WARPGROUP; t++) {
        const auto &groups = threads[(size_t)(first + t)].groups;
        if (groups.size() <= group.done ||
            groups[group.done].size() != threads[(size_t)first].groups[group.done].size())
          stop("threads of a warpgroup began different products");
      }
      for (size_t i = 0; i < threads[(size_t)first].groups[group.done].size(); i++)
        compute(first, group.done, i);
    }
    group.times++;
    return;
  }
  struct Meeting {
    Warpgroup *group;
    uint64_t times;
  } meeting = {&group, group.times};
  wait_until(
      what,
      [](void *context) {
        const Meeting *m = static_cast<const Meeting *>(context);
        return m->group->times != m->times;
      },
      &meeting);
}

bool drawn(uint64_t number)
{
  uint64_t x = (seed_of_draws + number * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 31;
  return (x * 0x94d049bb133111ebu >> 40 & 1) != 0;
}

bool untouched(const float *d, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (__float_as_uint(d[i]) != 0xffffffffu) return false;
  }
  return true;
}

} // namespace

unsigned shared_address(const void *p)
{
  return (unsigned)(SHARED_BASE + ((const char *)p - (const char *)self->shared));
}

void tile_copy(void *to, const TensorMap &map, uint64_t *barrier, const int at[4], int rank)
{
  const unsigned bytes = 2u * (unsigned)(map.box[0] * map.box[1] * map.box[2] * map.box[3]);
  if (map.rank != rank) stop("a copy of %d dimensions from a map of %d", rank, map.rank);
  if (map.box[0] * 2 != 128) stop("a swizzled tile whose rows are not 128 bytes");
  if (shared_address(to) % SWIZZLE_BYTES != 0) stop("a tile that begins within the swizzle");
  memset(shared_pointer(shared_address(to), bytes), 0xff, bytes);
  count_copied_bytes(bytes);
  Tile tile = {(char *)to, map, {at[0], at[1], at[2], at[3]}, bytes};
  if (planted == PLM_EVERYWHERE_TILE) tile.at[rank / 2] += 8;
  find_barrier(barrier).tiles.push_back(tile);
  find_barrier(barrier).of_tiles = true;
}

void barrier_init(uint64_t *barrier, unsigned arrivals)
{
  if ((uintptr_t)barrier % 8 != 0 || arrivals == 0) stop("a barrier of %u arrivals", arrivals);
  *barrier = arrivals; /* touches the memory, so that a wrong address shows */
  Barrier state;
  state.arrivals = state.pending = arrivals;
  barriers[barrier] = state;
}

void barrier_arrive(uint64_t *barrier, unsigned bytes_to_come)
{
  Barrier &state = find_barrier(barrier);
  if (state.pending == 0) phase_ends(state);
  if (state.pending == 0) stop("more arrivals at a barrier than it expects");
  state.bytes += bytes_to_come;
  state.pending--;
  if (state.pending == 0 && state.bytes == 0) phase_ends(state);
}

void barrier_wait(uint64_t *barrier, unsigned parity)
{
  struct Wait {
    Barrier *barrier;
    unsigned parity;
  } wait = {&find_barrier(barrier), parity};
  if (planted == (wait.barrier->of_tiles ? PLM_EVERYWHERE_FULL_WAIT : PLM_EVERYWHERE_EMPTY_WAIT))
    return;
  wait_until(
      "a barrier in shared memory",
      [](void *context) {
        const Wait *w = static_cast<const Wait *>(context);
        /* the phase of this parity is over if the current one has the other parity */
        if ((w->barrier->phases & 1) != w->parity) return true;
        return phase_ends(*w->barrier);
      },
      &wait);
}

void named_arrive(int name, int count)
{
  Named &barrier = named[name];
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    barrier.times++;
  }
}

void named_sync(int name, int count)
{
  struct Wait {
    Named *barrier;
    uint64_t times;
  } wait = {&named[name], named[name].times};
  named_arrive(name, count);
  wait_until(
      "a named barrier",
      [](void *context) {
        const Wait *w = static_cast<const Wait *>(context);
        return w->barrier->times != w->times;
      },
      &wait);
}

void product_fence()
{
  self_thread().fenced = true;
}

void product_begin(const Product &product)
{
  Thread &of = self_thread();
  if (!of.fenced) stop("a product without a fence since the last wait");
  Begun begun = {product, {}};
  if (planted == PLM_EVERYWHERE_TURNED) begun.product.b_transposed = false;
  if (planted == PLM_EVERYWHERE_START) begun.product.b_descriptor += product.b_transposed ? 128 : 2;
  if (planted == PLM_EVERYWHERE_LEADING) begun.product.b_descriptor ^= UINT64_C(1) << 24;
  if (product.a_descriptor != nullptr) {
    begun.a[0] = (unsigned)*product.a_descriptor;
    begun.a[1] = (unsigned)(*product.a_descriptor >> 32);
  } else {
    memcpy(begun.a, product.a, sizeof begun.a);
  }
  Accumulators *accumulators = nullptr;
  for (Accumulators &each : of.accumulators) {
    if (each.d == product.d) accumulators = &each;
  }
  const size_t count = (size_t)product.n / 2;
  if (accumulators == nullptr) {
    of.accumulators.push_back({product.d, std::vector<float>(product.d, product.d + count)});
    accumulators = &of.accumulators.back();
    memset(product.d, 0xff, count * sizeof(float));
  }
  if (accumulators->values.size() != count) stop("accumulators of products of different widths");
  accumulators->products++;
  of.open.push_back(begun);
}

void product_commit()
{
  Thread &of = self_thread();
  of.groups.push_back(std::move(of.open));
  of.open.clear();
  /* how often the warpgroup has committed: the same number in each of its threads */
  Warpgroup &group = warpgroups[(size_t)(thread() / WARPGROUP)];
  const uint64_t number = group.commits / WARPGROUP;
  group.commits++;
  meet("wgmma.commit_group",
       drawn(number * 8 + (uint64_t)(thread() / WARPGROUP)) ? of.groups.size() : 0);
}

void product_wait(int groups_that_may_be_left)
{
  if (planted == PLM_EVERYWHERE_PRODUCT_WAIT) return;
  Thread &of = self_thread();
  of.fenced = false; /* the registers may be used now, so the next product needs a fence */
  /* products take time, in which other threads may run */
  const uint64_t number = warpgroups[(size_t)(thread() / WARPGROUP)].commits / WARPGROUP;
  for (int i = 0; i < 2 && drawn(number * 8 + 7); i++) let_others_run();
  const size_t left = (size_t)groups_that_may_be_left;
  const size_t count = of.groups.size() > left ? of.groups.size() - left : 0;
  meet("wgmma.wait_group", count);
  for (size_t i = 0; i < count; i++) {
    for (const Begun &begun : of.groups[i]) {
      if (begun.product.a_descriptor == nullptr &&
          memcmp(begun.product.a, begun.a, sizeof begun.a) != 0)
        stop("registers of a product's A changed before the wait");
      Accumulators &accumulators = find_accumulators(of, begun.product.d);
      const size_t values = accumulators.values.size();
      if (--accumulators.products > 0) continue;
      if (!untouched(accumulators.d, values)) stop("accumulators changed before the wait");
      memcpy(accumulators.d, accumulators.values.data(), values * sizeof(float));
      of.accumulators.erase(of.accumulators.begin() + (&accumulators - of.accumulators.data()));
    }
  }
  of.groups.erase(of.groups.begin(), of.groups.begin() + (long)count);
  meet("wgmma.wait_group", 0); /* nobody begins new products before all have taken their results */
  if (thread() % WARPGROUP == 0) warpgroups[(size_t)(thread() / WARPGROUP)].done -= count;
  meet("wgmma.wait_group", 0);
}

/* A lane's words are its address and r[0..3]. Lane 4 i + j holds word j of row i of each matrix. */
void matrices_store(void *row, const unsigned r[4])
{
  if ((uintptr_t)row % 16 != 0) stop("stmatrix of a row that is not aligned");
  const uint64_t words[] = {(uint64_t)(uintptr_t)row, r[0], r[1], r[2], r[3]};
  memset(row, 0xff, 16); /* the old values are gone at once */
  warp_compute("stmatrix", words, 5, [](Lanes &lanes) {
    for (int i = 0; i < LANES; i++) {
      Row stored = {(void *)(uintptr_t)lanes[i][0], {}};
      for (int j = 0; j < 4; j++) stored.words[j] = (unsigned)lanes[i % 8 * 4 + j][1 + i / 8];
      rows_of_warps[thread() / LANES].push_back(stored);
    }
  });
}

void matrices_settle()
{
  const uint64_t nothing = 0;
  warp_compute("__syncwarp after stmatrix", &nothing, 1, [](Lanes &) {
    std::vector<Row> &rows = rows_of_warps[thread() / LANES];
    for (const Row &each : rows) memcpy(each.to, each.words, sizeof each.words);
    rows.clear();
  });
}

void hopper_block_begins(unsigned count, uint64_t seed)
{
  threads.resize(count); /* groups and products are empty: hopper_block_ends has checked */
  for (Thread &each : threads) {
    each.fenced = false;
    each.accumulators.clear();
  }
  warpgroups.assign((count + WARPGROUP - 1) / WARPGROUP, Warpgroup());
  for (Named &each : named) each = Named();
  barriers.clear();
  rows_of_warps.clear();
  seed_of_draws = seed;
}

void hopper_block_ends()
{
  for (const Thread &each : threads) {
    if (!each.open.empty() || !each.groups.empty()) stop("products that nobody waited for");
  }
  for (const auto &each : rows_of_warps) {
    if (!each.second.empty()) stop("matrices that a warp stored and did not settle");
  }
  for (const auto &each : barriers) {
    if (!each.second.tiles.empty()) stop("tiles on their way at the end of a block");
  }
}

} // namespace plm::emulation

extern "C" void plm_cuda_planted_everywhere(enum plm_planted_everywhere fault)
{
  plm::emulation::planted = fault;
}
