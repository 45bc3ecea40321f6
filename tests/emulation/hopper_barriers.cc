/* The emulation of sm_90a's barriers: those in shared memory, at which tiles arrive, and named
 * ones. See hopper.h. PTX ISA: "mbarrier", "cp.async.bulk.tensor", "bar". The swizzle of 128 bytes
 * permutes parts of 16 bytes within 1,024 bytes: it XORs bits 4-6 of the address with bits 7-9. */
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

/* The elements of a part that the swizzle moves as a whole. */
enum { SWIZZLE_BYTES = 1024, PART = 8, NAMES = 16 };

struct Tile {
  char *to;
  TensorMap map;
  int at[4];
  unsigned bytes;
};
struct Barrier {
  unsigned arrivals, pending, bytes = 0;
  int maker;                 /* the thread that initialised it */
  bool fenced = false;       /* whether the maker has called barrier_init_fence since … */
  uint64_t fenced_after = 0; /* … and how many barriers of the block there had been by then */
  uint64_t phases = 0;       /* completed */
  std::vector<Tile> tiles;
  bool of_tiles = false; /* whether copies complete at it */
};
std::map<const uint64_t *, Barrier> barriers;

struct Named {
  int arrived = 0, expected = 0; /* threads */
  uint64_t times = 0;
} named[NAMES];

/* What a barrier's word holds. Nobody but the barrier's own functions may write there. */
uint64_t word_of(const uint64_t *barrier, unsigned arrivals)
{
  return ((uint64_t)(uintptr_t)barrier ^ arrivals) * 0x9e3779b97f4a7c15u | 1;
}

void require_intact(const uint64_t *barrier, const Barrier &state)
{
  if (*barrier != word_of(barrier, state.arrivals)) stop("something was written over a barrier");
}

/* Writes PART elements of a row of the map, from the element `first` on; the row is NULL if it lies
 * beyond the map. */
