/* What checked_memory.h promises where a sanitizer brings its own malloc. */
#include "tests/support/harness/checked_memory.h"

#if !CHECKED_MEMORY
uint64_t checked_memory_taken(void)
{
  return 0;
}

long checked_memory_left(void)
{
  return 0;
}

long checked_memory_origins(uint64_t since, void **callers, size_t *sizes, long most)
{
  (void)since, (void)callers, (void)sizes, (void)most;
  return 0;
}

void checked_memory_keep(void *block)
{
  (void)block;
}

void checked_memory_fail(long at)
{
  (void)at;
}

void checked_memory_fail_here(long at)
{
  (void)at;
}

void checked_memory_begin_test(void)
{
}

void checked_memory_guard(bool on)
{
  (void)on;
}

bool checked_memory_find(const void *address, struct checked_memory_place *place)
{
  (void)address, (void)place;
  return false;
}

long checked_memory_calls(void)
{
  return 0;
}

long checked_memory_pause(void)
{
  return -1;
}

void checked_memory_resume(long at)
{
  (void)at;
}
#endif
