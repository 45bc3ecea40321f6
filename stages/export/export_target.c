/* The folder of an export, and what it may replace. */
#include "stages/export/export_target.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/numbers/hash.h"
#include "common/base/process/leftovers.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/checkpoint/safetensors.h"

/* The file of the weights, whose metadata has the list. */
static const char *const weights_files[] = {"model.safetensors", "adapter_model.safetensors"};

static bool export_target_holds(const char *directory, const char *name)
{
  char path[PLM_PATH_SIZE];
  return plm_path_join(path, directory, name, NULL) == PLM_OK && plm_file_exists(path);
}

static int is_entry(const struct dirent *entry)
{
  return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static void free_entries(struct dirent **entries, int count)
{
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
}

/* ---- an earlier export --------------------------------------------------------------------- */

plm_status plm_export_target_list(const struct plm_export_target *target, char **text,
                                  struct plm_error *error)
{
  struct dirent **entries;
  const int count = scandir(target->temporary, &entries, is_entry, alphasort);
  if (count < 0) return plm_error_errno(error, "cannot list %s", target->temporary);
  cJSON *json = cJSON_CreateObject();
  plm_status status = PLM_OK;
  for (int i = 0; i < count && status == PLM_OK; i++) {
    char path[PLM_PATH_SIZE], hex[PLM_HASH_HEX_SIZE];
    struct plm_hash hash;
    uint64_t size;
    status = plm_path_join(path, target->temporary, entries[i]->d_name, error);
    if (status == PLM_OK) status = plm_hash_file(path, &hash, &size, NULL, error);
    if (status != PLM_OK) break;
    plm_hash_to_hex(hash, hex);
    cJSON_AddStringToObject(json, entries[i]->d_name, hex);
  }
  free_entries(entries, count);
  *text = status == PLM_OK ? plm_json_bytes(json, false) : NULL;
  cJSON_Delete(json);
  return status;
}

/* The list in the metadata of a file; NULL if it is not that of an export. */
static cJSON *list_in(const char *directory, const char *name)
{
  char path[PLM_PATH_SIZE];
  struct plm_safetensors *weights;
  if (plm_path_join(path, directory, name, NULL) != PLM_OK ||
      plm_safetensors_open(path, &weights, NULL) != PLM_OK)
    return NULL;
  const char *text = plm_safetensors_metadata(weights, PLM_EXPORT_KEY);
  cJSON *list = text == NULL ? NULL : plm_json_line(text);
  plm_safetensors_close(weights);
  return list;
}

/* The list of an export, and the file that has it; NULL: the folder is none. */
static cJSON *list_of(const char *directory, const char **weights)
{
  cJSON *list = NULL;
  for (size_t i = 0; i < sizeof weights_files / sizeof *weights_files && list == NULL; i++) {
    *weights = weights_files[i];
    list = list_in(directory, *weights);
  }
  return list;
}

/* Whether an entry of the folder is still what the list says. */
static bool unchanged(const char *directory, const char *name, const cJSON *list)
{
  char path[PLM_PATH_SIZE], hex[PLM_HASH_HEX_SIZE];
  struct plm_hash hash;
  struct stat info;
  uint64_t size;
  const char *listed = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(list, name));
  if (listed == NULL || plm_path_join(path, directory, name, NULL) != PLM_OK ||
      lstat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
      plm_hash_file(path, &hash, &size, NULL, NULL) != PLM_OK)
    return false;
  plm_hash_to_hex(hash, hex);
  return strcmp(hex, listed) == 0;
}

/* PLM_OK if the folder is an unchanged export; else PLM_EXISTS, which says what it is. */
static plm_status check_earlier(const char *directory, struct dirent **entries, int count,
                                struct plm_error *error)
{
  const char *weights;
  cJSON *list = list_of(directory, &weights);
  if (list == NULL)
    return plm_error_set(error, PLM_EXISTS,
                         "the folder exists and is not an export by plm-pipeline");
  plm_status status = PLM_OK;
  for (int i = 0; i < count && status == PLM_OK; i++)
    if (strcmp(entries[i]->d_name, weights) != 0 && !unchanged(directory, entries[i]->d_name, list))
      status =
          plm_error_set(error, PLM_EXISTS,
                        "the folder is an earlier export, but %.200s was changed or added since",
                        entries[i]->d_name);
  cJSON_Delete(list);
  return status;
}

/* ---- what exists at its place -------------------------------------------------------------- */

static plm_status check_never(const char *directory, struct plm_error *error)
{
  static const struct {
    const char *name, *what;
  } never[] = {
      {"MANIFEST", "it is a checkpoint of a run"},
      {"checkpoints", "it is a run"},
      {"data.mdb", "it is a corpus"},
      {".git", "it is a Git repository"},
  };
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    if (export_target_holds(directory, never[i].name))
      return plm_error_set(error, PLM_EXISTS, "the folder cannot be replaced: %s", never[i].what);
  return PLM_OK;
}

static plm_status export_target_look(struct plm_export_target *target, bool force,
                                     struct plm_error *error)
{
  struct stat info;
  struct dirent **entries;
  if (lstat(target->final, &info) != 0) return PLM_OK;
  if (!S_ISDIR(info.st_mode))
    return plm_error_set(error, PLM_EXISTS, "it exists and is not a folder");
  PLM_TRY(check_never(target->final, error));
  const int count = scandir(target->final, &entries, is_entry, alphasort);
  if (count < 0) return plm_error_errno(error, "cannot list it");
  plm_status status = PLM_OK;
  if (count > 0) {
    status = check_earlier(target->final, entries, count, error);
    target->earlier = status == PLM_OK;
    target->aside = status == PLM_EXISTS && force;
  }
  free_entries(entries, count);
  if (target->aside) return PLM_OK;
  if (status == PLM_EXISTS)
    plm_error_hint(error, "choose another --output, or move the folder aside with --force");
  return status;
}

