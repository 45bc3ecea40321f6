/* Reading a growing text file line by line. */
#ifndef PLM_COMMON_RUN_LOG_TAIL_H
#define PLM_COMMON_RUN_LOG_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/file.h"

enum { PLM_TAIL_LINE_SIZE = 8192 };

struct plm_tail {
  char path[PLM_PATH_SIZE];
  uint64_t offset;                  /* read so far */
  char partial[PLM_TAIL_LINE_SIZE]; /* the last line, until its newline comes */
  size_t partial_size;
};

/* Starts at offset bytes. The file need not exist yet. */
void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset);

/* Calls line() for every complete line since the last call, without the newline and cut to
 * PLM_TAIL_LINE_SIZE - 1 bytes. A file that shrank is read from its start again. Reads about
 * limit_bytes at most (0: everything). True if anything was read. */
bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context);
/* Calls line() for the text after the last newline, if there is any. */
void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context);

/* Offset at which the file's last `lines` lines begin, but at least `from`. The file's size for 0
 * lines. */
uint64_t plm_tail_find(const char *path, uint64_t from, size_t lines);

#endif
