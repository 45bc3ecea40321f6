/* See stack_switch.h. What a call must preserve: System V ABI, AMD64 supplement, "Registers";
 * Procedure Call Standard for the Arm 64-bit Architecture, "Machine Registers". */
#include "tests/emulation/stack_switch.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(PLM_STACKS_OF_UCONTEXT)
#elif defined(__x86_64__)
/* The control words of floating point, which no kernel changes, are the same on all stacks. To save
 * and load them would take a third of the time. */
asm(R"(
        .text
        .p2align 4
        .globl  plm_emulation_switch
        .hidden plm_emulation_switch
        .type   plm_emulation_switch, @function
plm_emulation_switch:
        pushq   %rbp
        pushq   %rbx
        pushq   %r12
        pushq   %r13
        pushq   %r14
        pushq   %r15
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp
        popq    %r15
        popq    %r14
        popq    %r13
        popq    %r12
        popq    %rbx
        popq    %rbp
        ret
        .size   plm_emulation_switch, . - plm_emulation_switch
)");
#elif defined(__aarch64__)
asm(R"(
        .text
        .p2align 4
        .globl  plm_emulation_switch
        .hidden plm_emulation_switch
        .type   plm_emulation_switch, %function
plm_emulation_switch:
        sub     sp, sp, #176
        stp     x19, x20, [sp, #0]
        stp     x21, x22, [sp, #16]
        stp     x23, x24, [sp, #32]
        stp     x25, x26, [sp, #48]
        stp     x27, x28, [sp, #64]
        stp     x29, x30, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        mrs     x9, fpcr
        str     x9, [sp, #160]
        mov     x10, sp
        str     x10, [x0]
        mov     sp, x1
        ldr     x9, [sp, #160]
        msr     fpcr, x9
        ldp     x19, x20, [sp, #0]
        ldp     x21, x22, [sp, #16]
        ldp     x23, x24, [sp, #32]
        ldp     x25, x26, [sp, #48]
        ldp     x27, x28, [sp, #64]
        ldp     x29, x30, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        add     sp, sp, #176
        ret
        .size   plm_emulation_switch, . - plm_emulation_switch
)");
#endif

namespace plm::emulation
{

#ifdef PLM_STACKS_ARE_SEEN
namespace
{

Stack *left, *entered; /* by the last switch */

/* What AddressSanitizer is told before a switch, and after it on the other stack. These functions
 * are not instrumented, since they begin on one stack and end on another. */
#define PLM_UNSEEN __attribute__((no_sanitize_address, no_sanitize_thread))

PLM_UNSEEN void leave(Stack &from, Stack &to)
{
  left = &from;
  entered = &to;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
}

PLM_UNSEEN void arrive()
{
#ifdef __SANITIZE_ADDRESS__
  const void *bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(entered->fake_stack, &bottom, &bytes);
  if (left->entry == nullptr) left->bottom = bottom, left->bytes = bytes;
#endif
}

PLM_UNSEEN void begin()
{
  arrive();
  entered->entry();
  abort();
}

} // namespace
#endif

void stack_of_caller(Stack &own)
{
  own = {};
}

/* The function with which the stack begins. */
#ifndef PLM_STACKS_OF_UCONTEXT
static void (*entry_of(const Stack &stack))()
{
#ifdef PLM_STACKS_ARE_SEEN
  (void)stack;
  return begin;
#else
  return stack.entry;
#endif
}
#endif

#if defined(PLM_STACKS_OF_UCONTEXT)
static void prepare(Stack &stack, void *memory)
{
  getcontext(&stack.place);
  stack.place.uc_stack.ss_sp = memory;
  stack.place.uc_stack.ss_size = stack.bytes;
  stack.place.uc_link = nullptr;
  makecontext(&stack.place, begin, 0);
}
#elif defined(__x86_64__)
/* Prepares the stack as plm_emulation_switch would have left it just before the first instruction
 * of the entry, where the stack pointer is 8 beyond a multiple of 16. */
static void prepare(Stack &stack, void *memory)
{
  struct Saved {
    uint64_t registers[6], entry, nowhere;
  } saved = {};
  static_assert(sizeof saved == 64, "what plm_emulation_switch saves, and a return address");
  saved.entry = reinterpret_cast<uint64_t>(entry_of(stack));
  const uintptr_t top = (reinterpret_cast<uintptr_t>(memory) + stack.bytes) / 16 * 16;
  stack.place = reinterpret_cast<void *>(top - sizeof saved);
  memcpy(stack.place, &saved, sizeof saved);
}
#elif defined(__aarch64__)
static void prepare(Stack &stack, void *memory)
{
  struct Saved {
    uint64_t registers[11], link, vectors[8], fpcr, unused;
  } saved = {};
  static_assert(sizeof saved == 176, "what plm_emulation_switch saves");
  asm volatile("mrs %0, fpcr" : "=r"(saved.fpcr));
  saved.link = reinterpret_cast<uint64_t>(entry_of(stack));
  const uintptr_t top = (reinterpret_cast<uintptr_t>(memory) + stack.bytes) / 16 * 16;
  stack.place = reinterpret_cast<void *>(top - sizeof saved);
  memcpy(stack.place, &saved, sizeof saved);
}
#endif

void stack_make(Stack &stack, void *memory, size_t bytes, void (*entry)())
{
  stack = {};
  stack.bottom = memory;
  stack.bytes = bytes;
  stack.entry = entry;
  prepare(stack, memory);
}

#ifdef PLM_STACKS_ARE_SEEN
PLM_UNSEEN void stack_switch(Stack &from, Stack &to)
{
  leave(from, to);
#ifdef PLM_STACKS_OF_UCONTEXT
  swapcontext(&from.place, &to.place);
#else
  plm_emulation_switch(&from.place, to.place);
#endif
  arrive();
}
#endif

} // namespace plm::emulation
