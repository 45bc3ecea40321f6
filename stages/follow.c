/* Following a metrics file. Where each line read so far stood, and a hash of it, tell whether the
 * file is still the one that was read: a cut followed by new lines can leave it longer. */
#include "stages/follow.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/hash.h"

struct line_place {
  uint64_t begin, size; /* with its newline */
  uint64_t hash;
};

struct plm_follower {
  char path[PLM_PATH_SIZE];
  FILE *file;
  struct line_place *places; /* of the lines that were read */
  size_t count, capacity;
  char *line;
  size_t line_capacity;
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

/* Reads a whole line at the file's position: its size with the newline, 0 when there is none. */
static uint64_t read_line(struct plm_follower *follower)
{
  const ssize_t size = getline(&follower->line, &follower->line_capacity, follower->file);
  return size > 0 && follower->line[size - 1] == '\n' ? (uint64_t)size : 0;
}

static bool still_there(struct plm_follower *follower, const struct line_place *place)
{
  if (fseeko(follower->file, (off_t)place->begin, SEEK_SET) != 0) return false;
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

plm_status plm_follower_next(struct plm_follower *follower, const char **line,
                             struct plm_error *error)
{
  *line = NULL;
  if (follower->file == NULL) follower->file = fopen(follower->path, "re");
  if (follower->file == NULL && errno == ENOENT) return PLM_OK;
  if (follower->file == NULL) return plm_error_errno(error, "cannot open %s", follower->path);
  clearerr(follower->file);
  while (follower->count > 0 && !still_there(follower, &follower->places[follower->count - 1])) {
    follower->count--;
    clearerr(follower->file);
  }
  const uint64_t begin = end_of(follower);
  if (fseeko(follower->file, (off_t)begin, SEEK_SET) != 0)
    return plm_error_errno(error, "cannot seek in %s", follower->path);
  const uint64_t size = read_line(follower);
  if (ferror(follower->file)) return plm_error_errno(error, "cannot read %s", follower->path);
  if (size == 0) return PLM_OK;
  PLM_TRY(remember(follower, begin, size, error));
  follower->line[size - 1] = '\0';
  *line = follower->line;
  return PLM_OK;
}
