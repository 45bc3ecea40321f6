/* Reading a growing text file line by line, from its end or onward. */
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
  char partial[PLM_TAIL_LINE_SIZE]; /* a line whose end has not come */
  size_t partial_size;
};

/* Starts at offset bytes. The file need not exist yet. */
void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset);

/* Hands every complete line that came since (without its newline, cut to PLM_TAIL_LINE_SIZE) to
 * line(). A file that shrank is read again from its start. At most limit_bytes in one call (0:
 * all); true when something was handed out. */
bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context);
/* What stands after the last newline, as a line. */
void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context);

/* Offset at which the last `lines` lines begin, not before `from`; the size for 0 lines. */
uint64_t plm_tail_find(const char *path, uint64_t from, size_t lines);

#endif
