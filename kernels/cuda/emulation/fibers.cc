/* The emulation's threads: fibers, a scheduler that draws who runs, barriers, exchanges in a warp
 * and late copies. See emulation.h. */
#include <algorithm>
#include <cstdarg>
#include <memory>
#include <vector>

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "kernels/cuda/emulation/emulation.h"
#include "kernels/cuda/emulation/hopper.h"

extern "C" {
#include "kernels/cuda/cuda.h"
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
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
  LOCALS_BYTES = 8 << 10, /* of a stack, NaN when a thread begins */
  MAX_SHARED_BYTES = 227 << 10,
  GUARD_BYTES = 64
};
constexpr char GUARD = 0x5a;

struct Copy {
  void *to;
  const void *from;
  int bytes, valid_bytes;
};

enum class State { READY, AT_BARRIER, IN_WARP, WAITING, DONE };

struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool begun = false;
  char *stack = nullptr;
  void *fake_stack = nullptr; /* ASan's */
  State state = State::DONE;
  const char *operation = nullptr;            /* while IN_WARP or WAITING */
  bool (*condition)(void *context) = nullptr; /* what it is WAITING for */
  void *condition_context = nullptr;
  uint64_t exchanges = 0; /* of the warp so far: which half of the slots is in use */
  Self self;
  std::vector<Copy> open;                /* not committed */
  std::vector<std::vector<Copy>> groups; /* committed, oldest first */
};

struct Warp {
  int arrived = 0;
  Lanes lanes[2];
};

struct Scheduler {
  ucontext_t context;
  jmp_buf place;
  void *fake_stack = nullptr;
  const void *stack_bottom = nullptr;
  size_t stack_size = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  int threads = 0, running = 0, at_barrier = 0, done = 0;
  const Body *body = nullptr;
  char *shared = nullptr;
  uint64_t random = 0x9e3779b97f4a7c15u;
};
Scheduler scheduler;
uint64_t seed_of_launches = 1; /* of the orders */

/* xorshift64*: the order needs no more. */
uint64_t draw(uint64_t limit)
{
  uint64_t x = scheduler.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  scheduler.random = x;
  return (x * 0x2545f4914f6cdd1du >> 32) % limit;
}

Fiber &current()
{
  return *scheduler.fibers[(size_t)scheduler.running];
}

/* Switching stacks. swapcontext is what ASan follows, at two system calls a switch; without ASan
 * _longjmp goes where _setjmp was called, on whatever stack that is. */
#if defined(__SANITIZE_ADDRESS__)
void to_scheduler()
{
  Fiber &fiber = current();
  __sanitizer_start_switch_fiber(fiber.state == State::DONE ? nullptr : &fiber.fake_stack,
                                 scheduler.stack_bottom, scheduler.stack_size);
  swapcontext(&fiber.context, &scheduler.context);
  __sanitizer_finish_switch_fiber(current().fake_stack, nullptr, nullptr);
}

void switch_to(Fiber &fiber)
{
  __sanitizer_start_switch_fiber(&scheduler.fake_stack, fiber.stack, STACK_BYTES);
  swapcontext(&scheduler.context, &fiber.context);
  __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
}
#else
void to_scheduler()
{
  if (_setjmp(current().place) == 0) _longjmp(scheduler.place, 1);
}

void switch_to(Fiber &fiber)
{
  if (_setjmp(scheduler.place) != 0) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}
#endif

void to_fiber(int index)
{
  scheduler.running = index;
  self = &current().self;
  switch_to(current());
}

void fiber_main()
{
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack_bottom, &scheduler.stack_size);
#endif
  scheduler.body->call(scheduler.body->context);
  Fiber &fiber = current();
  fiber.open.clear(); /* copies that nobody waited for never arrive */
  fiber.groups.clear();
  fiber.state = State::DONE;
  scheduler.done++;
  to_scheduler();
}

void begin_fiber(Fiber &fiber)
{
  if (fiber.stack == nullptr) {
    fiber.stack = (char *)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber.stack == MAP_FAILED) stop("no memory for a fiber's stack");
  }
#if !defined(__SANITIZE_ADDRESS__)
  memset(fiber.stack + STACK_BYTES - LOCALS_BYTES, 0xff, LOCALS_BYTES);
