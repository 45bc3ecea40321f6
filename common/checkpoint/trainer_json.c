/* Reads trainer.json. */
#include "common/checkpoint/trainer_json.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/corpus/corpus.h"

enum { STATE_LIMIT = 1 << 26, STATE_VALUES = 1 << 22 }; /* bytes and values of the file */

plm_status plm_trainer_json_read(const char *directory, cJSON **json, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  bool exists;
  *json = NULL;
  PLM_TRY(plm_path_join(path, directory, "trainer.json", error));
  PLM_TRY(plm_file_look(path, &exists, error));
  if (!exists) return PLM_OK;
  PLM_TRY(plm_file_read(path, STATE_LIMIT, &text, &size, error));
  *json = plm_json_bounded(text, size, STATE_VALUES);
  free(text);
  if (*json != NULL) return PLM_OK;
  if (plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu bytes of %s", size, path);
  plm_error_set(error, PLM_FORMAT, "it is not JSON");
  return plm_error_where(error, "%s", path);
}

bool plm_trainer_json_is_of(const cJSON *json, const struct plm_corpus_info *corpus)
{
  const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(json, "cursor"), *source;
  struct plm_hash fingerprint;
  /* A mixture has its fingerprints with its sources, and that of the first one before them. */
  if (plm_hash_from_hex(plm_json_string(cursor, "fingerprint", ""), &fingerprint, NULL) != PLM_OK)
    return true;
  bool any = plm_corpus_is(corpus, fingerprint);
  cJSON_ArrayForEach(source, cJSON_GetObjectItemCaseSensitive(cursor, "sources"))
  {
    any |= plm_hash_from_hex(plm_json_string(source, "fingerprint", ""), &fingerprint, NULL) ==
               PLM_OK &&
           plm_corpus_is(corpus, fingerprint);
  }
  return any;
}
