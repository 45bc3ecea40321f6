/* Several stacks in one operating-system thread, of which one runs at a time. A switch saves what a
 * function call must preserve (registers and rounding modes) and restores that of the other stack.
 * On x86-64 and AArch64 this is assembly; elsewhere, or with -DPLM_STACKS_OF_UCONTEXT, it is
 * swapcontext, which takes two system calls.
 *
 * AddressSanitizer is told about each switch. ThreadSanitizer is not: it sees one thread, which is
 * what runs. The Makefile therefore compiles this code without ThreadSanitizer's record of function
 * calls, which would have to be switched along with the stack. */
#ifndef PLM_TESTS_EMULATION_STACK_SWITCH_H
#define PLM_TESTS_EMULATION_STACK_SWITCH_H

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(PLM_STACKS_OF_UCONTEXT)
#define PLM_STACKS_OF_UCONTEXT
#endif
#ifdef PLM_STACKS_OF_UCONTEXT
#include <ucontext.h>
#endif

/* Somebody has to be told about each switch. */
#if defined(PLM_STACKS_OF_UCONTEXT) || defined(__SANITIZE_ADDRESS__)
#define PLM_STACKS_ARE_SEEN
#endif

#ifndef PLM_STACKS_OF_UCONTEXT
/* Saves the stack pointer in *from and continues where `to` was saved. */
extern "C" void plm_emulation_switch(void **from, void *to);
#endif

namespace plm::emulation
{

struct Stack {
  const void *bottom; /* its lowest address */
  size_t bytes;
  void (*entry)(); /* NULL for the thread's own stack */
#ifdef PLM_STACKS_OF_UCONTEXT
  ucontext_t place;
#else
  void *place; /* its stack pointer while another stack runs */
#endif
  void *fake_stack; /* of ASan */
  uint64_t launch;  /* stacks.cc: the last one of which it had a thread */
};

/* The stack that the caller runs on. */
void stack_of_caller(Stack &own);
/* Makes a stack in this memory, which must outlive it. The first switch to it calls entry, which
 * must not return. */
void stack_make(Stack &stack, void *memory, size_t bytes, void (*entry)());
/* Switches from the running stack to another one. Returns when somebody switches back. */
#ifdef PLM_STACKS_ARE_SEEN
void stack_switch(Stack &from, Stack &to);
#else
static inline void stack_switch(Stack &from, Stack &to)
{
  plm_emulation_switch(&from.place, to.place);
}
#endif

} // namespace plm::emulation

#endif