#endif
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
  fiber.fake_stack = nullptr;
  fiber.begun = false;
  fiber.state = State::READY;
  fiber.exchanges = 0;
}

[[noreturn]] void report_deadlock()
{
  fprintf(stderr, "emulation: threads wait for each other for ever:\n");
  for (int i = 0; i < scheduler.threads; i++) {
    const Fiber &fiber = *scheduler.fibers[(size_t)i];
    static const char *const names[] = {"ready", "at __syncthreads", "in", "waits at", "ended"};
    const bool named = fiber.state == State::IN_WARP || fiber.state == State::WAITING;
    if (i > 0 && fiber.state == scheduler.fibers[(size_t)i - 1]->state &&
        (!named || fiber.operation == scheduler.fibers[(size_t)i - 1]->operation))
      continue;
    fprintf(stderr, "  thread %d %s %s\n", i, names[(int)fiber.state],
            named ? fiber.operation : "");
  }
  stop("block (%u, %u, %u): a barrier or a warp's operation that not all threads reach",
       self->block.x, self->block.y, self->block.z);
}

/* A warp's threads that may run now, in an order that is drawn. */
void collect_ready(int warp, std::vector<int> &ready)
{
  ready.clear();
  const int last = std::min((warp + 1) * LANES, scheduler.threads);
  for (int i = warp * LANES; i < last; i++) {
    Fiber &fiber = *scheduler.fibers[(size_t)i];
    if (fiber.state == State::WAITING && fiber.condition(fiber.condition_context))
      fiber.state = State::READY;
    if (fiber.state == State::READY) ready.push_back(i);
  }
  for (size_t i = ready.size(); i > 1; i--) std::swap(ready[i - 1], ready[draw(i)]);
}

/* Threads run until all have ended. In half of the blocks a warp goes on for as long as it can, so
 * that it is as far ahead of the others as barriers let it be; in the others warps take turns, and
 * who comes next is drawn. */
void run_block()
{
  std::vector<int> ready;
  const int warps = (int)scheduler.warps.size();
  const bool far_ahead = draw(2) == 0;
  int warp = (int)draw((uint64_t)warps);
  while (scheduler.done < scheduler.threads) {
    if (!far_ahead && draw(4) == 0) warp = (int)draw((uint64_t)warps);
    collect_ready(warp, ready);
    if (ready.empty()) { /* another one: any, and those behind it */
      const int first = (int)draw((uint64_t)warps);
      for (int i = 0; i < warps && ready.empty(); i++) {
        warp = (first + i) % warps;
        collect_ready(warp, ready);
      }
      if (ready.empty()) report_deadlock();
    }
    for (const int index : ready) to_fiber(index);
  }
}

void begin_block(dim3 grid, dim3 block, unsigned index, size_t shared_bytes)
{
  scheduler.done = scheduler.at_barrier = 0;
  memset(scheduler.shared, 0xff, shared_bytes); /* NaN, as float, double and bf16 */
  for (Warp &warp : scheduler.warps) warp.arrived = 0;
  for (int i = 0; i < scheduler.threads; i++) {
    Fiber &fiber = *scheduler.fibers[(size_t)i];
    const unsigned t = (unsigned)i;
    fiber.self = {dim3(t % block.x, t / block.x % block.y, t / block.x / block.y),
                  dim3(index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y),
                  grid,
                  block,
                  scheduler.shared,
                  shared_bytes};
    begin_fiber(fiber);
  }
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

uint64_t order_seed()
{
  return seed_of_launches;
}

void run(dim3 grid, dim3 block, size_t shared_bytes, const Body &body)
{
  const Reach reach;
  const unsigned blocks = grid.x * grid.y * grid.z;
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > MAX_THREADS) stop("a block of %u threads", threads);
  if (blocks == 0 || grid.y > 65535 || grid.z > 65535)
    stop("a grid of (%u, %u, %u) blocks", grid.x, grid.y, grid.z);
  if (shared_bytes > MAX_SHARED_BYTES) stop("%zu bytes of shared memory", shared_bytes);
  scheduler.random = seed_of_launches * 0x9e3779b97f4a7c15u + 1;
  scheduler.body = &body;
  scheduler.threads = (int)threads;
  scheduler.warps.resize((threads + LANES - 1) / LANES);
  while (scheduler.fibers.size() < threads) scheduler.fibers.push_back(std::make_unique<Fiber>());
  const size_t room = (shared_bytes + GUARD_BYTES + 127) / 128 * 128;
  scheduler.shared = (char *)aligned_alloc(128, room);
  if (scheduler.shared == nullptr) stop("no memory for %zu bytes of shared memory", shared_bytes);
  memset(scheduler.shared + shared_bytes, GUARD, room - shared_bytes);
  POISON(scheduler.shared + shared_bytes, room - shared_bytes);
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; i++) order[i] = i;
  for (size_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[draw(i)]);
  for (const unsigned index : order) {
    begin_block(grid, block, index, shared_bytes);
    hopper_block_begins(threads, seed_of_launches);
    run_block();
    hopper_block_ends();
  }
  UNPOISON(scheduler.shared, room);
  for (size_t i = shared_bytes; i < room; i++) {
    if (scheduler.shared[i] != GUARD)
      stop("a write %zu bytes behind %zu bytes of shared memory", i - shared_bytes, shared_bytes);
  }
  free(scheduler.shared);
  self = nullptr;
}

