/* The emulation's threads: fibers, a scheduler that draws which one runs, barriers, exchanges in a
 * warp, and late copies. See emulation.h. */
#include <algorithm>
#include <cstdarg>
#include <memory>
#include <utility>
#include <vector>

#include <alloca.h>
#include <sys/mman.h>

#include "tests/emulation/card.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/hopper.h"
#include "tests/emulation/stack_switch.h"

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

namespace
{

enum {
  MAX_THREADS = 1024,
  STACK_BYTES = 256 << 10,
  PAGE_BYTES = 4096, /* closed, at the end of a stack */
  LINE_BYTES = 64,
  LOCALS_BYTES = 4 << 10, /* of a stack, NaN when a thread begins; kernels use 1 to 3 KiB */
  GUARD_BYTES = 64,
  NOBODY = -1
};
constexpr char GUARD = 0x5a;

struct Copy {
  void *to;
  const void *from;
  int bytes, valid_bytes;
};

enum State : uint8_t { READY, AT_BARRIER, IN_WARP, WAITING, DONE };

struct Thread {
  Self self;
  Stack *stack;                     /* NULL before the thread begins */
  const char *operation;            /* while IN_WARP or WAITING */
  bool (*condition)(void *context); /* what it is WAITING for */
  void *condition_context;
  int line;                    /* of the source, of the block's barrier that it waits at */
  uint64_t exchanges;          /* of the warp so far; says which of two slots is in use */
  std::vector<Copy> copies;    /* under way, oldest first */
  std::vector<size_t> commits; /* for each group: how many copies there are up to its end */
};

struct Warp {
  int arrived = 0;
  const char *operation = nullptr; /* of the threads that have arrived … */
  int line = 0;                    /* … and where it is in the source */
  Lanes lanes[2];
};

struct Scheduler {
  Stack own; /* of the launching thread */
  std::vector<std::unique_ptr<Stack>> stacks;
  std::vector<Stack *> idle; /* stacks without a thread */
  Thread threads[MAX_THREADS];
  State states[MAX_THREADS];
  std::vector<Warp> warps;
  int count = 0, running = NOBODY, at_barrier = 0, done = 0; /* threads */
  uint64_t barriers = 0; /* of the block, that all its threads have reached */
  int line = 0;          /* at_line */
  bool far_ahead = false;
  int warp = 0;                                 /* whose turn it is … */
  int turn[LANES], turn_count = 0, turn_at = 0; /* … and its threads that run in this turn */
  const Body *body = nullptr;
  char *shared = nullptr;
  uint64_t random = 0x9e3779b97f4a7c15u;
};
Scheduler scheduler;

/* xorshift64*, which is random enough for an order. */
unsigned draw(unsigned limit)
{
  uint64_t x = scheduler.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  scheduler.random = x;
  return (unsigned)(x * 0x2545f4914f6cdd1du >> 32) % limit;
}

Thread &current()
{
  return scheduler.threads[scheduler.running];
}

[[noreturn]] void report_deadlock()
{
  fprintf(stderr, "emulation: threads wait for each other forever:\n");
  for (int i = 0; i < scheduler.count; i++) {
    static const char *const names[] = {"ready", "at __syncthreads", "in", "waits at", "ended"};
    const Thread *thread = &scheduler.threads[i];
    const State state = scheduler.states[i];
    const bool named = state == IN_WARP || state == WAITING;
    if (i > 0 && state == scheduler.states[i - 1] &&
        (!named || thread->operation == thread[-1].operation))
      continue;
    fprintf(stderr, "  thread %d %s %s\n", i, names[state], named ? thread->operation : "");
  }
  stop("block (%u, %u, %u): not all threads reach a barrier or an operation of a warp",
       self->block.x, self->block.y, self->block.z);
}

/* ---- who runs next ---- */

/* Makes the turn of a warp from its threads that can run now, in a drawn order. */
void collect_ready(int warp)
{
  const int last = std::min((warp + 1) * LANES, scheduler.count);
  int *turn = scheduler.turn, count = 0;
  for (int i = warp * LANES; i < last; i++) {
    if (scheduler.states[i] == WAITING) {
      const Thread &thread = scheduler.threads[i];
      if (thread.condition(thread.condition_context)) scheduler.states[i] = READY;
    }
    if (scheduler.states[i] == READY) turn[count++] = i;
  }
  for (int i = count; i > 1; i--) std::swap(turn[i - 1], turn[draw((unsigned)i)]);
  scheduler.turn_count = count;
  scheduler.turn_at = 0;
}

/* Draws which warp has the next turn. In half of the blocks a warp continues for as long as it can,
 * and so gets as far ahead of the others as barriers allow. In the other blocks the next warp is
 * drawn now and then. */
void draw_turn()
{
  const unsigned warps = (unsigned)scheduler.warps.size();
  if (!scheduler.far_ahead && draw(4) == 0) scheduler.warp = (int)draw(warps);
  collect_ready(scheduler.warp);
  if (scheduler.turn_count > 0) return;
  const unsigned first =
      draw(warps); /* another warp: a drawn one, or the next after it that can run */
  for (unsigned i = 0; i < warps && scheduler.turn_count == 0; i++) {
    scheduler.warp = (int)((first + i) % warps);
    collect_ready(scheduler.warp);
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

/* ---- stacks: a thread has one from its first to its last instruction ---- */

void live();

/* Stacks begin at different lines of their pages; otherwise they would compete for the same lines
 * of the cache. */
std::unique_ptr<Stack> make_stack(size_t number)
{
  const size_t bytes = STACK_BYTES + 2 * PAGE_BYTES;
  char *memory = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, PAGE_BYTES, PROT_NONE) != 0)
    stop("no memory for a thread's stack");
  auto stack = std::make_unique<Stack>();
  stack_make(*stack, memory + PAGE_BYTES, STACK_BYTES + number * 17 * LINE_BYTES % PAGE_BYTES,
             live);
  return stack;
}

Stack *idle_stack()
{
  if (scheduler.idle.empty()) {
    scheduler.stacks.push_back(make_stack(scheduler.stacks.size()));
    return scheduler.stacks.back().get();
  }
  Stack *stack = scheduler.idle.back();
  scheduler.idle.pop_back();
  return stack;
}

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
  if (stack == nullptr) stack = current().stack = idle_stack();
  if (stack != &here) stack_switch(here, *stack);
}

