/* Names of checkpoints, verifying one, and listing those of a folder. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/run/run.h"

/* ---- names ------------------------------------------------------------------------------------*/

void plm_checkpoint_name(uint64_t step, char name[PLM_CHECKPOINT_NAME_SIZE])
{
  snprintf(name, PLM_CHECKPOINT_NAME_SIZE, "step_%08" PRIu64, step);
}

bool plm_checkpoint_parse_name(const char *name, uint64_t *step)
{
  char again[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t found;
  if (sscanf(name, "step_%20" SCNu64, &found) != 1) return false;
  plm_checkpoint_name(found, again);
  if (strcmp(name, again) != 0) return false;
  *step = found;
  return true;
}

/* The last part of a path, without trailing slashes. */
static void checkpoint_verify_last_part(const char *path, char part[PLM_CHECKPOINT_NAME_SIZE])
{
  size_t end = strlen(path);
  while (end > 0 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') begin--;
  snprintf(part, PLM_CHECKPOINT_NAME_SIZE, "%.*s", (int)(end - begin), path + begin);
}

/* ---- verifying --------------------------------------------------------------------------------*/

static const struct plm_manifest_file *listed(const struct plm_manifest *manifest, const char *name)
{
  for (size_t i = 0; i < manifest->count; i++)
    if (strcmp(manifest->files[i].name, name) == 0) return &manifest->files[i];
  return NULL;
}

static plm_status check_nothing_else(const char *directory, const struct plm_manifest *manifest,
                                     struct plm_error *error)
{
  DIR *folder = opendir(directory);
  if (!folder) return plm_error_errno(error, "cannot open the folder %s", directory);
  const struct dirent *entry;
  plm_status status;
  while ((status = plm_directory_next(folder, directory, &entry, error)) == PLM_OK && entry) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "MANIFEST") == 0)
      continue;
    if (listed(manifest, name)) continue;
    status = plm_error_set(error, PLM_CORRUPT, "%.200s is not in the MANIFEST", name);
    break;
  }
  closedir(folder);
  return status;
}

static plm_status check_file(const char *directory, const struct plm_manifest_file *file,
                             struct plm_advance *advance, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct stat info;
  struct plm_hash hash;
  uint64_t size;
  PLM_TRY(plm_path_join(path, directory, file->name, error));
  if (lstat(path, &info) != 0) {
    if (errno == ENOENT) return plm_error_set(error, PLM_CORRUPT, "%s is missing", file->name);
    return plm_error_errno(error, "cannot stat %s", file->name);
  }
  if (!S_ISREG(info.st_mode))
    return plm_error_set(error, PLM_CORRUPT, "%s is not a regular file", file->name);
  if ((uint64_t)info.st_size != file->size)
    return plm_error_set(error, PLM_CORRUPT, "%s has %llu bytes, not %llu", file->name,
                         (unsigned long long)info.st_size, (unsigned long long)file->size);
  PLM_TRY(plm_hash_file(path, &hash, &size, advance, error));
  if (size != file->size || !plm_hash_equal(hash, file->hash))
    return plm_error_set(error, PLM_CORRUPT, "%s differs from what was written (XXH3-128)",
                         file->name);
  return PLM_OK;
}

static plm_status checkpoint_verify_check_folder(const char *directory,
                                                 const struct plm_manifest *manifest,
                                                 struct plm_advance *advance,
                                                 struct plm_error *error)
{
  static const char *const required[] = {"model.safetensors", "config.json"};
  char name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t step, bytes = 0;
  checkpoint_verify_last_part(directory, name);
  if (plm_checkpoint_parse_name(name, &step) && step != manifest->step)
    return plm_error_set(error, PLM_CORRUPT, "the MANIFEST is that of step %llu",
                         (unsigned long long)manifest->step);
  for (size_t i = 0; i < sizeof required / sizeof *required; i++)
    if (!listed(manifest, required[i]))
      return plm_error_set(error, PLM_CORRUPT, "the MANIFEST does not list %s", required[i]);
  PLM_TRY(check_nothing_else(directory, manifest, error));
  for (size_t i = 0; i < manifest->count; i++) bytes += manifest->files[i].size;
  plm_advance_begin(advance, bytes);
  for (size_t i = 0; i < manifest->count; i++)
    PLM_TRY(check_file(directory, &manifest->files[i], advance, error));
  return PLM_OK;
}

