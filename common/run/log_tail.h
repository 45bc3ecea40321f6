/* Reading a growing text file line by line. The file may be cut and written again, as a resume does
 * with metrics, or rotated, as logs are (common/base/log/log_file.h). */
#ifndef PLM_COMMON_RUN_LOG_TAIL_H
#define PLM_COMMON_RUN_LOG_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"

enum {
  PLM_TAIL_LINE_SIZE =
      1 << 17, /* a line of trainer.jsonl with the norms of a thousand layers fits */
  PLM_TAIL_SEEN = 1024,
  PLM_TAIL_MARKS = 4096,
};

/* A place up to which the file was read, and a hash of the PLM_TAIL_SEEN bytes before it, or of
 * those since the place where reading began. */
struct plm_tail_mark {
  uint64_t offset, hash;
};

struct plm_tail {
  char path[PLM_PATH_SIZE];
  uint64_t inode;                   /* of the file that is read; 0 until the first read */
  uint64_t begin, offset;           /* where reading of this file began, and how far it is */
  char partial[PLM_TAIL_LINE_SIZE]; /* the last line, until its newline comes */
  size_t partial_size;
  uint8_t seen[PLM_TAIL_SEEN]; /* what was read last, before the offset */
  size_t seen_size;
  struct plm_tail_mark marks[PLM_TAIL_MARKS]; /* the ends of the last lines that were read */
  size_t mark_count;
  /* Whether the last read found that something is gone which was read before: the file was cut
   * before that place, replaced by another one, or is missing. */
  bool cut;
  int failure; /* the errno of the last read; 0: it could read, or there is no file yet */
};

/* Starts at offset bytes; at 0, with the oldest file that it was rotated to. The file need not
 * exist yet. */
void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset);
/* Goes on at another place of the file. */
void plm_tail_move(struct plm_tail *tail, uint64_t offset);

/* Calls line() for every complete line since the last call, without the newline and cut to
 * PLM_TAIL_LINE_SIZE - 1 bytes. If the file was cut, also if it has grown since, reading goes back
 * to the end of the last line that is still there. Half of PLM_TAIL_MARKS lines, at least, are
 * remembered for that; after a cut before these, the file is read from its start. If the file was
 * rotated, the rest of the old one comes first. Reads about limit_bytes at most (0: everything).
 * True if anything was read. */
bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context);
/* Calls line() for what stands after the last newline, if there is anything. */
void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context);
/* Whether the last plm_tail_read could read the file, if there is one. */
plm_status plm_tail_check(const struct plm_tail *tail, struct plm_error *error);

/* The lines of a tail one by one. Begins with {0} and a tail that was made. */
struct plm_tail_lines {
  struct plm_tail tail;
  struct plm_text read; /* the lines of the last piece, each with a NUL */
  size_t taken;         /* bytes of them */
};
/* The next line, which stays the next one until plm_tail_take; NULL: there is none for now. */
const char *plm_tail_peek(struct plm_tail_lines *lines);
void plm_tail_take(struct plm_tail_lines *lines);
void plm_tail_lines_deinit(struct plm_tail_lines *lines);

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
