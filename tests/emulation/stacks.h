/* The stacks of the emulation's threads. */
#ifndef PLM_TESTS_EMULATION_STACKS_H
#define PLM_TESTS_EMULATION_STACKS_H

#include "tests/emulation/stack_switch.h"

namespace plm::emulation
{

/* A stack that has no thread, with which the caller may begin one. A new stack begins with the
 * entry, which is always the same. */
Stack &take_stack(void (*entry)());
void leave_stack(Stack &stack);

void stacks_launch_begins();
/* Called on the stack before each of its threads, makes NaN of where the thread's locals will be.
 */
void fill_locals(Stack &stack);

} // namespace plm::emulation

#endif