plm_status plm_checkpoint_verify(const char *directory, uint64_t *step, struct plm_hash *identity,
                                 struct plm_advance *advance, struct plm_error *error)
{
  struct plm_manifest *manifest = plm_alloc(sizeof *manifest);
  plm_status status = plm_manifest_read(directory, manifest, error);
  if (status == PLM_OK) {
    status = checkpoint_verify_check_folder(directory, manifest, advance, error);
    if (status != PLM_OK) plm_error_where(error, "%s", directory);
  }
  if (status == PLM_OK && step) *step = manifest->step;
  if (status == PLM_OK && identity) {
    const bool known = plm_manifest_identity(manifest, identity);
    PLM_ASSERT(known); /* checkpoint_verify_check_folder requires it */
  }
  free(manifest);
  return status;
}

/* ---- listing ----------------------------------------------------------------------------------*/

static int compare_steps(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* An entry that is gone meanwhile is no folder. */
static plm_status is_folder(const char *parent, const char *name, bool *folder,
                            struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct stat info;
  PLM_TRY(plm_path_join(path, parent, name, error));
  const bool found = lstat(path, &info) == 0;
  *folder = found && S_ISDIR(info.st_mode);
  if (found || errno == ENOENT) return PLM_OK;
  return plm_error_errno(error, "cannot stat %s", path);
}

plm_status plm_checkpoint_list(const char *checkpoints_directory, uint64_t **steps, size_t *count,
                               struct plm_error *error)
{
  size_t capacity = 16;
  *count = 0;
  *steps = NULL;
  DIR *folder = opendir(checkpoints_directory);
  if (!folder) return plm_error_errno(error, "cannot open the folder %s", checkpoints_directory);
  uint64_t *found = plm_alloc(capacity * sizeof *found), step;
  const struct dirent *entry;
  plm_status status = PLM_OK;
  bool taken;
  for (;;) {
    status = plm_directory_next(folder, checkpoints_directory, &entry, error);
    if (status != PLM_OK || entry == NULL) break;
    if (!plm_checkpoint_parse_name(entry->d_name, &step)) continue;
    status = is_folder(checkpoints_directory, entry->d_name, &taken, error);
    if (status != PLM_OK) break;
    if (!taken) continue;
    if (*count == capacity) found = plm_realloc(found, (capacity *= 2) * sizeof *found);
    found[(*count)++] = step;
  }
  closedir(folder);
  if (status != PLM_OK) {
    free(found);
    *count = 0;
    return status;
  }
  qsort(found, *count, sizeof *found, compare_steps);
  *steps = found;
  return PLM_OK;
}

plm_status plm_checkpoint_newest(const char *checkpoints_directory, uint64_t *step,
                                 struct plm_advance *advance, struct plm_error *error)
{
  uint64_t *steps;
  size_t count;
  PLM_TRY(plm_checkpoint_list(checkpoints_directory, &steps, &count, error));
  plm_status status = PLM_NOT_FOUND;
  while (count-- > 0 && status != PLM_OK) {
    char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
    struct plm_error why = {0};
    plm_checkpoint_name(steps[count], name);
    status = plm_path_join(path, checkpoints_directory, name, &why);
    if (status == PLM_OK) status = plm_checkpoint_verify(path, step, NULL, advance, &why);
    if (status != PLM_OK) plm_warning("skipping checkpoint %s: %s", path, why.what);
  }
  free(steps);
  if (status == PLM_OK) return PLM_OK;
  return plm_error_set(error, PLM_NOT_FOUND, "no checkpoint in %s verifies", checkpoints_directory);
}

bool plm_checkpoint_latest(const char *run, uint64_t *step)
{
  char path[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  if (plm_path_join(path, run, PLM_RUN_CHECKPOINTS "/latest", NULL) != PLM_OK) return false;
  const ssize_t size = readlink(path, name, sizeof name - 1);
  if (size < 0) return false;
  name[size] = '\0';
  return plm_checkpoint_parse_name(name, step);
}
