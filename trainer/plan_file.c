/* See plan_file.h. */
#include "trainer/plan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/log.h"

enum { LIMIT_BYTES = 4 << 20 };

/* The folder; false where none is wanted or known. */
static bool folder(char path[PLM_PATH_SIZE])
{
  const char *given = getenv("PLM_PLAN_CACHE"), *cache = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  if (given != NULL) {
    snprintf(path, PLM_PATH_SIZE, "%s", given);
    return given[0] != '\0' && strlen(given) < PLM_PATH_SIZE;
  }
  if (cache != NULL && cache[0] == '/')
    return plm_path_join(path, cache, "plm-pipeline", NULL) == PLM_OK;
  return home != NULL && home[0] == '/' &&
         plm_path_join(path, home, ".cache/plm-pipeline", NULL) == PLM_OK;
}

/* The name comes from the plans' first line, which says of what library and card they are. */
static bool file_of(const char *plans, char path[PLM_PATH_SIZE])
{
  char directory[PLM_PATH_SIZE], name[PLM_HASH_HEX_SIZE + 16], hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_hash_bytes(plans, strcspn(plans, "\n")), hex);
  snprintf(name, sizeof name, "products-%s", hex);
  return folder(directory) && plm_path_join(path, directory, name, NULL) == PLM_OK;
}

void plm_plan_file_take(struct plm_ops *ops)
{
  char path[PLM_PATH_SIZE], *today = NULL, *plans = NULL;
  struct plm_error error = {0};
  size_t size;
  if (ops->export_plans(ops, &today, &error) == PLM_OK && file_of(today, path) &&
      plm_file_exists(path)) {
    plm_status status = plm_file_read(path, LIMIT_BYTES, &plans, &size, &error);
    if (status == PLM_OK) status = ops->import_plans(ops, plans, &error);
    if (status == PLM_OK)
      plm_info("plans of products taken from %s", path);
    else
      plm_warning("%s cannot be taken, products are tuned anew: %s", path, error.what);
  }
  free(today);
  free(plans);
}

void plm_plan_file_keep(struct plm_ops *ops)
{
  char path[PLM_PATH_SIZE], directory[PLM_PATH_SIZE], *plans = NULL;
  struct plm_error error = {0};
  plm_status status = ops->export_plans(ops, &plans, &error);
  if (status == PLM_OK && folder(directory) && file_of(plans, path)) {
    status = plm_directory_make(directory, &error);
    if (status == PLM_OK) status = plm_file_replace(path, plans, strlen(plans), 0644, &error);
  }
  if (status != PLM_OK) plm_warning("plans of products are not kept: %s", error.what);
  free(plans);
}
