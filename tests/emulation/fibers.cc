/* The emulation's threads: fibers, a scheduler that draws which one runs, barriers, exchanges in a
 * warp, and late copies. See emulation.h. */
#include <algorithm>
#include <cstdarg>
#include <utility>
#include <vector>

#include "tests/emulation/card.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/hopper.h"
#include "tests/emulation/stacks.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#define POISON(address, bytes) ((void)(address))
#define UNPOISON(address, bytes) ((void)(address))
#endif

namespace plm::emulation
{

Self *self;
Launch launch;

namespace
{

enum {
  MAX_THREADS = 1024,
  LINE_BYTES = 64,
  GUARD_BYTES = 256,
  MOST_SHARED_BYTES = 227 << 10, /* of any card */
  NOBODY = -1
};
constexpr char GUARD = 0x5a;
constexpr uint32_t ALL_LANES = ~UINT32_C(0);
/* That of a block, between guards. */
alignas(128) char shared_memory[GUARD_BYTES + MOST_SHARED_BYTES + GUARD_BYTES];

struct Copy {
  void *to;
  const void *from;
  int bytes, valid_bytes;
};

enum State : uint8_t { AT_BARRIER, IN_WARP, WAITING, DONE };

struct alignas(LINE_BYTES) Thread {
  Self self;
  Stack *stack;                     /* NULL before the thread begins */
  const char *operation;            /* while WAITING */
  bool (*condition)(void *context); /* what it is WAITING for */
  void *condition_context;
  uint64_t exchanges;          /* of the warp so far; says which of two slots is in use */
  std::vector<Copy> copies;    /* under way, oldest first */
  std::vector<size_t> commits; /* for each group: how many copies there are up to its end */
};

struct Warp {
  int first;                    /* of its threads */
  uint32_t all, ready, waiting; /* a bit for each thread, for those that can run, and WAITING */
  int at_barrier, barrier_line; /* threads at the block's barrier, and where it is */
  int arrived;                  /* threads in an operation, … */
  int line;                     /* … where it is in the source, … */
  const char *operation;        /* … and its name */
  uint64_t words[2][LANES];
  Lanes lanes[2];
};

struct Scheduler {
  Stack own; /* of the launching thread */
  Thread threads[MAX_THREADS];
  State states[MAX_THREADS]; /* what a thread is doing if it cannot run */
  Warp warps[MAX_THREADS / LANES];
  unsigned warp_count = 0;
  int count = 0, running = NOBODY, at_barrier = 0, done = 0; /* threads */
  uint64_t barriers = 0; /* of the block, that all its threads have reached */
  int line = 0;          /* at_line */
  bool far_ahead = false;
  Warp *warp = nullptr;                         /* whose turn it is … */
  int turn[LANES], turn_count = 0, turn_at = 0; /* … and its threads that run in this turn */
  const Body *body = nullptr;
  uint64_t random = 0x9e3779b97f4a7c15u;
};
Scheduler scheduler;

/* xorshift64*, which is random enough for an order. */
uint64_t draw_bits()
{
  uint64_t x = scheduler.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  scheduler.random = x;
  return x * 0x2545f4914f6cdd1du;
}

/* A number below `limit`. */
unsigned draw(unsigned limit)
{
  return (unsigned)((draw_bits() >> 32) * limit >> 32);
}

Thread &current()
{
  return scheduler.threads[scheduler.running];
}

[[noreturn]] void report_deadlock()
{
  fprintf(stderr, "emulation: threads wait for each other forever:\n");
  const auto operation = [](int i) {
    return scheduler.states[i] == IN_WARP   ? scheduler.warps[i / LANES].operation
           : scheduler.states[i] == WAITING ? scheduler.threads[i].operation
                                            : "";
  };
  for (int i = 0; i < scheduler.count; i++) {
    static const char *const names[] = {"at __syncthreads", "in", "waits at", "ended"};
    const State state = scheduler.states[i];
    if (i > 0 && state == scheduler.states[i - 1] && operation(i) == operation(i - 1)) continue;
    fprintf(stderr, "  thread %d %s %s\n", i, names[state], operation(i));
  }
  stop("block (%u, %u, %u): not all threads reach a barrier or an operation of a warp",
       launch.block.x, launch.block.y, launch.block.z);
}

/* ---- who runs next ---- */

/* The running thread cannot run until somebody makes it ready. */
void not_ready(Warp &warp, State state)
{
  warp.ready &= ~(UINT32_C(1) << lane());
  scheduler.states[scheduler.running] = state;
}

/* Makes threads ready whose condition holds by now. */
void look_at_waiting(Warp &warp)
{
  for (uint32_t left = warp.waiting; left != 0; left &= left - 1) {
    const int at = __builtin_ctz(left);
    const Thread &thread = scheduler.threads[warp.first + at];
    if (!thread.condition(thread.condition_context)) continue;
    warp.waiting &= ~(UINT32_C(1) << at);
    warp.ready |= UINT32_C(1) << at;
  }
}

/* Makes the turn of a warp from its threads that can run now, in a drawn order: each of them takes
 * a drawn place among those before it, for which 16 random bits are enough. */
void collect_ready(Warp &warp)
{
  enum { BITS = 16, DRAWS = 64 / BITS };
  if (warp.waiting != 0) look_at_waiting(warp);
  int *turn = scheduler.turn;
  unsigned count = 0;
  uint64_t bits = 0;
  for (uint32_t left = warp.ready; left != 0; left &= left - 1) {
    bits = count % DRAWS == 0 ? draw_bits() : bits >> BITS;
    const unsigned place = (unsigned)(bits & 0xffff) * (count + 1) >> BITS;
    turn[count++] = turn[place];
    turn[place] = warp.first + __builtin_ctz(left);
  }
  scheduler.warp = &warp;
  scheduler.turn_count = (int)count;
  scheduler.turn_at = 0;
}

Warp &drawn_warp()
{
  return scheduler.warps[draw(scheduler.warp_count)];
}

/* Draws which warp has the next turn. In half of the blocks a warp continues for as long as it can,
 * and so gets as far ahead of the others as barriers allow. In the other blocks the next warp is
 * drawn now and then. */
void draw_turn()
{
  collect_ready(!scheduler.far_ahead && draw(4) == 0 ? drawn_warp() : *scheduler.warp);
  if (scheduler.turn_count > 0) return;
  /* another warp: a drawn one, or the next after it that can run */
  Warp *warp = &drawn_warp();
  for (unsigned i = 0; i < scheduler.warp_count && scheduler.turn_count == 0; i++) {
    collect_ready(*warp);
    if (++warp == scheduler.warps + scheduler.warp_count) warp = scheduler.warps;
  }
  if (scheduler.turn_count == 0) report_deadlock();
}

/* Returns NOBODY if all threads have ended. */
int next_thread()
{
  if (scheduler.turn_at == scheduler.turn_count) {
    if (scheduler.done == scheduler.count) return NOBODY;
    draw_turn();
  }
  return scheduler.turn[scheduler.turn_at++];
}

/* ---- threads: each has a stack from its first to its last instruction ---- */

void live();

/* Makes `next` the running thread. Returns its stack, or NULL if it has not begun. */
Stack *choose(int next)
{
  if (next == NOBODY) return &scheduler.own;
  scheduler.running = next;
  self = &current().self;
  return current().stack;
}

void go_to(Stack &here, int next)
{
  Stack *stack = choose(next);
  if (stack == nullptr) stack = current().stack = &take_stack(live);
  if (stack != &here) stack_switch(here, *stack);
}

/* Returns when it is the calling thread's turn again. */
void give_way()
{
  go_to(*current().stack, next_thread());
}

/* Runs on a stack: one thread after the other. */
void live()
{
  for (;;) {
    Stack *here = current().stack;
    fill_locals(*here);
    scheduler.body->call(scheduler.body->context);
    current().copies.clear(); /* copies that nobody waited for never arrive */
    current().commits.clear();
    not_ready(*scheduler.warp, DONE);
    scheduler.done++;
    const int next = next_thread();
    if (next != NOBODY && scheduler.threads[next].stack == nullptr) {
      choose(next);
      current().stack = here;
    } else {
      leave_stack(*here);
      go_to(*here, next);
    }
  }
}

/* ---- launches ---- */

void begin_launch(dim3 grid, dim3 block, unsigned threads, size_t shared_bytes)
{
  scheduler.random = order_seed() * 0x9e3779b97f4a7c15u + 1;
  scheduler.count = (int)threads;
  stacks_launch_begins();
  scheduler.warp_count = (threads + LANES - 1) / LANES;
  for (unsigned i = 0; i < scheduler.warp_count; i++) {
    const unsigned first = i * LANES, width = std::min((unsigned)LANES, threads - first);
    scheduler.warps[i].first = (int)first;
    scheduler.warps[i].all = ALL_LANES >> (LANES - width);
  }
  launch = {dim3(), grid, block, shared_memory + GUARD_BYTES, shared_bytes};
  memset(shared_memory, GUARD, GUARD_BYTES);
  memset(launch.shared + shared_bytes, GUARD, GUARD_BYTES);
  POISON(shared_memory, GUARD_BYTES);
  POISON(launch.shared + shared_bytes, GUARD_BYTES);
  unsigned t = 0;
  for (unsigned z = 0; z < block.z; z++)
    for (unsigned y = 0; y < block.y; y++)
      for (unsigned x = 0; x < block.x; x++, t++)
        scheduler.threads[t].self = {dim3(x, y, z), (int)t};
  stack_of_caller(scheduler.own);
}

void end_launch(size_t shared_bytes)
{
  UNPOISON(shared_memory, sizeof shared_memory);
  for (size_t i = 0; i < GUARD_BYTES; i++) {
    if (shared_memory[i] != GUARD) stop("a write before shared memory");
    if (launch.shared[shared_bytes + i] != GUARD)
      stop("a write %zu bytes beyond the end of %zu bytes of shared memory", i, shared_bytes);
  }
  self = nullptr;
}

/* Runs the threads of a block until all have ended. */
void run_block(dim3 at, size_t shared_bytes)
{
  scheduler.done = scheduler.at_barrier = 0;
  scheduler.barriers = 0;
  memset(launch.shared, 0xff, shared_bytes); /* NaN, as float, double and bf16 */
  for (unsigned i = 0; i < scheduler.warp_count; i++) {
    Warp &warp = scheduler.warps[i];
    warp.ready = warp.all;
    warp.waiting = 0;
    warp.arrived = warp.at_barrier = 0;
  }
  launch.block = at;
  for (int i = 0; i < scheduler.count; i++) {
    Thread &thread = scheduler.threads[i];
    thread.stack = nullptr;
    thread.exchanges = 0;
  }
  scheduler.far_ahead = draw(2) == 0;
  scheduler.warp = &drawn_warp();
  scheduler.turn_at = scheduler.turn_count = 0;
  go_to(scheduler.own, next_thread());
}

void make_copy(const Copy &copy)
{
  memcpy(copy.to, copy.from, (size_t)copy.valid_bytes);
  memset((char *)copy.to + copy.valid_bytes, 0, (size_t)(copy.bytes - copy.valid_bytes));
}

} // namespace

void stop(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fputs("emulation: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

void run(dim3 grid, dim3 block, size_t shared_bytes, const Body &body)
{
  const Reach reach;
  const unsigned blocks = grid.x * grid.y * grid.z;
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > MAX_THREADS) stop("a block of %u threads", threads);
  if (blocks == 0 || grid.y > 65535 || grid.z > 65535)
    stop("a grid of (%u, %u, %u) blocks", grid.x, grid.y, grid.z);
  if (shared_bytes > std::min(shared_of_card(), (size_t)MOST_SHARED_BYTES))
    stop("%zu bytes of shared memory", shared_bytes);
  scheduler.body = &body;
  begin_launch(grid, block, threads, shared_bytes);
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; i++) order[i] = i;
  for (size_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[draw((unsigned)i)]);
  for (const unsigned i : order) {
    hopper_block_begins(threads, order_seed());
    run_block(dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y), shared_bytes);
    hopper_block_ends();
  }
  end_launch(shared_bytes);
}

