/* The tensors of one safetensors file, or of the shards of an index. */
#include "common/checkpoint/tensor_shards.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/strict_json.h"

enum { INDEX_LIMIT = 1 << 26 /* bytes */, MAX_SHARDS = 4096 };
static const struct plm_json_limits index_limits = {
    .values = 2 * PLM_SAFETENSORS_MAX_TENSORS + 1024, /* a name and a shard for each tensor */
    .depth = 8,
    .numbers = PLM_JSON_ANY_NUMBER};

struct plm_tensor_shards {
  struct plm_safetensors **shards;
  char **names; /* of the shards; NULL for a single file */
  size_t count, tensors;
};

void plm_tensor_shards_close(struct plm_tensor_shards *files)
{
  if (files == NULL) return;
  for (size_t i = 0; i < files->count; i++) {
    plm_safetensors_close(files->shards[i]);
    if (files->names != NULL) free(files->names[i]);
  }
  free(files->shards);
  free(files->names);
  free(files);
}

size_t plm_tensor_shards_count(const struct plm_tensor_shards *files)
{
  return files->tensors;
}

const struct plm_tensor_info *plm_tensor_shards_at(const struct plm_tensor_shards *files, size_t i)
{
  size_t shard = 0;
  for (; i >= plm_safetensors_count(files->shards[shard]); shard++)
    i -= plm_safetensors_count(files->shards[shard]);
  return plm_safetensors_at(files->shards[shard], i);
}

const struct plm_tensor_info *plm_tensor_shards_find(const struct plm_tensor_shards *files,
                                                     const char *name)
{
  const struct plm_tensor_info *found = NULL;
  for (size_t i = 0; i < files->count && found == NULL; i++)
    found = plm_safetensors_find(files->shards[i], name);
  return found;
}

size_t plm_tensor_shards_files(const struct plm_tensor_shards *files)
{
  return files->count;
}

bool plm_tensor_shards_sharded(const struct plm_tensor_shards *files)
{
  return files->names != NULL;
}

/* ---- shards -------------------------------------------------------------------------------- */

/* A shard lies beside its index, so its name must not be a path. */
static plm_status check_shard_name(const cJSON *entry, struct plm_error *error)
{
  const char *name = entry->valuestring;
  const size_t length = strlen(name);
  if (length == 0 || length > 255 || strchr(name, '/') != NULL || name[0] == '.') {
    plm_error_set(error, PLM_FORMAT,
                  "tensor %.120s: \"%.200s\" is not a valid name of a shard: a shard lies beside "
                  "its index",
                  entry->string, name);
    return plm_error_hint(error, "transformers writes no such index; get the folder again from "
                                 "where it was published");
  }
  return PLM_OK;
}

/* Opens the shard that holds a tensor, unless it is open already. */
static plm_status shard_of(struct plm_tensor_shards *files, const char *directory,
                           const cJSON *entry, size_t *shard, struct plm_error *error)
{
  const char *name = entry->valuestring;
  char path[PLM_PATH_SIZE];
  for (*shard = 0; *shard < files->count; ++*shard)
    if (strcmp(files->names[*shard], name) == 0) return PLM_OK;
  PLM_TRY(check_shard_name(entry, error));
  if (files->count == MAX_SHARDS)
    return plm_error_set(error, PLM_LIMIT, "more than %d shards", MAX_SHARDS);
  PLM_TRY(plm_path_join(path, directory, name, error));
  if (!plm_file_exists(path)) {
    plm_error_set(error, PLM_NOT_FOUND, "the shard %.255s, which holds tensor %.200s, is missing",
                  name, entry->string);
    return plm_error_hint(error, "get the files that the index names again");
  }
  char *copy = plm_strdup(name);
  const plm_status status = plm_safetensors_open(path, &files->shards[files->count], error);
  if (status != PLM_OK) {
    free(copy);
    return status;
  }
  files->tensors += plm_safetensors_count(files->shards[files->count]);
  files->names[files->count++] = copy;
  return PLM_OK;
}

static int compare_entries(const void *a, const void *b)
{
  const cJSON *const *x = a, *const *y = b;
  return strcmp((*x)->string, (*y)->string);
}

/* The shards have other tensors than the entries of the index: names one of them. */
static plm_status not_listed(const struct plm_tensor_shards *files, const cJSON *map,
                             size_t entries, struct plm_error *error)
{
  const cJSON **sorted = plm_alloc(entries * sizeof(cJSON *));
  const char *name = "", *shard = "";
  size_t count = 0;
  for (const cJSON *item = map->child; item != NULL; item = item->next) sorted[count++] = item;
  qsort(sorted, entries, sizeof(cJSON *), compare_entries);
  for (size_t s = 0; s < files->count && name[0] == '\0'; s++)
    for (size_t i = 0; i < plm_safetensors_count(files->shards[s]) && name[0] == '\0'; i++) {
      const cJSON wanted = {.string = (char *)plm_safetensors_at(files->shards[s], i)->name};
      const cJSON *key = &wanted,
                  **found = bsearch(&key, sorted, entries, sizeof(cJSON *), compare_entries);
      if (found != NULL && strcmp((*found)->valuestring, files->names[s]) == 0) continue;
      name = wanted.string;
      shard = files->names[s];
    }
  free(sorted);
  return plm_error_set(error, PLM_FORMAT,
                       "the shards have %zu tensors, but the index lists %zu: it lacks %.120s of "
                       "%.120s",
                       files->tensors, entries, name, shard);
}