/* Returns when it is the calling thread's turn again. */
void give_way()
{
  go_to(*current().stack, next_thread());
}

/* Fills the stack with NaN where a kernel's locals will be. Under ASan they are elsewhere. */
__attribute__((noinline)) void fill_locals()
{
#if !defined(__SANITIZE_ADDRESS__)
  void *locals = alloca(LOCALS_BYTES);
  memset(locals, 0xff, LOCALS_BYTES);
  asm volatile("" : : "r"(locals) : "memory");
#endif
}

/* Runs on a stack: one thread after the other. */
void live()
{
  for (;;) {
    fill_locals();
    scheduler.body->call(scheduler.body->context);
    Stack *here = current().stack;
    current().copies.clear(); /* copies that nobody waited for never arrive */
    current().commits.clear();
    scheduler.states[scheduler.running] = DONE;
    scheduler.done++;
    const int next = next_thread();
    if (next != NOBODY && scheduler.threads[next].stack == nullptr) {
      choose(next);
      current().stack = here;
    } else {
      scheduler.idle.push_back(here);
      go_to(*here, next);
    }
  }
}

/* ---- launches ---- */

void begin_launch(dim3 grid, dim3 block, unsigned threads, size_t shared_bytes)
{
  scheduler.random = order_seed() * 0x9e3779b97f4a7c15u + 1;
  scheduler.count = (int)threads;
  scheduler.warps.resize((threads + LANES - 1) / LANES);
  const size_t room = (shared_bytes + GUARD_BYTES + 127) / 128 * 128;
  scheduler.shared = (char *)aligned_alloc(128, room);
  if (scheduler.shared == nullptr) stop("no memory for %zu bytes of shared memory", shared_bytes);
  memset(scheduler.shared + shared_bytes, GUARD, room - shared_bytes);
  POISON(scheduler.shared + shared_bytes, room - shared_bytes);
  for (unsigned t = 0; t < threads; t++)
    scheduler.threads[t].self = {dim3(t % block.x, t / block.x % block.y, t / block.x / block.y),
                                 dim3(),
                                 grid,
                                 block,
                                 scheduler.shared,
                                 shared_bytes};
  stack_of_caller(scheduler.own);
}