int lane()
{
  return scheduler.running % LANES;
}

int thread()
{
  return scheduler.running;
}

void let_others_run()
{
  to_scheduler(); /* ready all the while */
}

void wait_until(const char *what, bool (*condition)(void *context), void *context)
{
  Fiber &fiber = current();
  if (condition(context)) return;
  fiber.state = State::WAITING;
  fiber.operation = what;
  fiber.condition = condition;
  fiber.condition_context = context;
  to_scheduler();
}

void block_barrier()
{
  Fiber &fiber = current();
  fiber.state = State::AT_BARRIER;
  if (++scheduler.at_barrier == scheduler.threads) {
    scheduler.at_barrier = 0;
    for (int i = 0; i < scheduler.threads; i++) scheduler.fibers[(size_t)i]->state = State::READY;
  }
  to_scheduler();
}

const Lanes &warp_exchange(const char *what, const uint64_t *words, int count)
{
  return warp_compute(what, words, count, nullptr);
}

const Lanes &warp_compute(const char *what, const uint64_t *words, int count,
                          void (*compute)(Lanes &lanes))
{
  Fiber &fiber = current();
  const int first = scheduler.running / LANES * LANES;
  const int width = std::min((int)LANES, scheduler.threads - first);
  if (width < LANES) stop("%s in a warp of %d threads", what, width);
  Warp &warp = scheduler.warps[(size_t)(scheduler.running / LANES)];
  Lanes &lanes = warp.lanes[fiber.exchanges++ % 2];
  memcpy(lanes[scheduler.running - first], words, (size_t)count * sizeof *words);
  fiber.state = State::IN_WARP;
  fiber.operation = what;
  if (++warp.arrived == width) {
    warp.arrived = 0;
    for (int i = first; i < first + width; i++) {
      Fiber &other = *scheduler.fibers[(size_t)i];
      if (strcmp(other.operation, what) != 0)
        stop("threads of a warp meet in different operations: %s and %s", other.operation, what);
      other.state = State::READY;
    }
    if (compute != nullptr) compute(lanes);
  }
  to_scheduler();
  return lanes;
}

void copy_later(void *to, const void *from, int bytes, int valid_bytes)
{
  if (((uintptr_t)to | (uintptr_t)from) % (uintptr_t)bytes != 0)
    stop("an asynchronous copy of %d bytes is not aligned", bytes);
  memset(to, 0xff, (size_t)bytes); /* nobody may read it before the wait */
  current().open.push_back({to, from, bytes, valid_bytes});
}

void copy_commit()
{
  Fiber &fiber = current();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void copy_wait(int groups_that_may_be_left)
{
  Fiber &fiber = current();
  while ((int)fiber.groups.size() > groups_that_may_be_left) {
    for (const Copy &copy : fiber.groups.front()) make_copy(copy);
    fiber.groups.erase(fiber.groups.begin());
  }
}

} // namespace plm::emulation

extern "C" void plm_cuda_emulation_order(uint64_t seed)
{
  plm::emulation::seed_of_launches = seed;
}
