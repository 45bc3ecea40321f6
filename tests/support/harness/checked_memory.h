/* The memory of a test program. Every test program replaces malloc and its kin by functions that
 * put bytes behind each block, which nobody may write, and that remember the blocks of the program,
 * so that what a test has not released is found and named; the project's shared libraries belong
 * to the program. Most blocks of the program end at a page that nobody may access: of those that
 * one place of the program takes in a test, the first 64 and then some, up to 32 MiB each. Nobody
 * may access such a block once it is released either. Whatever reads or writes past its end or too
 * late dies at once, unless it stays within the bytes that align the end. Memory that is not yet
 * written is 0xC5. Blocks that other libraries take for themselves are passed through. A sanitizer
 * brings its own malloc: then nothing is replaced, and nothing is counted.
 *
 * Such a block is aligned as an object of its size has to be, not as any object, which C demands: a
 * block of 12 bytes begins at a multiple of 4. So reading one element too far is found. x86 and
 * aarch64 allow it. A test of code that needs the alignment of malloc calls
 * checked_memory_guard(false). */
#ifndef PLM_TESTS_SUPPORT_HARNESS_CHECKED_MEMORY_H
#define PLM_TESTS_SUPPORT_HARNESS_CHECKED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(PLM_SANITIZED)
#define CHECKED_MEMORY 0
#else
#define CHECKED_MEMORY 1
#endif

/* The number of blocks that this program has ever taken. */
uint64_t checked_memory_taken(void);
/* The number of those that are not released. */
long checked_memory_left(void);
/* The addresses in the functions that took the blocks from number `since` on (from 1) that are not
 * released, `most` at most, and the sizes of the blocks in bytes. Returns how many there are. */
long checked_memory_origins(uint64_t since, void **callers, size_t *sizes, long most);
/* The block is kept for the next test: it does not count as left. */
void checked_memory_keep(void *block);

/* A test begins: of the blocks that each place of the program takes from now on, the first ones end
 * at such a page. */
void checked_memory_begin_test(void);

/* Whether blocks of this test end at such a page. */
void checked_memory_guard(bool on);

/* The block that lies, or has lain, closest to an address that may not be accessed. */
struct checked_memory_place {
  ptrdiff_t byte; /* of the block, or before or behind it */
  size_t size;
  bool released;
  void *caller; /* an address in the function that took it */
};
/* Returns false if the address is elsewhere. */
bool checked_memory_find(const void *address, struct checked_memory_place *place);

/* Lets one call from the program fail with ENOMEM: the call `at`, counted from 0. -1: none fails,
 * and none is counted. */
void checked_memory_fail(long at);
/* The same, but only calls of this thread count. */
void checked_memory_fail_here(long at);
/* The calls since then. */
long checked_memory_calls(void);
/* Between the two, no call fails, and none is counted. */
long checked_memory_pause(void);
void checked_memory_resume(long at);

#endif
