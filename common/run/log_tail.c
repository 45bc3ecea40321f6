/* Reading a growing file part by part. Hashes of what stood before the ends of its lines show
 * whether it still holds them. Its size does not, because new lines after a cut can make it longer
 * than before. */
#include "common/run/log_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log_file.h"
#include "common/base/numbers/hash.h"

enum { PART = 16384 };

void plm_tail_init(struct plm_tail *tail, const char *path, uint64_t offset)
{
  snprintf(tail->path, sizeof tail->path, "%s", path);
  tail->inode = 0;
  tail->failure = 0;
  tail->cut = false;
  plm_tail_move(tail, offset);
}

void plm_tail_move(struct plm_tail *tail, uint64_t offset)
{
  tail->begin = tail->offset = offset;
  tail->partial_size = tail->seen_size = tail->mark_count = 0;
}

void plm_tail_flush(struct plm_tail *tail, void (*line)(void *context, const char *text),
                    void *context)
{
  if (tail->partial_size == 0) return;
  tail->partial[tail->partial_size] = '\0';
  tail->partial_size = 0;
  line(context, tail->partial);
}

/* Remembers bytes that were read, as far as they are the last ones. */
static void see(struct plm_tail *tail, const char *bytes, size_t size)
{
  const size_t kept = size < PLM_TAIL_SEEN ? PLM_TAIL_SEEN - size : 0;
  if (tail->seen_size > kept) { /* only the end of what was seen before */
    memmove(tail->seen, tail->seen + tail->seen_size - kept, kept);
    tail->seen_size = kept;
  }
  const size_t more = size < PLM_TAIL_SEEN ? size : PLM_TAIL_SEEN;
  memcpy(tail->seen + tail->seen_size, bytes + size - more, more);
  tail->seen_size += more;
  tail->offset += size;
}

static struct plm_tail_mark mark_here(const struct plm_tail *tail)
{
  return (struct plm_tail_mark){tail->offset, plm_hash64_bytes(tail->seen, tail->seen_size)};
}

/* Forgets the older half of the marks when there is no room for another. */
static void add_mark(struct plm_tail *tail)
{
  enum { HALF = PLM_TAIL_MARKS / 2 };
  if (tail->mark_count == PLM_TAIL_MARKS) {
    memcpy(tail->marks, tail->marks + HALF, HALF * sizeof *tail->marks);
    tail->mark_count = HALF;
  }
  tail->marks[tail->mark_count++] = mark_here(tail);
}

static void log_tail_split(struct plm_tail *tail, const char *bytes, size_t size,
                           void (*line)(void *context, const char *text), void *context)
{
  while (size > 0) {
    const char *end = memchr(bytes, '\n', size);
    const size_t length = end != NULL ? (size_t)(end - bytes) : size;
    const size_t used = end != NULL ? length + 1 : length;
    size_t kept = PLM_TAIL_LINE_SIZE - 1 - tail->partial_size;
    if (kept > length) kept = length;
    memcpy(tail->partial + tail->partial_size, bytes, kept);
    tail->partial_size += kept;
    see(tail, bytes, used);
    if (end == NULL) return;
    add_mark(tail);
    tail->partial[tail->partial_size] = '\0';
    tail->partial_size = 0;
    line(context, tail->partial);
    bytes += used;
    size -= used;
  }
}

/* Whether the bytes before a place are those that were read. They become those that were seen. */
static bool still_there(struct plm_tail *tail, int file, const struct plm_tail_mark *mark)
{
  const uint64_t known = mark->offset - tail->begin;
  tail->offset = mark->offset;
  tail->seen_size = known < PLM_TAIL_SEEN ? (size_t)known : PLM_TAIL_SEEN;
  return plm_file_read_part(file, tail->seen, tail->seen_size, mark->offset - tail->seen_size) ==
             (ssize_t)tail->seen_size &&
         plm_hash64_bytes(tail->seen, tail->seen_size) == mark->hash;
}

/* Goes back to the end of the last line that the file still holds, or to its start. */
static void look_back(struct plm_tail *tail, int file, uint64_t file_size)
{
  const struct plm_tail_mark here = mark_here(tail);
  if (here.offset <= file_size && still_there(tail, file, &here)) return;
  tail->cut = true;
  tail->partial_size = 0;
  while (tail->mark_count > 0 && !still_there(tail, file, &tail->marks[tail->mark_count - 1]))
    tail->mark_count--;
  if (tail->mark_count == 0) plm_tail_move(tail, 0);
}

