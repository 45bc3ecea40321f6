/* The emulation of sm_90a's products and of stmatrix: see hopper.h. Descriptors, layouts and
 * fragments: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". */
#include <algorithm>
#include <map>
#include <set>
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

enum { WARPGROUP = 128, ROWS = 64, STEP = 16, MOST_COLUMNS = 256, LOCALS_BYTES = 4096 };

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
  bool multiplied = false;  /* has begun a product */
  uint64_t trail = 0;       /* of the places of the source that the thread came to (at_line) */
  std::vector<char> locals; /* the thread's stack from here on when it last called the fence */
  const char *locals_at = nullptr;
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
/* The rows that warps have stored since they last made their rows visible to products. */
std::map<int, std::set<const char *>> hidden_rows;
std::vector<Thread> threads; /* of a block, from its first instruction for products on */
std::vector<Warpgroup> warpgroups;
unsigned thread_count;
bool used; /* the block has come to such an instruction */
uint64_t seed_of_draws;

/* Steps of a trail. A wait's is WAIT plus the groups that may be left. */
enum { FENCE = 1, COMMIT, PRODUCT, WAIT };

/* Most blocks have no products, so this is not done for each of them. Groups and products are
 * empty, as hopper_block_ends has checked. */
void begin_products()
{
  threads.resize(thread_count);
  for (Thread &each : threads) {
    each.fenced = false;
    each.trail = 0;
    each.accumulators.clear();
  }
  warpgroups.assign((thread_count + WARPGROUP - 1) / WARPGROUP, Warpgroup());
  used = true;
}

Thread &self_thread()
{
  if (!used) begin_products();
  return threads[(size_t)thread()];
}

float from_bf16(const char *p)
{
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return from_word<float>((uint64_t)bits << 16);
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

/* Reads 8 consecutive elements, which begin at a multiple of 16 bytes, to `to` and every `step`-th
 * place after it. */
void read_elements(uint64_t address, double *to, size_t step)
{
  const char *row = shared_pointer(swizzle(address), 16);
  for (const auto &each : hidden_rows)
    if (each.second.count(row) != 0)
      stop("a product reads matrices that a warp stored without the fence for products");
  for (size_t i = 0; i < 8; i++) to[i * step] = (double)from_bf16(row + 2 * i);
}

/* Elements (row, 0 to STEP) if k is contiguous: groups of 8 rows of 128 bytes are a stride apart.
 */
void read_major_k(const Descriptor &at, int row, double *to, size_t step)
{
  const uint64_t offset = (uint64_t)(row / 8) * at.stride + (uint64_t)(row % 8) * 128;
  for (size_t k = 0; k < STEP; k += 8)
    read_elements(at.start + offset + k * 2, to + k * step, step);
}

/* Elements (row to row + 8, k) if rows are contiguous: groups of 64 rows are a leading offset
 * apart, and groups of 8 k of 128 bytes are a stride apart. */
void read_major_row(const Descriptor &at, int row, int k, double *to)
{
  const uint64_t offset = (uint64_t)(row / 64) * at.leading + (uint64_t)(row % 64) * 2 +
                          (uint64_t)(k / 8) * at.stride + (uint64_t)(k % 8) * 128;
  read_elements(at.start + offset, to, 1);
}

Accumulators &find_accumulators(Thread &of, float *d)
{
  for (Accumulators &each : of.accumulators) {
    if (each.d == d) return each;
  }
  stop("accumulators of a product that nobody began");
}

/* sums = the row a times b, of which MOST_COLUMNS doubles lie from row to row. */
PLM_WIDE void multiply_row(double *sums, const double *a, const double *b, int columns)
{
  for (int n = 0; n < columns; n += 8) {
    double eight[8] = {};
    for (int k = 0; k < STEP; k++)
      for (int i = 0; i < 8; i++) eight[i] += a[k] * b[k * MOST_COLUMNS + n + i];
    memcpy(sums + n, eight, sizeof eight);
  }
}

void compute(int first, size_t group, size_t index)
{
  static double a[ROWS][STEP], b[STEP][MOST_COLUMNS];
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
    for (int row = 0; row < ROWS; row++) read_major_k(at, row, a[row], 1);
  }
  const Descriptor at(product.b_descriptor);
  for (int n = 0; n < product.n; n += product.b_transposed ? 8 : 1)
    if (product.b_transposed)
      for (int k = 0; k < STEP; k++) read_major_row(at, n, k, &b[k][n]);
    else
      read_major_k(at, n, &b[0][n], MOST_COLUMNS);
  count_multiply_adds((uint64_t)ROWS * STEP * (uint64_t)product.n);
  double sums[MOST_COLUMNS];
  const double scale = product_scale();
  for (int row = 0; row < ROWS; row++) {
    multiply_row(sums, a[row], &b[0][0], product.n);
    if (wrong_products() && row == 9) sums[3] = -sums[3];
    float *values[4]; /* of the lanes that share the row */
    for (int pair = 0; pair < 4; pair++) {
      Thread &of = threads[(size_t)(first + row / 16 * LANES + row % 8 * 4 + pair)];
      values[pair] = find_accumulators(of, of.groups[group][index].product.d).values.data();
    }
    for (int n = 0; n < product.n; n++) {
      float &d = values[n % 8 / 2][n / 8 * 4 + row % 16 / 8 * 2 + n % 2];
      d = (float)((product.accumulate ? (double)d : 0.0) + scale * sums[n]);
    }
  }
}

/* All threads of a warpgroup execute the same instructions (.aligned). */
void step(uint64_t number)
{
  uint64_t &trail = self_thread().trail;
  trail = (trail ^ (number + (uint64_t)pop_line() * 64)) * 0x9e3779b97f4a7c15u;
  trail ^= trail >> 29;
}

