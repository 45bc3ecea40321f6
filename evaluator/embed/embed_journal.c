/* The journal is one JSON object. */
#include "evaluator/embed/embed_journal.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"

/* VERSION also changes if sequences are packed into batches in another way. */
enum { VERSION = 2, LIMIT_BYTES = 1 << 16 };

/* As text, because a JSON number does not hold all 64 bits. */
static void add_count(cJSON *json, const char *name, uint64_t value)
{
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, value);
  cJSON_AddStringToObject(json, name, text);
}

static void add_hash(cJSON *json, const char *name, struct plm_hash hash)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(hash, hex);
  cJSON_AddStringToObject(json, name, hex);
}

plm_status plm_embed_journal_write(const struct plm_embed_journal *journal, const char *path,
                                   struct plm_error *error)
{
  cJSON *json = cJSON_CreateObject();
  cJSON_AddNumberToObject(json, "version", VERSION);
  add_hash(json, "input", journal->input);
  add_hash(json, "checkpoint", journal->checkpoint);
  add_hash(json, "config", journal->config);
  cJSON_AddStringToObject(json, "options", journal->options);
  add_count(json, "bytes", journal->bytes);
  add_count(json, "windows", journal->windows);
  add_count(json, "batches", journal->batches);
  add_count(json, "sequences", journal->sequences);
  char *text = plm_json_bytes(json, true);
  cJSON_Delete(json);
  const plm_status status = plm_file_replace(path, text, strlen(text), 0666, error);
  free(text);
  return status;
}

static bool journal_parse_count(const cJSON *json, const char *name, uint64_t *value)
{
  const char *text = plm_json_string(json, name, "");
  char *end;
  if (text[0] < '0' || text[0] > '9') return false;
  *value = strtoull(text, &end, 10);
  return *end == '\0';
}

static bool journal_parse_hash(const cJSON *json, const char *name, struct plm_hash *hash)
{
  return plm_hash_from_hex(plm_json_string(json, name, ""), hash, NULL) == PLM_OK;
}

static bool journal_parse(const cJSON *json, struct plm_embed_journal *journal)
{
  const char *options = plm_json_string(json, "options", "");
  if (strlen(options) >= sizeof journal->options) return false;
  snprintf(journal->options, sizeof journal->options, "%s", options);
  return plm_json_number(json, "version", 0) == VERSION &&
         journal_parse_hash(json, "input", &journal->input) &&
         journal_parse_hash(json, "checkpoint", &journal->checkpoint) &&
         journal_parse_hash(json, "config", &journal->config) && options[0] != '\0' &&
         journal_parse_count(json, "bytes", &journal->bytes) &&
         journal_parse_count(json, "windows", &journal->windows) &&
         journal_parse_count(json, "batches", &journal->batches) &&
         journal_parse_count(json, "sequences", &journal->sequences);
}

plm_status plm_embed_journal_read(struct plm_embed_journal *journal, const char *path,
                                  struct plm_error *error)
{
  char *text;
  size_t size;
  PLM_TRY(plm_file_read(path, LIMIT_BYTES, &text, &size, error));
  cJSON *json = plm_json_line(text);
  free(text);
  if (json == NULL && plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %s", path);
  const bool good = json != NULL && journal_parse(json, journal);
  cJSON_Delete(json);
  if (good) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "this is not a journal that this version of embed wrote");
  return plm_error_where(error, "%s", path);
}

void plm_embed_journal_remove(const char *path)
{
  char temporary[PLM_PATH_SIZE];
  if (snprintf(temporary, sizeof temporary, "%s.tmp", path) < (int)sizeof temporary)
    unlink(temporary); /* of a killed writer */
  unlink(path);
}

plm_status plm_embed_journal_compare(const struct plm_embed_journal *found,
                                     const struct plm_embed_journal *wanted,
                                     struct plm_error *error)
{
  if (!plm_hash_equal(found->input, wanted->input))
    return plm_error_set(error, PLM_EXISTS, "it was begun with other sequences or names");
  if (!plm_hash_equal(found->checkpoint, wanted->checkpoint) ||
      !plm_hash_equal(found->config, wanted->config))
    return plm_error_set(error, PLM_EXISTS, "it was begun with another checkpoint");
  if (strcmp(found->options, wanted->options) != 0)
    return plm_error_set(error, PLM_EXISTS,
                         "it was begun as \"%s\", but this command asks for \"%s\"", found->options,
                         wanted->options);
  if (found->bytes != wanted->bytes)
    return plm_error_set(error, PLM_EXISTS,
                         "its result has %" PRIu64 " bytes, and that of this command %" PRIu64,
                         found->bytes, wanted->bytes);
  return PLM_OK;
}