/* Finds the place, with links followed, and makes its parent folder. *name is its last part. */
static plm_status find_place(const char *output, struct plm_export_target *target,
                             char parent[PLM_PATH_SIZE], const char **name, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, output[0] == '/' ? "" : ".", output, error));
  for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--) path[end - 1] = '\0';
  char *real = realpath(path, NULL);
  if (real == NULL && errno == ENOENT) { /* then its parent is made */
    char *slash = strrchr(path, '/');
    char last[PLM_PATH_SIZE];
    snprintf(last, sizeof last, "%s", slash + 1);
    *slash = '\0';
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
      return plm_error_set(error, PLM_USAGE, "\"%.200s\" does not name a folder", output);
    PLM_TRY(plm_directory_make(path[0] == '\0' ? "/" : path, error));
    real = realpath(path[0] == '\0' ? "/" : path, NULL);
    if (real == NULL) return plm_error_errno(error, "cannot open %s", path);
    const plm_status status =
        plm_path_join(target->final, strcmp(real, "/") == 0 ? "" : real, last, error);
    free(real);
    PLM_TRY(status);
  } else if (real == NULL) {
    return plm_error_errno(error, "cannot stat %s", path);
  } else {
    snprintf(target->final, sizeof target->final, "%s", real);
    free(real);
  }
  snprintf(parent, PLM_PATH_SIZE, "%s", target->final);
  char *slash = strrchr(parent, '/');
  *name = target->final + (slash - parent) + 1;
  slash[slash == parent ? 1 : 0] = '\0';
  if (**name == '\0') return plm_error_set(error, PLM_EXISTS, "an export cannot go to /");
  return PLM_OK;
}

/* ---- the temporary folder ------------------------------------------------------------------ */

static const char mkdtemp_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

static plm_status make_temporary(struct plm_export_target *target, const char *parent,
                                 const char *name, struct plm_error *error)
{
  char hidden[PLM_PATH_SIZE];
  if (snprintf(hidden, sizeof hidden, ".%s.export-", name) > 200)
    return plm_error_set(error, PLM_LIMIT, "the name %.200s is too long", name);
  plm_leftovers_remove(parent, hidden, mkdtemp_letters, "export");
  PLM_TRY(plm_path_join(target->temporary, parent, hidden, error));
  const size_t used = strlen(target->temporary);
  const int size = snprintf(target->temporary + used, PLM_PATH_SIZE - used, "XXXXXX");
  if (size >= (int)(PLM_PATH_SIZE - used) || mkdtemp(target->temporary) == NULL) {
    const plm_status status = plm_error_errno(error, "cannot make a folder in %s", parent);
    target->temporary[0] = '\0';
    return status;
  }
  target->lock = plm_leftovers_lock(target->temporary);
  const mode_t mask = umask(0); /* mkdtemp made it for this user only */
  umask(mask);
  if (chmod(target->temporary, 0777 & ~mask) != 0)
    return plm_error_errno(error, "cannot change the mode of %s", target->temporary);
  return PLM_OK;
}

plm_status plm_export_target_open(const char *output, bool force, struct plm_export_target *target,
                                  struct plm_error *error)
{
  char parent[PLM_PATH_SIZE];
  const char *name = "";
  *target = (struct plm_export_target){.lock = -1};
  PLM_TRY(find_place(output, target, parent, &name, error));
  const plm_status status = export_target_look(target, force, error);
  if (status == PLM_OK) return make_temporary(target, parent, name, error);
  plm_error_where(error, "%s", target->final);
  return status;
}

static void unlock(struct plm_export_target *target)
{
  if (target->lock >= 0) close(target->lock);
  target->lock = -1;
}

void plm_export_target_abandon(struct plm_export_target *target)
{
  if (target->temporary[0] != '\0') plm_path_remove(target->temporary, NULL);
  unlock(target);
}

/* ---- renaming ------------------------------------------------------------------------------ */

static plm_status move_aside(const char *final, char *moved, struct plm_error *error)
{
  for (unsigned attempt = 1; attempt < 10000; attempt++) {
    if (snprintf(moved, PLM_PATH_SIZE, "%s.previous-%u", final, attempt) >= PLM_PATH_SIZE) break;
    if (access(moved, F_OK) == 0) continue;
    if (rename(final, moved) == 0) return PLM_OK;
    return plm_error_errno(error, "cannot rename %s to %s", final, moved);
  }
  return plm_error_set(error, PLM_LIMIT, "there are too many folders %s.previous-N", final);
}

plm_status plm_export_target_publish(struct plm_export_target *target, char *moved,
                                     struct plm_error *error)
{
  char parent[PLM_PATH_SIZE];
  moved[0] = '\0';
  snprintf(parent, sizeof parent, "%s", target->final);
  char *slash = strrchr(parent, '/');
  slash[slash == parent ? 1 : 0] = '\0';
  PLM_TRY(plm_directory_sync(target->temporary, error));
  if (target->aside) PLM_TRY(move_aside(target->final, moved, error));
  if (target->earlier &&
      renameat2(AT_FDCWD, target->temporary, AT_FDCWD, target->final, RENAME_EXCHANGE) == 0)
    PLM_TRY(plm_path_remove(target->temporary,
                            error)); /* after the exchange, this is the earlier one */
  else {
    if (target->earlier) PLM_TRY(plm_path_remove(target->final, error));
    if (rename(target->temporary, target->final) != 0)
      return plm_error_errno(error, "cannot rename %s to %s", target->temporary, target->final);
  }
  unlock(target);
  return plm_directory_sync(parent, error);
}
