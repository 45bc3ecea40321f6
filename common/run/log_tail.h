/* Reading a growing text file line by line. */
#ifndef PLM_COMMON_RUN_LOG_TAIL_H
#define PLM_COMMON_RUN_LOG_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/file.h"

/* A line of trainer.jsonl with the norms of a thousand layers fits. */
enum { PLM_TAIL_LINE_SIZE = 1 << 17, PLM_TAIL_SEEN = 256 };

struct plm_tail {
  char path[PLM_PATH_SIZE];
  uint64_t inode;                   /* of the file that is read; 0 until the first read */
  uint64_t offset;                  /* read so far */
  char partial[PLM_TAIL_LINE_SIZE]; /* the last line, until its newline comes */
  size_t partial_size;
  uint8_t seen[PLM_TAIL_SEEN]; /* what was read last, before the offset */
  size_t seen_size;
};

/* Starts at offset bytes; at 0, with the oldest file that it was rotated to. The file need not
 * exist yet. */
void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset);

/* Calls line() for every complete line since the last call, without the newline and cut to
 * PLM_TAIL_LINE_SIZE - 1 bytes. A file that was cut is read from its start again, also if it
 * has grown since: after a resume, metrics are written again. If the file was rotated
 * (common/base/log_file.h), the rest of the old one comes first. Reads about limit_bytes at most
 * (0: everything). True if anything was read. */
bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context);
/* Calls line() for what stands after the last newline, if there is anything. */
void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context);

/* Offset at which the file's last `lines` lines begin, but at least `from`. The file's size for 0
 * lines. */
uint64_t plm_tail_find(const char *path, uint64_t from, size_t lines);

/* A place in a log that may be rotated later. inode 0: before its first line. */
struct plm_tail_place {
  uint64_t inode, offset;
};
/* The end of the log at present. */
struct plm_tail_place plm_tail_end(const char *path);
/* As plm_tail_init, but starts at the last `lines` lines (SIZE_MAX: all) of a log and the files
 * that it was rotated to, and not before `from`. */
void plm_tail_init_last(struct plm_tail *tail, const char *path, struct plm_tail_place from,
                        size_t lines);

#endif