/* Opens log number `number` (0: the present one). Returns -1 if there is none. */
static int open_log(const char *path, unsigned number, struct stat *info)
{
  char name[PLM_PATH_SIZE];
  if (!plm_log_file_name(name, path, number)) return -1;
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file >= 0 && fstat(file, info) != 0) {
    close(file);
    return -1;
  }
  return file;
}

/* The inode of log number `number`; 0 if it is missing. */
static uint64_t inode_of(const char *path, unsigned number)
{
  char name[PLM_PATH_SIZE];
  struct stat info;
  const bool exists = plm_log_file_name(name, path, number) && stat(name, &info) == 0;
  return exists ? (uint64_t)info.st_ino : 0;
}

/* The number of the log with this inode, which is not 0; -1 if it is gone or the file is not
 * rotated at all. */
static int log_tail_number_of(const char *path, uint64_t inode)
{
  for (unsigned number = 0; number <= PLM_LOG_FILES_KEPT; number++)
    if (inode_of(path, number) == inode) return (int)number;
  return -1;
}

/* The number of the oldest log. A rotation renames the oldest file first, so for a moment the
 * numbers have a gap. */
static int log_tail_oldest(const char *path)
{
  int highest = 0;
  for (unsigned number = 1; number <= PLM_LOG_FILES_KEPT; number++)
    if (inode_of(path, number) != 0) highest = (int)number;
  return highest;
}

/* Opens the file that is to be read now. *rotated: it is not the present one, so after its end
 * another follows. */
static int open_current(struct plm_tail *tail, bool *rotated)
{
  const bool from_oldest = tail->inode == 0 && tail->offset == 0;
  struct stat info;
  int number, file, failure;
  for (;;) {
    number = 0;
    if (from_oldest)
      number = log_tail_oldest(tail->path);
    else if (tail->inode != 0)
      number = log_tail_number_of(tail->path, tail->inode);
    file = open_log(tail->path, number > 0 ? (unsigned)number : 0, &info);
    failure = errno;
    bool moved = false;
    if (from_oldest)
      moved = log_tail_oldest(tail->path) != number;
    else if (tail->inode != 0 && number >= 0)
      moved = file < 0 || (uint64_t)info.st_ino != tail->inode;
    if (!moved) break;
    if (file >= 0) close(file); /* it was rotated between the two looks */
  }
  *rotated = number > 0;
  if (file < 0) {
    tail->failure = failure != ENOENT ? failure : 0;
    tail->cut = failure == ENOENT && tail->offset > 0;
    return -1;
  }
  const bool other = tail->inode != 0 && tail->inode != (uint64_t)info.st_ino;
  if (other && inode_of(tail->path, 1) != 0) {
    plm_tail_move(tail, 0); /* it was lost */
    tail->cut = true;
  } else {
    look_back(tail, file, (uint64_t)info.st_size);
  }
  tail->inode = (uint64_t)info.st_ino;
  return file;
}

/* After the end of a rotated file: goes to the start of the one that came after it. */
static bool go_to_next(struct plm_tail *tail)
{
  struct stat info;
  for (;;) {
    const int number = log_tail_number_of(tail->path, tail->inode);
    if (number <= 0) return number < 0;
    const int next = open_log(tail->path, (unsigned)number - 1, &info);
    if (next < 0) return false; /* it is not made yet */
    close(next);
    if (log_tail_number_of(tail->path, tail->inode) != number) continue; /* rotated meanwhile */
    tail->inode = (uint64_t)info.st_ino;
    plm_tail_move(tail, 0);
    return true;
  }
}

bool plm_tail_read(struct plm_tail *tail, size_t limit_bytes,
                   void (*line)(void *context, const char *text), void *context)
{
  char part[PART];
  bool any = false, rotated = true;
  size_t total = 0;
  tail->failure = 0;
  tail->cut = false;
  while (rotated) {
    const int file = open_current(tail, &rotated);
    if (file < 0) return any;
    ssize_t size = 1;
    while (size > 0 && (limit_bytes == 0 || total < limit_bytes)) {
      size = plm_file_read_part(file, part, sizeof part, tail->offset);
      if (size < 0) tail->failure = errno;
      if (size <= 0) break;
      total += (size_t)size;
      log_tail_split(tail, part, (size_t)size, line, context);
      any = true;
    }
    close(file);
    if (size > 0 || !rotated) return any;
    plm_tail_flush(tail, line, context);
    if (!go_to_next(tail)) return any;
  }
  return any;
}

