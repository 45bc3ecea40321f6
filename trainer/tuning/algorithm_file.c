/* Reads and writes the file of tuned algorithms. */
#include "trainer/tuning/algorithm_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/hash.h"
#include "common/base/text/text.h"
#include "common/ops/measured_folder.h"

/* MOST_LINES: a backend holds 1,024 tuned products (product_algorithms.cu). A run that takes a full
 * file still has room for its own shapes. */
enum { LIMIT_BYTES = 4 << 20, MOST_LINES = 512 };

/* The name is a hash of the first line, which names the library and the card. */
static bool file_of(const char *algorithms, char path[PLM_PATH_SIZE])
{
  char directory[PLM_PATH_SIZE], name[PLM_HASH_HEX_SIZE + 16], hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_hash_bytes(algorithms, strcspn(algorithms, "\n")), hex);
  snprintf(name, sizeof name, "products-%s", hex);
  return plm_measured_folder(directory) && plm_path_join(path, directory, name, NULL) == PLM_OK;
}

void plm_algorithm_file_load(struct plm_ops *ops)
{
  char path[PLM_PATH_SIZE], *today = NULL, *algorithms = NULL;
  struct plm_error error = {0};
  size_t size;
  if (ops->export_algorithms(ops, &today, &error) == PLM_OK && file_of(today, path) &&
      plm_file_exists(path)) {
    plm_status status = plm_file_read(path, LIMIT_BYTES, &algorithms, &size, &error);
    if (status == PLM_OK) status = ops->import_algorithms(ops, algorithms, &error);
    if (status == PLM_OK)
      plm_info("using the product algorithms in %s", path);
    else
      plm_warning("%s cannot be used, so products are tuned again: %s", path, error.what);
    if (status == PLM_FORMAT) (void)plm_path_remove(path, NULL); /* else it is kept forever */
  }
  free(today);
  free(algorithms);
}

/* The length of a line up to its last word, which says what was found for the shape before it. */
static size_t shape_length(const char *line)
{
  size_t length = strcspn(line, "\n");
  while (length > 0 && line[length - 1] != ' ') length--;
  return length;
}

static const char *next_line(const char *line)
{
  line += strcspn(line, "\n");
  return *line == '\n' ? line + 1 : line;
}

/* Whether one of the lines up to `end` is for the shape of the line `wanted`. */
static bool has_shape(const char *lines, const char *end, const char *wanted)
{
  const size_t length = shape_length(wanted);
  for (; lines < end; lines = next_line(lines))
    if (shape_length(lines) == length && memcmp(lines, wanted, length) == 0) return true;
  return false;
}

/* Appends to `mine` the lines of `file` for other shapes, the first ones first. Nothing if the file
 * is for another library or card. */
static void add_others(struct plm_text *mine, const char *file)
{
  const size_t head = strcspn(mine->data, "\n") + 1;
  if (strncmp(mine->data, file, head) != 0) return;
  const size_t own = mine->length;
  int lines = 0;
  for (const char *line = mine->data + head; *line != '\0'; line = next_line(line)) lines++;
  for (const char *line = file + head; *line != '\0' && lines < MOST_LINES;
       line = next_line(line)) {
    if (has_shape(mine->data + head, mine->data + own, line)) continue;
    plm_text_append(mine, line, (size_t)(next_line(line) - line));
    lines++;
  }
}

/* Takes turns with other runs, from reading the file to replacing it. Not every file system has
 * locks; without one, the file is written all the same. The caller closes *lock. */
static plm_status lock_file(const char *path, int *lock, struct plm_error *error)
{
  char name[PLM_PATH_SIZE];
  if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", path);
  *lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (*lock < 0) return plm_error_errno(error, "cannot open %s", name);
  int locked;
  do locked = flock(*lock, LOCK_EX);
  while (locked != 0 && errno == EINTR);
  return PLM_OK;
}

/* Adds the run's algorithms to the file at path. */
static plm_status add_to_file(const char *path, const char *algorithms, struct plm_error *error)
{
  struct plm_text text = {0};
  char *file = NULL;
  size_t size;
  int lock = -1;
  plm_text_puts(&text, algorithms);
  plm_status status = lock_file(path, &lock, error);
  if (status == PLM_OK && plm_file_read(path, LIMIT_BYTES, &file, &size, NULL) == PLM_OK)
    add_others(&text, file);
  if (status == PLM_OK) status = plm_file_replace(path, text.data, text.length, 0644, error);
  if (lock >= 0) close(lock);
  plm_text_deinit(&text);
  free(file);
  return status;
}

void plm_algorithm_file_keep(struct plm_ops *ops)
{
  char path[PLM_PATH_SIZE], directory[PLM_PATH_SIZE], *algorithms = NULL;
  struct plm_error error = {0};
  plm_status status = ops->export_algorithms(ops, &algorithms, &error);
  if (status == PLM_OK && plm_measured_folder(directory) && file_of(algorithms, path)) {
    status = plm_directory_make(directory, &error);
    if (status == PLM_OK) status = add_to_file(path, algorithms, &error);
  }
  if (status != PLM_OK)
    plm_warning("the product algorithms could not be saved for later runs: %s", error.what);
  free(algorithms);
}