static plm_status parse_weight_map(struct plm_tensor_shards *files, const char *directory,
                                   const cJSON *map, struct plm_error *error)
{
  size_t entries = 0;
  if (!cJSON_IsObject(map) || map->child == NULL)
    return plm_error_set(error, PLM_FORMAT, "\"weight_map\" is missing, empty or not an object");
  for (const cJSON *item = map->child; item != NULL; item = item->next, entries++) {
    size_t shard;
    if (!cJSON_IsString(item))
      return plm_error_set(error, PLM_FORMAT, "tensor %.200s has no shard", item->string);
    PLM_TRY(shard_of(files, directory, item, &shard, error));
    if (plm_safetensors_find(files->shards[shard], item->string) == NULL)
      return plm_error_set(error, PLM_FORMAT, "tensor %.200s is not in %.200s", item->string,
                           item->valuestring);
  }
  /* every entry names a different tensor, so equal counts mean that both list the same ones */
  return files->tensors == entries ? PLM_OK : not_listed(files, map, entries, error);
}

static plm_status open_shards(struct plm_tensor_shards *files, const char *index_path,
                              struct plm_error *error)
{
  char directory[PLM_PATH_SIZE], *text;
  size_t size;
  cJSON *json = NULL;
  snprintf(directory, sizeof directory, "%s", index_path);
  char *slash = strrchr(directory, '/');
  if (slash != NULL)
    *slash = '\0';
  else
    snprintf(directory, sizeof directory, ".");
  PLM_TRY(plm_file_read(index_path, INDEX_LIMIT, &text, &size, error));
  files->shards = plm_alloc_zeroed(MAX_SHARDS, sizeof(struct plm_safetensors *));
  files->names = plm_alloc_zeroed(MAX_SHARDS, sizeof *files->names);
  plm_status status = plm_json_parse(text, size, &index_limits, &json, error);
  if (status == PLM_OK)
    status = parse_weight_map(files, directory,
                              cJSON_GetObjectItemCaseSensitive(json, "weight_map"), error);
  if (status != PLM_OK && error != NULL && error->where[0] == '\0') {
    plm_error_where(error, "%s", index_path);
    if (status == PLM_FORMAT && error->hint[0] == '\0')
      plm_error_hint(error, "the index is damaged or belongs to other files; get the folder again");
  }
  cJSON_Delete(json);
  free(text);
  return status;
}

static plm_status open_single(struct plm_tensor_shards *files, const char *path,
                              struct plm_error *error)
{
  files->shards = plm_alloc_zeroed(1, sizeof(struct plm_safetensors *));
  PLM_TRY(plm_safetensors_open(path, &files->shards[0], error));
  files->count = 1;
  files->tensors = plm_safetensors_count(files->shards[0]);
  return PLM_OK;
}

plm_status plm_tensor_shards_open(const char *path, struct plm_tensor_shards **files,
                                  struct plm_error *error)
{
  char index[PLM_PATH_SIZE];
  struct plm_tensor_shards *opened = plm_alloc_zeroed(1, sizeof *opened);
  *files = NULL;
  const bool sharded =
      !plm_file_exists(path) &&
      snprintf(index, sizeof index, "%s" PLM_SHARD_INDEX, path) < (int)sizeof index &&
      plm_file_exists(index);
  const plm_status status =
      sharded ? open_shards(opened, index, error) : open_single(opened, path, error);
  if (status != PLM_OK) {
    plm_tensor_shards_close(opened);
    return status;
  }
  *files = opened;
  return PLM_OK;
}

/* The index of the shard that holds a tensor of `files`; files->count: none. */
static size_t shard_with(const struct plm_tensor_shards *files,
                         const struct plm_tensor_info *tensor)
{
  size_t i = 0;
  while (i < files->count && plm_safetensors_find(files->shards[i], tensor->name) != tensor) i++;
  return i;
}

void plm_tensor_shards_release(const struct plm_tensor_shards *files,
                               const struct plm_tensor_info *tensor)
{
  const size_t i = shard_with(files, tensor);
  if (i < files->count) plm_safetensors_release(files->shards[i], tensor);
}

const char *plm_tensor_shards_name(const struct plm_tensor_shards *files,
                                   const struct plm_tensor_info *tensor)
{
  const size_t i = shard_with(files, tensor);
  return files->names != NULL && i < files->count ? files->names[i] : NULL;
}
