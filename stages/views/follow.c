/* Following a metrics file. The place and a hash of each line read so far show whether the file
 * still holds it. The file's size does not, because new lines after a cut can make the file longer
 * than before. */
#include "stages/views/follow.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/hash.h"

struct line_place {
  uint64_t begin, size; /* with its newline */
  uint64_t hash;
};

struct plm_follower {
  char path[PLM_PATH_SIZE];
  FILE *file;
  struct line_place *places; /* of the lines read so far */
  size_t count, capacity;
  char *line;
  size_t line_capacity;
  struct stat seen; /* of the file at the last check; while it is the same, no check is needed */
};

plm_status plm_follower_open(const char *path, struct plm_follower **follower,
                             struct plm_error *error)
{
  struct plm_follower *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  snprintf(opened->path, sizeof opened->path, "%s", path);
  *follower = opened;
  return PLM_OK;
}

void plm_follower_close(struct plm_follower *follower)
{
  if (follower == NULL) return;
  if (follower->file != NULL) fclose(follower->file);
  free(follower->places);
  free(follower->line);
  free(follower);
}

static uint64_t end_of(const struct plm_follower *follower)
{
  if (follower->count == 0) return 0;
  const struct line_place *last = &follower->places[follower->count - 1];
  return last->begin + last->size;
}

/* Also drops what stdio has buffered, since the file may have been truncated and written again. */
static bool go_to(struct plm_follower *follower, uint64_t place)
{
  clearerr(follower->file);
  return fflush(follower->file) == 0 && fseeko(follower->file, (off_t)place, SEEK_SET) == 0;
}

/* Reads a whole line at the file's position. Returns its size with the newline, or 0 if there is
 * none. */
static uint64_t read_line(struct plm_follower *follower)
{
  const ssize_t size = getline(&follower->line, &follower->line_capacity, follower->file);
  return size > 0 && follower->line[size - 1] == '\n' ? (uint64_t)size : 0;
}

static bool still_there(struct plm_follower *follower, const struct line_place *place)
{
  if (!go_to(follower, place->begin)) return false;
  return read_line(follower) == place->size &&
         plm_hash64_bytes(follower->line, place->size) == place->hash;
}

static plm_status remember(struct plm_follower *follower, uint64_t begin, uint64_t size,
                           struct plm_error *error)
{
  if (follower->count == follower->capacity) {
    const size_t capacity = follower->capacity != 0 ? 2 * follower->capacity : 256;
    struct line_place *places = realloc(follower->places, capacity * sizeof *places);
    if (places == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    follower->places = places;
    follower->capacity = capacity;
  }
  follower->places[follower->count++] =
      (struct line_place){begin, size, plm_hash64_bytes(follower->line, size)};
  return PLM_OK;
}

/* Whether the file's size or time differs from that at the last call. */
static bool changed(struct plm_follower *follower)
{
  struct stat now;
  const struct stat *seen = &follower->seen;
  if (fstat(fileno(follower->file), &now) != 0) return true;
  const bool same = now.st_size == seen->st_size && now.st_mtim.tv_sec == seen->st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
  follower->seen = now;
  return !same;
}

/* Forgets the lines that the file no longer holds, and goes to the end of those that it does. */
static plm_status look_back(struct plm_follower *follower, struct plm_error *error)
{
  while (follower->count > 0 && !still_there(follower, &follower->places[follower->count - 1]))
    follower->count--;
  if (!go_to(follower, end_of(follower)))
    return plm_error_errno(error, "cannot seek in %s", follower->path);
  return PLM_OK;
}

plm_status plm_follower_next(struct plm_follower *follower, const char **line,
                             struct plm_error *error)
{
  *line = NULL;
  if (follower->file == NULL) follower->file = fopen(follower->path, "re");
  if (follower->file == NULL && errno == ENOENT) return PLM_OK;
  if (follower->file == NULL) return plm_error_errno(error, "cannot open %s", follower->path);
  clearerr(follower->file);
  if (changed(follower)) PLM_TRY(look_back(follower, error));
  const uint64_t size = read_line(follower);
  if (ferror(follower->file)) return plm_error_errno(error, "cannot read %s", follower->path);
  if (size == 0) { /* part of a line may have been read; go back to its beginning */
    return go_to(follower, end_of(follower))
               ? PLM_OK
               : plm_error_errno(error, "cannot seek in %s", follower->path);
  }
  PLM_TRY(remember(follower, end_of(follower), size, error));
  follower->line[size - 1] = '\0';
  *line = follower->line;
  return PLM_OK;
}
