/* Blocks of memory that end at a page which nobody may access, and whose own pages nobody may
 * access once they are released: whatever reads or writes too far, or too late, dies at once. There
 * are slots of 1, 2, 4, ... pages, each followed by such a page; a block takes a slot and lies at
 * its end. Only checked_memory.c uses them. The caller makes sure that only one thread at a time is
 * in guarded_take or guarded_give_back. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_GUARDED_BLOCKS_H
#define PLM_TESTS_SUPPORT_HARNESS_GUARDED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

enum { GUARDED_PAGE = 4096, GUARDED_CLASSES = 14, GUARDED_SLOTS = 1 << 14 };

/* Reserves addresses, once. */
void guarded_reserve(void);

/* A slot for so many bytes, or -1 if none is free. fresh: it has never been used, so that it will
 * be zero. */
int guarded_take(size_t bytes, bool *fresh);
void guarded_give_back(int slot);

/* Opens the last pages of a slot, which hold so many bytes. Returns their end, or NULL if the
 * system does not let it. */
char *guarded_open(int slot, size_t bytes);
void guarded_close(int slot, size_t bytes);

/* The slot in which, or in the page behind which, the address lies, or -1. */
int guarded_slot_of(const void *address);

#endif
