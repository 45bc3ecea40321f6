/* endpoints.json, which says where the stages of a run are bound, and CORPUS. Writers of
 * endpoints.json hold endpoints.lock; readers need no lock, because the file is replaced as a
 * whole. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/files/descriptors.h"
#include "common/base/numbers/random.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"

enum { JSON_LIMIT = 1 << 16 };

static plm_status read_json(const char *path, cJSON **json, struct plm_error *error)
{
  char *text;
  size_t size;
  PLM_TRY(plm_file_read(path, JSON_LIMIT, &text, &size, error));
  *json = plm_json_line(text);
  free(text);
  if (!cJSON_IsObject(*json)) {
    cJSON_Delete(*json);
    *json = NULL;
    if (plm_json_no_memory()) return plm_error_set(error, PLM_NO_MEMORY, "no memory for %s", path);
    return plm_error_set(error, PLM_FORMAT, "%s is not a JSON object", path);
  }
  return PLM_OK;
}

static plm_status write_json(const char *path, const cJSON *json, unsigned mode,
                             struct plm_error *error)
{
  char *text = plm_json_bytes(json, true);
  const plm_status status = plm_file_replace(path, text, strlen(text), mode, error);
  free(text);
  return status;
}

/* A missing or damaged file is written again: every stage writes its key when it starts. One that
 * cannot be read is left alone, because it has the keys of the other stages. */
static plm_status read_or_begin(const char *path, cJSON **json, struct plm_error *error)
{
  const plm_status status = read_json(path, json, error);
  if (status != PLM_NOT_FOUND && status != PLM_FORMAT) return status;
  *json = cJSON_CreateObject();
  return PLM_OK;
}

plm_status plm_endpoints_lock(const char *run, int *descriptor, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  int result;
  PLM_TRY(plm_path_join(path, run, "endpoints.lock", error));
  *descriptor = plm_descriptors_open(path, O_RDWR | O_CREAT, 0600);
  if (*descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  do result = flock(*descriptor, LOCK_EX);
  while (result != 0 && errno == EINTR);
  if (result == 0) return PLM_OK;
  const plm_status status = plm_error_errno(error, "cannot lock %s", path);
  close(*descriptor);
  return status;
}

/* Sets a key, or removes it if value is NULL. With `keep`, an existing key is left as it is. */
static plm_status merge(const char *run, const char *key, const char *value, bool keep,
                        struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, run, PLM_RUN_ENDPOINTS, error));
  int lock;
  cJSON *json = NULL;
  PLM_TRY(plm_endpoints_lock(run, &lock, error));
  plm_status status = read_or_begin(path, &json, error);
  if (status == PLM_OK && !(keep && cJSON_HasObjectItem(json, key))) {
    cJSON_DeleteItemFromObjectCaseSensitive(json, key);
    if (value != NULL) cJSON_AddStringToObject(json, key, value);
    status = write_json(path, json, 0600, error);
  }
  cJSON_Delete(json);
  close(lock);
  return status;
}

plm_status plm_endpoint_write(const char *run, const char *key, const char *value,
                              struct plm_error *error)
{
  return merge(run, key, value, false, error);
}

void plm_endpoint_remove(const char *run, const char *key)
{
  (void)merge(run, key, NULL, false, NULL); /* the next start replaces it in any case */
}

plm_status plm_endpoint_read(const char *run, const char *key, char value[512],
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_ENDPOINTS, error));
  PLM_TRY(read_json(path, &json, error));
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
  plm_status status = PLM_OK;
  if (!cJSON_IsString(item))
    status = plm_error_set(error, PLM_NOT_FOUND, "%s has no \"%s\" yet", path, key);
  else if (snprintf(value, 512, "%s", item->valuestring) >= 512)
    status = plm_error_set(error, PLM_LIMIT, "%s: \"%s\" is longer than 511 bytes", path, key);
  cJSON_Delete(json);
  return status;
}

plm_status plm_run_id(const char *run, struct plm_hash *id, struct plm_error *error)
{
  char hex[512];
  struct plm_hash drawn;
  PLM_TRY(plm_random_bytes(&drawn, sizeof drawn, error));
  plm_hash_to_hex(drawn, hex);
  PLM_TRY(merge(run, "run_id", hex, true, error));
  PLM_TRY(plm_endpoint_read(run, "run_id", hex, error));
  return plm_hash_from_hex(hex, id, error);
}

bool plm_run_packers_given_up(const char *run)
{
  char value[512];
  return plm_endpoint_read(run, "packers", value, NULL) == PLM_OK && strcmp(value, "fatal") == 0;
}

/* *hash is zero if `json` does not have it. */
static plm_status get_hash(const cJSON *json, const char *name, struct plm_hash *hash,
                           struct plm_error *error)
{
  const cJSON *hex = cJSON_GetObjectItemCaseSensitive(json, name);
  *hash = (struct plm_hash){0};
  if (hex == NULL) return PLM_OK;
  if (cJSON_IsString(hex)) return plm_hash_from_hex(hex->valuestring, hash, error);
  return plm_error_set(error, PLM_FORMAT, "its %s is not a string", name);
}

plm_status plm_run_corpus_read(const char *run, struct plm_run_corpus *corpus,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  cJSON *json;
  bool exists;
  *corpus = (struct plm_run_corpus){0};
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CORPUS, error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) return PLM_OK;
  PLM_TRY(read_json(path, &json, error));
  plm_status status = get_hash(json, "fingerprint", &corpus->fingerprint, error);
  if (status == PLM_OK) status = get_hash(json, "root", &corpus->root, error);
  cJSON_Delete(json);
  if (status == PLM_OK && plm_hash_known(corpus->fingerprint)) return PLM_OK;
  *corpus = (struct plm_run_corpus){0};
  return plm_error_set(error, PLM_FORMAT, "%s has no fingerprint", path);
}

plm_status plm_run_corpus_write(const char *run, const struct plm_run_corpus *corpus,
                                struct plm_error *error)
{
  char path[PLM_PATH_SIZE], hex[2][PLM_HASH_HEX_SIZE], text[160];
  const bool has_root = plm_hash_known(corpus->root);
  struct plm_run_corpus before;
  if (!plm_hash_known(corpus->fingerprint)) return PLM_OK;
  if (plm_run_corpus_read(run, &before, NULL) == PLM_OK &&
      plm_hash_equal(before.fingerprint, corpus->fingerprint) &&
      (!has_root || plm_hash_equal(before.root, corpus->root)))
    return PLM_OK;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_CORPUS, error));
  plm_hash_to_hex(corpus->fingerprint, hex[0]);
  plm_hash_to_hex(corpus->root, hex[1]);
  const int size =
      snprintf(text, sizeof text, "{\"fingerprint\":\"%s\"%s%s%s}\n", hex[0],
               has_root ? ",\"root\":\"" : "", has_root ? hex[1] : "", has_root ? "\"" : "");
  return plm_file_replace(path, text, (size_t)size, 0644, error);
}