const char *end_of_stack()
{
  const Stack *stack = current().stack;
  return (const char *)stack->bottom + stack->bytes;
}

void let_others_run()
{
  give_way(); /* the thread stays ready */
}

void wait_until(const char *what, bool (*condition)(void *context), void *context)
{
  if (condition(context)) return;
  Thread &thread = current();
  Warp &warp = *scheduler.warp;
  warp.waiting |= UINT32_C(1) << lane();
  not_ready(warp, WAITING);
  thread.operation = what;
  thread.condition = condition;
  thread.condition_context = context;
  give_way();
}

void at_line(int line)
{
  scheduler.line = line;
}

int pop_line()
{
  return std::exchange(scheduler.line, 0);
}

uint64_t block_barriers()
{
  return scheduler.barriers;
}

void block_barrier()
{
  Warp &warp = *scheduler.warp;
  const int line = pop_line();
  if (warp.at_barrier++ == 0) warp.barrier_line = line;
  if (line != warp.barrier_line)
    stop("threads of a warp meet at different __syncthreads: lines %d and %d", warp.barrier_line,
         line);
  not_ready(warp, AT_BARRIER);
  if (++scheduler.at_barrier == scheduler.count) {
    scheduler.at_barrier = 0;
    scheduler.barriers++;
    for (unsigned i = 0; i < scheduler.warp_count; i++) {
      scheduler.warps[i].at_barrier = 0;
      scheduler.warps[i].ready = scheduler.warps[i].all;
    }
  }
  give_way();
}

