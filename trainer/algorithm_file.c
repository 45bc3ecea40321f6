/* Reads and writes the file of tuned algorithms. */
#include "trainer/algorithm_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"

enum { LIMIT_BYTES = 4 << 20 };

/* The folder; false if none is wanted or known. */
static bool folder(char path[PLM_PATH_SIZE])
{
  const char *given = getenv("PLM_ALGORITHM_CACHE");
  if (given == NULL) return plm_cache_folder("", path);
  snprintf(path, PLM_PATH_SIZE, "%s", given);
  return given[0] != '\0' && strlen(given) < PLM_PATH_SIZE;
}

/* The name is a hash of the first line, which names the library and the card. */
static bool file_of(const char *algorithms, char path[PLM_PATH_SIZE])
{
  char directory[PLM_PATH_SIZE], name[PLM_HASH_HEX_SIZE + 16], hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_hash_bytes(algorithms, strcspn(algorithms, "\n")), hex);
  snprintf(name, sizeof name, "products-%s", hex);
  return folder(directory) && plm_path_join(path, directory, name, NULL) == PLM_OK;
}

void plm_algorithm_file_take(struct plm_ops *ops)
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
  }
  free(today);
  free(algorithms);
}

void plm_algorithm_file_keep(struct plm_ops *ops)
{
  char path[PLM_PATH_SIZE], directory[PLM_PATH_SIZE], *algorithms = NULL;
  struct plm_error error = {0};
  plm_status status = ops->export_algorithms(ops, &algorithms, &error);
  if (status == PLM_OK && folder(directory) && file_of(algorithms, path)) {
    status = plm_directory_make(directory, &error);
    if (status == PLM_OK)
      status = plm_file_replace(path, algorithms, strlen(algorithms), 0644, &error);
  }
  if (status != PLM_OK)
    plm_warning("the product algorithms could not be saved for later runs: %s", error.what);
  free(algorithms);
}