plm_status plm_tail_check(const struct plm_tail *tail, struct plm_error *error)
{
  errno = tail->failure;
  return errno == 0 ? PLM_OK : plm_error_errno(error, "cannot read %s", tail->path);
}

/* ---- one by one ---------------------------------------------------------------------------- */

static void keep_line(void *context, const char *line)
{
  struct plm_tail_lines *lines = context;
  plm_text_append(&lines->read, line, strlen(line) + 1);
}

const char *plm_tail_peek(struct plm_tail_lines *lines)
{
  if (lines->taken == lines->read.length) {
    plm_text_clear(&lines->read);
    lines->taken = 0;
    while (lines->read.length == 0) /* a long line takes several parts */
      if (!plm_tail_read(&lines->tail, 1, keep_line, lines)) break;
  }
  return lines->taken < lines->read.length ? lines->read.data + lines->taken : NULL;
}

void plm_tail_take(struct plm_tail_lines *lines)
{
  lines->taken += strlen(lines->read.data + lines->taken) + 1;
}

void plm_tail_lines_deinit(struct plm_tail_lines *lines)
{
  plm_text_deinit(&lines->read);
}

/* ---- where to begin ------------------------------------------------------------------------ */

/* plm_tail_find in an open file. *lines becomes the number of lines that were not found. */
static uint64_t find_lines(int file, uint64_t from, size_t *lines)
{
  struct stat info;
  char part[PART];
  uint64_t start = fstat(file, &info) == 0 ? (uint64_t)info.st_size : 0;
  const uint64_t size = start;
  if (start <= from) return from;
  while (start > from && *lines > 0) {
    const size_t wanted = start - from < PART ? (size_t)(start - from) : PART;
    if (plm_file_read_part(file, part, wanted, start - wanted) != (ssize_t)wanted) break;
    for (size_t i = wanted; i-- > 0;) {
      /* No line begins after a newline at the end of the file. */
      if (part[i] != '\n' || start - wanted + i + 1 == size) continue;
      if (--*lines == 0) return start - wanted + i + 1;
    }
    start -= wanted;
  }
  if (*lines > 0) --*lines; /* the first line has no newline before it */
  return start;
}

uint64_t plm_tail_find(const char *path, uint64_t from, size_t lines)
{
  struct stat info;
  const int file = open_log(path, 0, &info);
  if (file < 0) return from;
  const uint64_t start = find_lines(file, from, &lines);
  close(file);
  return start;
}

struct plm_tail_place plm_tail_end(const char *path)
{
  struct stat info;
  if (stat(path, &info) != 0) return (struct plm_tail_place){0};
  return (struct plm_tail_place){(uint64_t)info.st_ino, (uint64_t)info.st_size};
}

/* The inodes of the log and the files that it was rotated to; 0 for one that is missing. */
static void list_inodes(const char *path, uint64_t inodes[PLM_LOG_FILES_KEPT + 1])
{
  for (unsigned number = 0; number <= PLM_LOG_FILES_KEPT; number++)
    inodes[number] = inode_of(path, number);
}

static void find_start(struct plm_tail *tail, struct plm_tail_place from, size_t lines)
{
  for (unsigned number = 0; number <= PLM_LOG_FILES_KEPT; number++) {
    struct stat info;
    const int file = open_log(tail->path, number, &info);
    if (file < 0) continue; /* missing while logs are renamed */
    const bool first = (uint64_t)info.st_ino == from.inode;
    const uint64_t least = first ? from.offset : 0;
    tail->inode = (uint64_t)info.st_ino;
    plm_tail_move(tail, lines == SIZE_MAX ? least : find_lines(file, least, &lines));
    close(file);
    if (first || lines == 0) return;
  }
}

void plm_tail_init_last(struct plm_tail *tail, const char *path, struct plm_tail_place from,
                        size_t lines)
{
  enum { TRIES = 100 };
  uint64_t before[PLM_LOG_FILES_KEPT + 1], after[PLM_LOG_FILES_KEPT + 1];
  for (int i = 0; i < TRIES; i++) { /* again if the log was rotated meanwhile */
    plm_tail_init(tail, path, 0);
    list_inodes(path, before);
    find_start(tail, from, lines);
    list_inodes(path, after);
    if (memcmp(before, after, sizeof before) == 0) return;
  }
}