/* Returns whether the running thread is the last one of its warp to come here. */
static bool arrive(Warp &warp, const char *what)
{
  const int line = pop_line();
  not_ready(warp, IN_WARP);
  if (warp.arrived++ == 0) warp.operation = what, warp.line = line;
  if (what != warp.operation && strcmp(what, warp.operation) != 0)
    stop("threads of a warp meet in different operations: %s and %s", warp.operation, what);
  if (line != warp.line)
    stop("threads of a warp meet in %s at different places: lines %d and %d", what, warp.line,
         line);
  if (warp.arrived < LANES) {
    if (warp.all != ALL_LANES)
      stop("%s in a warp of %d threads", what, __builtin_popcount(warp.all));
    return false;
  }
  warp.arrived = 0;
  warp.ready = warp.all;
  count_exchange();
  return true;
}

const uint64_t *exchange_word(const char *what, uint64_t word)
{
  Warp &warp = *scheduler.warp;
  uint64_t *words = warp.words[current().exchanges++ % 2];
  words[lane()] = word;
  arrive(warp, what);
  give_way();
  return words;
}

const Lanes &warp_exchange(const char *what, const uint64_t *words, int count)
{
  return warp_compute(what, words, count, nullptr);
}

const Lanes &warp_compute(const char *what, const uint64_t *words, int count,
                          void (*compute)(Lanes &lanes))
{
  Warp &warp = *scheduler.warp;
  Lanes &lanes = warp.lanes[current().exchanges++ % 2];
  for (int i = 0; i < count; i++) lanes[lane()][i] = words[i];
  if (arrive(warp, what) && compute != nullptr) compute(lanes);
  give_way();
  return lanes;
}

void copy_later(void *to, const void *from, int bytes, int valid_bytes)
{
  if (((uintptr_t)to | (uintptr_t)from) % (uintptr_t)bytes != 0)
    stop("an asynchronous copy of %d bytes is not aligned", bytes);
  memset(to, 0xff, (size_t)bytes); /* nobody may read the target before the wait */
  count_copied_bytes((uint64_t)bytes);
  current().copies.push_back({to, from, bytes, valid_bytes});
}

void copy_commit()
{
  current().commits.push_back(current().copies.size());
}

void copy_wait(int groups_that_may_be_left)
{
  Thread &thread = current();
  const size_t left = (size_t)groups_that_may_be_left;
  if (thread.commits.size() <= left) return;
  const auto groups = thread.commits.begin() + (long)(thread.commits.size() - left);
  const size_t arrived = groups[-1];
  for (size_t i = 0; i < arrived; i++) make_copy(thread.copies[i]);
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + (long)arrived);
  thread.commits.erase(thread.commits.begin(), groups);
  for (size_t &end : thread.commits) end -= arrived;
}

} // namespace plm::emulation
