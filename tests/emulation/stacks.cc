/* See stacks.h. */
#include "tests/emulation/stacks.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <alloca.h>
#include <sys/mman.h>

#include "tests/emulation/emulation.h"

namespace plm::emulation
{

namespace
{

enum {
  STACK_BYTES = 256 << 10,
  PAGE_BYTES = 4096, /* closed, at the end of a stack */
  LINE_BYTES = 64,
  LOCALS_BYTES = 4 << 10 /* of a stack, NaN when a thread begins; kernels use 1 to 3 KiB */
};

std::vector<std::unique_ptr<Stack>> stacks;
std::vector<Stack *> idle; /* stacks without a thread */
uint64_t launches;
int locals_used; /* words of a stack, by threads of this launch */

/* Stacks begin at different lines of their pages; otherwise they would compete for the same lines
 * of the cache. */
std::unique_ptr<Stack> make_stack(size_t number, void (*entry)())
{
  const size_t bytes = STACK_BYTES + 2 * PAGE_BYTES;
  char *memory = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, PAGE_BYTES, PROT_NONE) != 0)
    stop("no memory for a thread's stack");
  auto stack = std::make_unique<Stack>();
  stack_make(*stack, memory + PAGE_BYTES, STACK_BYTES + number * 17 * LINE_BYTES % PAGE_BYTES,
             entry);
  return stack;
}

} // namespace

Stack &take_stack(void (*entry)())
{
  if (idle.empty()) {
    stacks.push_back(make_stack(stacks.size(), entry));
    return *stacks.back();
  }
  Stack *stack = idle.back();
  idle.pop_back();
  return *stack;
}

void leave_stack(Stack &stack)
{
  idle.push_back(&stack);
}

void stacks_launch_begins()
{
  launches++;
  locals_used = 0;
}

#ifdef __SANITIZE_ADDRESS__ /* then locals are elsewhere */
void fill_locals(Stack &)
{
}
#else
static bool is_filled(const uint64_t *words, int count)
{
  uint64_t all = ~UINT64_C(0);
  for (int i = 0; i < count; i++) all &= words[i];
  return all == ~UINT64_C(0);
}

/* Fills the stack with NaN where a kernel's locals will be: all of it before the stack's first
 * thread of a launch, later as much as threads of the launch have used. Whether they used more is
 * seen by what is behind that. */
__attribute__((noinline)) void fill_locals(Stack &stack)
{
  enum { COUNT = LOCALS_BYTES / sizeof(uint64_t), BEHIND = 32 };
  uint64_t *locals = (uint64_t *)alloca(LOCALS_BYTES);
  asm volatile("" : "+r"(locals) : : "memory");
  int used = COUNT;
  if (stack.launch == launches) {
    used = locals_used;
    const int behind = std::min((int)BEHIND, COUNT - used);
    if (!is_filled(locals + COUNT - used - behind, behind)) {
      for (used = COUNT; locals[COUNT - used] == ~UINT64_C(0); used--) continue;
      locals_used = used;
    }
  }
  stack.launch = launches;
  memset(locals + COUNT - used, 0xff, (size_t)used * sizeof *locals);
  asm volatile("" : : "r"(locals) : "memory");
}
#endif

} // namespace plm::emulation