void make_part(char *to, const TensorMap &map, const char *row, int64_t first)
{
  uint16_t values[PART] = {};
  for (int64_t i = 0; i < PART && row != nullptr; i++) {
    const int64_t at = first + i;
    if (at >= 0 && at < map.size[0]) memcpy(&values[i], row + at * map.stride[0], sizeof *values);
  }
  memcpy(to, values, sizeof values);
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
      for (i[1] = 0; i[1] < map.box[1]; i[1]++) {
        const char *from = map.base;
        bool inside = true;
        for (int d = 1; d < 4; d++) {
          const int64_t at = tile.at[d] + i[d];
          inside = inside && at >= 0 && at < map.size[d];
          if (inside) from += at * map.stride[d];
        }
        for (i[0] = 0; i[0] < map.box[0]; i[0] += PART, offset += 2 * PART)
          make_part(shared_pointer(swizzle(start + offset), 2 * PART), map, inside ? from : nullptr,
                    tile.at[0] + i[0]);
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

/* The barrier, if this thread may use it. */
Barrier &find_barrier(const uint64_t *barrier)
{
  const auto found = barriers.find(barrier);
  if (found == barriers.end()) stop("a barrier that was not initialised");
  Barrier &state = found->second;
  require_intact(barrier, state);
  if (!state.fenced) stop("a barrier that is used before the fence of its initialisation");
  if (state.maker != thread() && block_barriers() == state.fenced_after)
    stop("a barrier that another thread initialised, without a __syncthreads in between");
  return state;
}

/* Barriers must not lie in [begin, begin + bytes). */
void require_no_barrier(const char *begin, size_t bytes)
{
  for (const auto &each : barriers) {
    const char *word = (const char *)each.first;
    if (word < begin + bytes && begin < word + sizeof *each.first) stop("a tile over a barrier");
  }
}

/* Counts a warp's arrival at a named barrier. The lanes' words are its name and how many threads
 * take part. They are replaced by how often the barrier has completed before. */
void arrive_as_warp(Lanes &lanes)
{
  const uint64_t name = lanes[0][0], expected = lanes[0][1];
  for (const auto &words : lanes)
    if (words[0] != name || words[1] != expected)
      stop("lanes of a warp at different named barriers");
  if (name == 0 || name >= NAMES) stop("a named barrier %d", (int)name);
  if (expected == 0 || expected % LANES != 0)
    stop("a named barrier of %d threads, which is no multiple of a warp", (int)expected);
  Named &barrier = named[name];
  if (barrier.arrived > 0 && barrier.expected != (int)expected)
    stop("a named barrier of %d threads and of %d", barrier.expected, (int)expected);
  for (auto &words : lanes) words[0] = barrier.times;
  barrier.expected = (int)expected;
  barrier.arrived += LANES;
  if (barrier.arrived < barrier.expected) return;
  barrier.arrived = 0;
  barrier.times++;
}

} // namespace

uint64_t swizzle(uint64_t address)
{
  return address ^ (address >> 7 & 7) << 4;
}

char *shared_pointer(uint64_t address, size_t bytes)
{
  if (address < SHARED_BASE || address + bytes > SHARED_BASE + launch.shared_bytes)
    stop("shared memory ends before address %#lx", (unsigned long)address);
  return launch.shared + (address - SHARED_BASE);
}

unsigned shared_address(const void *p)
{
  return (unsigned)(SHARED_BASE + ((const char *)p - launch.shared));
}

void tile_copy(void *to, const TensorMap &map, uint64_t *barrier, const int at[4], int rank)
{
  const unsigned bytes = 2u * (unsigned)(map.box[0] * map.box[1] * map.box[2] * map.box[3]);
  if ((uintptr_t)&map % 64 != 0) stop("a map of tiles that is not aligned to 64 bytes");
  if (map.copies_on_device() != 1)
    stop("a map of tiles that is not in the kernel's parameters: a copy of one");
  if (map.rank != rank) stop("a copy of %d dimensions from a map of %d", rank, map.rank);
  if (map.box[0] * 2 != 128) stop("a swizzled tile whose rows are not 128 bytes");
  if (shared_address(to) % SWIZZLE_BYTES != 0) stop("a tile that begins within the swizzle");
  require_no_barrier((const char *)to, bytes);
  memset(shared_pointer(shared_address(to), bytes), 0xff, bytes);
  matrices_replaced(shared_pointer(shared_address(to), bytes), bytes);
  count_copied_bytes(bytes);
  Tile tile = {(char *)to, map, {at[0], at[1], at[2], at[3]}, bytes};
  if (planted_everywhere() == PLM_EVERYWHERE_TILE) tile.at[rank / 2] += 8;
  if (planted_everywhere() == PLM_EVERYWHERE_CHUNK) tile.at[3] = 0;
  find_barrier(barrier).tiles.push_back(tile);
  find_barrier(barrier).of_tiles = true;
}

void barrier_init(uint64_t *barrier, unsigned arrivals)
{
  if ((uintptr_t)barrier % 8 != 0 || arrivals == 0) stop("a barrier of %u arrivals", arrivals);
  if (barriers.count(barrier) != 0) stop("a barrier that is initialised a second time");
  Barrier state;
  state.arrivals = state.pending = arrivals;
  state.maker = thread();
  *barrier = word_of(barrier, arrivals); /* a wrong address shows here */
  barriers[barrier] = state;
}

void barrier_init_fence()
{
  for (auto &each : barriers) {
    if (each.second.maker != thread() || each.second.fenced) continue;
    each.second.fenced = true;
    each.second.fenced_after = block_barriers();
  }
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

/* The parity that a kernel waits for which never flips that of its rings, of one stage or of
 * several. The barriers of a ring follow each other, first those of tiles. A stage is freed by the
 * four warps of the one worker that has it, or by both workers' eight. */
static unsigned planted_parity(const uint64_t *barrier, unsigned parity)
{
  enum { WARPS = 4, BOTH = 2 * WARPS };
  const auto arrivals = [](const uint64_t *of) {
    const auto found = barriers.find(of);
    return found == barriers.end() ? 0 : found->second.arrivals;
  };
  const unsigned own = arrivals(barrier);
  const bool empty = own == WARPS || own == BOTH;
  const bool turn = own == WARPS || (!empty && arrivals(barrier + 1) == WARPS);
  switch (planted_everywhere()) {
  case PLM_EVERYWHERE_TURN_FULL: return turn && !empty ? 0 : parity;
  case PLM_EVERYWHERE_TURN_EMPTY: return turn && empty ? 1 : parity;
  case PLM_EVERYWHERE_RING_FULL: return !turn && !empty ? 0 : parity;
  case PLM_EVERYWHERE_RING_EMPTY: return !turn && empty ? 1 : parity;
  default: return parity;
  }
}

void barrier_wait(uint64_t *barrier, unsigned parity)
{
  parity = planted_parity(barrier, parity);
  struct Wait {
    Barrier *barrier;
    unsigned parity;
  } wait = {&find_barrier(barrier), parity};
  if (planted_everywhere() ==
      (wait.barrier->of_tiles ? PLM_EVERYWHERE_FULL_WAIT : PLM_EVERYWHERE_EMPTY_WAIT))
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
  const uint64_t words[] = {(uint64_t)(unsigned)name, (uint64_t)(unsigned)count};
  warp_compute("bar.arrive", words, 2, arrive_as_warp);
}

void named_sync(int name, int count)
{
  const uint64_t words[] = {(uint64_t)(unsigned)name, (uint64_t)(unsigned)count};
  const Lanes &before = warp_compute("bar.sync", words, 2, arrive_as_warp);
  if (planted_everywhere() == PLM_EVERYWHERE_NAMED) return;
  struct Wait {
    const Named *barrier;
    uint64_t times;
  } wait = {&named[name], before[lane()][0]};
  wait_until(
      "a named barrier",
      [](void *context) {
        const Wait *w = static_cast<const Wait *>(context);
        return w->barrier->times != w->times;
      },
      &wait);
}

void hopper_barriers_begin()
{
  for (Named &each : named) each = Named();
  barriers.clear();
}

void hopper_barriers_end()
{
  for (const auto &each : barriers) {
    require_intact(each.first, each.second);
    if (!each.second.tiles.empty()) stop("tiles on their way at the end of a block");
  }
  for (const Named &each : named) {
    if (each.arrived > 0)
      stop("%d threads of %d at a named barrier at the end of a block", each.arrived,
           each.expected);
  }
}

} // namespace plm::emulation