void end_launch(size_t shared_bytes)
{
  const size_t room = (shared_bytes + GUARD_BYTES + 127) / 128 * 128;
  UNPOISON(scheduler.shared, room);
  for (size_t i = shared_bytes; i < room; i++) {
    if (scheduler.shared[i] != GUARD)
      stop("a write %zu bytes beyond the end of %zu bytes of shared memory", i - shared_bytes,
           shared_bytes);
  }
  free(scheduler.shared);
  self = nullptr;
}

/* Runs the threads of a block until all have ended. */
void run_block(dim3 at, size_t shared_bytes)
{
  scheduler.done = scheduler.at_barrier = 0;
  scheduler.barriers = 0;
  memset(scheduler.shared, 0xff, shared_bytes); /* NaN, as float, double and bf16 */
  for (Warp &warp : scheduler.warps) warp.arrived = 0;
  for (int i = 0; i < scheduler.count; i++) {
    Thread &thread = scheduler.threads[i];
    thread.self.block = at;
    thread.stack = nullptr;
    thread.exchanges = 0;
  }
  memset(scheduler.states, READY, (size_t)scheduler.count);
  scheduler.far_ahead = draw(2) == 0;
  scheduler.warp = (int)draw((unsigned)scheduler.warps.size());
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
  if (shared_bytes > shared_of_card()) stop("%zu bytes of shared memory", shared_bytes);
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

int lane()
{
  return (int)((unsigned)scheduler.running % LANES);
}

int thread()
{
  return scheduler.running;
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
  scheduler.states[scheduler.running] = WAITING;
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
  const int first = scheduler.running / LANES * LANES;
  current().line = pop_line();
  for (int i = first; i < std::min(first + LANES, scheduler.count); i++) {
    const int line = scheduler.threads[i].line;
    if (scheduler.states[i] == AT_BARRIER && line != current().line)
      stop("threads of a warp meet at different __syncthreads: lines %d and %d", line,
           current().line);
  }
  scheduler.states[scheduler.running] = AT_BARRIER;
  if (++scheduler.at_barrier == scheduler.count) {
    scheduler.at_barrier = 0;
    scheduler.barriers++;
    memset(scheduler.states, READY, (size_t)scheduler.count);
  }
  give_way();
}

const Lanes &warp_exchange(const char *what, const uint64_t *words, int count)
{
  return warp_compute(what, words, count, nullptr);
}

const Lanes &warp_compute(const char *what, const uint64_t *words, int count,
                          void (*compute)(Lanes &lanes))
{
  const int first = scheduler.running / LANES * LANES;
  const int width = std::min((int)LANES, scheduler.count - first);
  if (width < LANES) stop("%s in a warp of %d threads", what, width);
  Thread &thread = current();
  Warp &warp = scheduler.warps[(size_t)(scheduler.running / LANES)];
  Lanes &lanes = warp.lanes[thread.exchanges++ % 2];
  for (int i = 0; i < count; i++) lanes[scheduler.running - first][i] = words[i];
  const int line = pop_line();
  scheduler.states[scheduler.running] = IN_WARP;
  thread.operation = what;
  if (warp.arrived++ == 0) warp.operation = what, warp.line = line;
  if (what != warp.operation && strcmp(what, warp.operation) != 0)
    stop("threads of a warp meet in different operations: %s and %s", warp.operation, what);
  if (line != warp.line)
    stop("threads of a warp meet in %s at different places: lines %d and %d", what, warp.line,
         line);
  if (warp.arrived == LANES) {
    warp.arrived = 0;
    memset(scheduler.states + first, READY, LANES);
    if (compute != nullptr) compute(lanes);
    count_exchange();
  }
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
