/* Several stacks in one operating-system thread, of which one runs at a time. A switch saves what a
 * call keeps (registers, the rounding modes) and takes up the other's: by hand on x86-64 and
 * AArch64, else, or with -DPLM_STACKS_OF_UCONTEXT, by swapcontext, at two system calls a switch.
 * AddressSanitizer and ThreadSanitizer are told. */
#ifndef PLM_TESTS_EMULATION_STACK_SWITCH_H
#define PLM_TESTS_EMULATION_STACK_SWITCH_H

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(PLM_STACKS_OF_UCONTEXT)
#define PLM_STACKS_OF_UCONTEXT
#endif
#ifdef PLM_STACKS_OF_UCONTEXT
#include <ucontext.h>
#endif

namespace plm::emulation
{

struct Stack {
  const void *bottom; /* its lowest address */
  size_t bytes;
  void (*entry)(); /* NULL: the thread's own stack */
#ifdef PLM_STACKS_OF_UCONTEXT
  ucontext_t place;
#else
  void *place; /* its stack pointer, while another one runs */
#endif
  void *fake_stack; /* ASan's */
  void *fiber;      /* TSan's */
};

/* The stack that the caller runs on. */
void stack_of_caller(Stack &own);
/* A stack in this memory, which outlives it. The first switch to it calls entry, which must not
 * return. */
void stack_make(Stack &stack, void *memory, size_t bytes, void (*entry)());
/* From the one that runs to another; returns when somebody switches back. */
void stack_switch(Stack &from, Stack &to);

} // namespace plm::emulation

#endif
