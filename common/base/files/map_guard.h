/* Turns a crash in a read of a mapped file into a message. If a file is truncated while it is
 * mapped, or its disk fails, a read of the map raises SIGBUS, in whichever thread reads. While a
 * map is registered here, such a read ends the process with exit code 1 and "PATH changed or became
 * unreadable while it was read" on stderr. Other SIGBUS go to the handler that was there before. */
#ifndef PLM_COMMON_BASE_FILES_MAP_GUARD_H
#define PLM_COMMON_BASE_FILES_MAP_GUARD_H

#include <stddef.h>

/* Registers [begin, begin + size). path must stay valid until _remove. Thread-safe. If 8,192 maps
 * are registered already, this one is not guarded. */
void plm_map_guard_add(const void *begin, size_t size, const char *path);
/* To be called before munmap. */
void plm_map_guard_remove(const void *begin);

/* The exit code of a process that ends because a map became unreadable, also a corpus
 * (common/corpus/corpus_guard.h): 1, and in a stage that of PLM_IO. Set before the first map. */
extern int plm_guard_exit_code;

#endif