void require_same_trail(int first)
{
  for (int t = 1; t < WARPGROUP; t++)
    if (threads[(size_t)(first + t)].trail != threads[(size_t)first].trail)
      stop("threads of a warpgroup came through different wgmma instructions");
}

/* Registers of a product are a kernel's local arrays. Those on the stack must have the values that
 * they had at the fence. (ASan may keep them elsewhere.) */
void require_fenced(const Thread &of, const void *registers, size_t bytes)
{
  const char *at = (const char *)registers;
  if (at < of.locals_at || at + bytes > of.locals_at + of.locals.size()) return;
  if (memcmp(at, of.locals.data() + (at - of.locals_at), bytes) != 0)
    stop("registers of a product changed after the fence");
}

/* Copies a part of the stack as it is: a sanitizer forbids to read what is between locals. */
__attribute__((no_sanitize_address, noinline)) void copy_stack(char *to, const char *from,
                                                               size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
  for (size_t i = 0; i < bytes; i++) to[i] = static_cast<const volatile char *>(from)[i];
#else
  memcpy(to, from, bytes);
#endif
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
    require_same_trail(first);
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

int planted_everywhere()
{
  return planted;
}

__attribute__((noinline)) void product_fence()
{
  Thread &of = self_thread();
  step(FENCE);
  of.fenced = true;
  of.locals_at = (const char *)__builtin_frame_address(0);
  of.locals.resize((size_t)(std::min(of.locals_at + LOCALS_BYTES, end_of_stack()) - of.locals_at));
  copy_stack(of.locals.data(), of.locals_at, of.locals.size());
}

void product_begin(const Product &product)
{
  if (faulty_products()) raise_fault();
  Thread &of = self_thread();
  if (!of.fenced) stop("a product without a fence since the last wait");
  step(PRODUCT);
  const size_t count = (size_t)product.n / 2;
  Begun begun = {product, {}};
  if (planted == PLM_EVERYWHERE_TURNED) begun.product.b_transposed = false;
  if (planted == PLM_EVERYWHERE_START) begun.product.b_descriptor += product.b_transposed ? 128 : 2;
  if (planted == PLM_EVERYWHERE_CARRIED) begun.product.accumulate |= of.multiplied;
  of.multiplied = true;
  if (planted == PLM_EVERYWHERE_LEADING) begun.product.b_descriptor ^= UINT64_C(1) << 24;
  if (product.a_descriptor != nullptr) {
    begun.a[0] = (unsigned)*product.a_descriptor;
    begun.a[1] = (unsigned)(*product.a_descriptor >> 32);
  } else {
    memcpy(begun.a, product.a, sizeof begun.a);
    require_fenced(of, product.a, sizeof begun.a);
  }
  Accumulators *accumulators = nullptr;
  for (Accumulators &each : of.accumulators) {
    if (each.d == product.d) accumulators = &each;
  }
  if (accumulators == nullptr) {
    require_fenced(of, product.d, count * sizeof(float));
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
  step(COMMIT);
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
  step(WAIT + (uint64_t)groups_that_may_be_left);
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

/* A lane's words are its address, r[0..3], and whether it is turned. Lane 4 i + j holds words j of
 * row i of each matrix: elements 2 j and 2 j + 1. */
void matrices_store(void *row, const unsigned r[4], bool turned)
{
  if ((uintptr_t)row % 16 != 0) stop("stmatrix of a row that is not aligned");
  if (planted == PLM_EVERYWHERE_MATRICES) turned = false;
  const uint64_t words[] = {(uint64_t)(uintptr_t)row, r[0], r[1], r[2], r[3], turned};
  memset(row, 0xff, 16); /* the old values are gone at once */
  hidden_rows[thread() / LANES].insert((const char *)row);
  warp_compute("stmatrix", words, 6, [](Lanes &lanes) {
    for (int i = 0; i < LANES; i++) {
      const int matrix = i / 8;
      uint16_t elements[8];
      for (int k = 0; k < 8; k++) {
        const int of_row = lanes[0][5] != 0 ? k : i % 8, column = lanes[0][5] != 0 ? i % 8 : k;
        const uint64_t word = lanes[of_row * 4 + column / 2][1 + matrix];
        elements[k] = (uint16_t)(word >> column % 2 * 16);
      }
      Row stored = {(void *)(uintptr_t)lanes[i][0], {}};
      memcpy(stored.words, elements, sizeof elements);
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

void matrices_publish()
{
  matrices_settle();
  if (planted == PLM_EVERYWHERE_PUBLISH) return;
  hidden_rows.erase(thread() / LANES);
}

void matrices_replaced(const char *begin, size_t bytes)
{
  for (auto &each : hidden_rows)
    each.second.erase(each.second.lower_bound(begin), each.second.lower_bound(begin + bytes));
}

void hopper_block_begins(unsigned count, uint64_t seed)
{
  thread_count = count;
  used = false;
  hopper_barriers_begin();
  hopper_registers_begin(count);
  rows_of_warps.clear();
  hidden_rows.clear();
  seed_of_draws = seed;
}

void hopper_block_ends()
{
  for (size_t i = 0; used && i < threads.size(); i++) {
    const Thread &each = threads[i];
    if (!each.open.empty() || !each.groups.empty()) stop("products that nobody waited for");
  }
  for (const auto &each : rows_of_warps) {
    if (!each.second.empty()) stop("matrices that a warp stored and did not settle");
  }
  for (size_t first = 0; used && first + WARPGROUP <= threads.size(); first += WARPGROUP)
    require_same_trail((int)first);
  hopper_barriers_end();
}

} // namespace plm::emulation

extern "C" void plm_cuda_planted_everywhere(enum plm_planted_everywhere fault)
{
  plm::emulation::planted = fault;
}
