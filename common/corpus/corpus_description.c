/* corpus.json: one function prints it. Reading parses the file, prints what was parsed, and
 * compares the two texts. */
#include "common/corpus/corpus_description.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/strict_json.h"
#include "common/corpus/corpus_format.h"
#include "common/corpus/corpus_labels_json.h"
#include "common/corpus/tokenizer.h"

enum {
  DESCRIPTION_LIMIT = 32 * (1 << 20), /* bytes of corpus.json */
  VALUES_LIMIT = 1 << 21              /* values in it: 300,000 files */
};

static const char *const tokenizer_names[] = {"esm", "byte"};
static const double largest_exact = 9007199254740992.0; /* 2^53: JSON numbers are doubles */

void plm_corpus_description_deinit(struct plm_corpus_description *description)
{
  for (size_t i = 0; i < description->ingested_count; i++) free(description->ingested[i].name);
  free(description->ingested);
  plm_label_schema_deinit(&description->labels);
  *description = (struct plm_corpus_description){0};
}

/* ---- printing -------------------------------------------------------------------------------- */

void plm_corpus_print_string(struct plm_text *text, const char *string)
{
  const size_t size = strlen(string);
  plm_text_puts(text, "\"");
  for (size_t i = 0; i < size;) {
    const unsigned char c = (unsigned char)string[i];
    const size_t length = plm_utf8_length((const unsigned char *)string + i, size - i);
    if (length == 0)
      plm_text_printf(text, "\\\\x%02x", (unsigned)c);
    else if (c == '"' || c == '\\')
      plm_text_printf(text, "\\%c", c);
    else if (c < 0x20)
      plm_text_printf(text, "\\u%04x", (unsigned)c);
    else
      plm_text_append(text, string + i, length);
    i += length == 0 ? 1 : length;
  }
  plm_text_puts(text, "\"");
}

static void print_hash(struct plm_text *text, const char *indent, const char *key,
                       struct plm_hash hash, const char *after)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(hash, hex);
  plm_text_printf(text, "%s\"%s\": \"%s\"%s\n", indent, key, hex, after);
}

static void print_root(struct plm_text *text, const char *key,
                       const uint8_t root[PLM_PROOF_HASH_BYTES])
{
  plm_text_printf(text, "      \"%s\": \"", key);
  for (int i = 0; i < PLM_PROOF_HASH_BYTES; i++) plm_text_printf(text, "%02x", root[i]);
  plm_text_puts(text, "\",\n");
}

static void print_counts(struct plm_text *text, const char *key, const uint64_t *counts,
                         size_t count, const char *after)
{
  plm_text_printf(text, "      \"%s\": [", key);
  for (size_t i = 0; i < count; i++)
    plm_text_printf(text, "%s%" PRIu64, i == 0 ? "" : ", ", counts[i]);
  plm_text_printf(text, "]%s\n", after);
}

static void print_splits(struct plm_text *text, const struct plm_corpus_info *info)
{
  const uint32_t vocabulary = plm_tokenizer_of(info->tokenizer)->vocab_size;
  plm_text_puts(text, "  \"splits\": {\n");
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *split = &info->splits[s];
    plm_text_printf(text, "    \"%s\": {\n", plm_split_name((enum plm_split)s));
    plm_text_printf(text, "      \"documents\": %" PRIu64 ",\n", split->documents);
    if (info->format != PLM_CORPUS_FORMAT_PLAIN)
      plm_text_printf(text, "      \"clusters\": %" PRIu64 ",\n", split->clusters);
    if (plm_corpus_has_proof(info)) {
      print_root(text, "root", split->root);
      print_root(text, "cluster_root", split->cluster_root);
    }
    plm_text_printf(text, "      \"residues\": %" PRIu64 ",\n", split->residues);
    plm_text_printf(text, "      \"length_min\": %" PRIu64 ",\n", split->length_min);
    plm_text_printf(text, "      \"length_max\": %" PRIu64 ",\n", split->length_max);
    print_counts(text, "histogram", split->histogram, PLM_HISTOGRAM_BINS, ",");
    print_counts(text, "composition", split->composition, vocabulary, "");
    plm_text_printf(text, "    }%s\n", s + 1 < PLM_SPLIT_COUNT ? "," : "");
  }
  plm_text_puts(text, "  },\n");
}

static void print_ingested(struct plm_text *text, const struct plm_corpus_description *description)
{
  plm_text_puts(text, "  \"sources\": [");
  for (size_t i = 0; i < description->ingested_count; i++) {
    const struct plm_ingested_file *source = &description->ingested[i];
    plm_text_printf(text, "%s\n    {\"name\": ", i == 0 ? "" : ",");
    plm_corpus_print_string(text, source->name);
    plm_text_printf(text, ", \"bytes\": %" PRIu64 ", \"documents\": %" PRIu64 "}", source->bytes,
                    source->documents);
  }
  plm_text_puts(text, "\n  ]");
}

static void print_files(struct plm_text *text, const struct plm_corpus_description *description)
{
  const struct plm_corpus_files *files = &description->files;
  const bool clusters = description->info.format == PLM_CORPUS_FORMAT_CLUSTERS;
  plm_text_puts(text, ",\n  \"data\": {\n");
  plm_text_printf(text, "    \"size\": %" PRIu64 ",\n", files->size_bytes);
  print_hash(text, "    ", "first_mib", files->first, ",");
  print_hash(text, "    ", "last_mib", files->last, ",");
  print_hash(text, "    ", "whole", files->whole, ",");
  print_hash(text, "    ", "lengths", files->lengths, ",");
  print_hash(text, "    ", "checks", files->checks, clusters ? "," : "");
  if (clusters) print_hash(text, "    ", "clusters", files->clusters, "");
  plm_text_puts(text, "  },\n  \"hash\": \"");
}

void plm_corpus_description_print(const struct plm_corpus_description *description, bool files,
                                  struct plm_text *text)
{
  const struct plm_corpus_info *info = &description->info;
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(info->tokenizer);
  const size_t begin = text->length;
  plm_text_printf(text, "{\n  \"format\": %" PRIu32 ",\n", info->format);
  plm_text_printf(text, "  \"tokenizer\": \"%s\",\n", tokenizer_names[info->tokenizer]);
  plm_text_puts(text, "  \"alphabet\": \"");
  for (uint32_t id = 0; tokenizer->kind == PLM_TOKENIZER_ESM && id < tokenizer->vocab_size; id++)
    if (plm_token_text(tokenizer, id)[1] == '\0')
      plm_text_puts(text, plm_token_text(tokenizer, id));
  plm_text_printf(text, "\",\n  \"group_documents\": %d,\n", PLM_GROUP_DOCUMENTS);
  plm_text_printf(text, "  \"clustered\": %s,\n", info->clustered ? "true" : "false");
  print_hash(text, "  ", "fingerprint", info->fingerprint, ",");
  if (plm_hash_known(info->upgraded_from))
    print_hash(text, "  ", "upgraded_from", info->upgraded_from, ",");
  plm_text_printf(text, "  \"entropy\": %.9f,\n", info->entropy);
  print_splits(text, info);
  if (plm_corpus_has_labels(info)) plm_corpus_labels_print(&description->labels, text);
  print_ingested(text, description);
  if (!files) {
    plm_text_puts(text, "\n}\n");
    return;
  }
  print_files(text, description);
  static const char ending[] = "\"\n}\n";
  const size_t digits = text->length;
  plm_text_puts(text, ending);
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(plm_hash_bytes(text->data + begin, text->length - begin), hex);
  text->length = digits;
  plm_text_puts(text, hex);
  plm_text_puts(text, ending);
}

/* ---- parsing --------------------------------------------------------------------------------- */

static bool parse_u64(const cJSON *object, const char *key, uint64_t *value)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0) || item->valuedouble > largest_exact)
    return false;
  *value = (uint64_t)item->valuedouble;
  return true;
}

static bool parse_hash(const cJSON *object, const char *key, struct plm_hash *hash)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsString(item) && plm_hash_from_hex(item->valuestring, hash, NULL) == PLM_OK;
}

static bool parse_root(const cJSON *object, const char *key, uint8_t root[PLM_PROOF_HASH_BYTES])
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  if (!cJSON_IsString(item) || strlen(item->valuestring) != 2 * PLM_PROOF_HASH_BYTES) return false;
  for (int i = 0; i < PLM_PROOF_HASH_BYTES; i++) {
    const char digits[3] = {item->valuestring[2 * i], item->valuestring[2 * i + 1], '\0'};
    char *end;
    root[i] = (uint8_t)strtoul(digits, &end, 16); /* another spelling differs from the print */
    if (end != digits + 2) return false;
  }
  return true;
}

static bool parse_counts(const cJSON *object, const char *key, uint64_t *counts, int count)
{
  const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, key);
  if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != count) return false;
  const cJSON *item;
  cJSON_ArrayForEach(item, array)
  {
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0) || item->valuedouble > largest_exact)
      return false;
    *counts++ = (uint64_t)item->valuedouble;
  }
  return true;
}

static bool parse_splits(const cJSON *root, struct plm_corpus_info *info)
{
  const cJSON *splits = cJSON_GetObjectItemCaseSensitive(root, "splits");
  const int vocabulary = (int)plm_tokenizer_of(info->tokenizer)->vocab_size;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    struct plm_corpus_split *split = &info->splits[s];
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(splits, plm_split_name((enum plm_split)s));
    if (info->format != PLM_CORPUS_FORMAT_PLAIN && !parse_u64(item, "clusters", &split->clusters))
      return false;
    if (plm_corpus_has_proof(info) && (!parse_root(item, "root", split->root) ||
                                       !parse_root(item, "cluster_root", split->cluster_root)))
      return false;
    if (!parse_u64(item, "documents", &split->documents) ||
        !parse_u64(item, "residues", &split->residues) ||
        !parse_u64(item, "length_min", &split->length_min) ||
        !parse_u64(item, "length_max", &split->length_max) ||
        !parse_counts(item, "histogram", split->histogram, PLM_HISTOGRAM_BINS) ||
        !parse_counts(item, "composition", split->composition, vocabulary))
      return false;
  }
  return true;
}

/* Sets *no_memory if that is why it fails. */
static bool parse_ingested(const cJSON *root, struct plm_corpus_description *description,
                           bool *no_memory)
{
  const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, "sources");
  if (!cJSON_IsArray(array)) return false;
  const size_t count = (size_t)cJSON_GetArraySize(array);
  description->ingested = calloc(count + 1, sizeof *description->ingested);
  *no_memory = description->ingested == NULL;
  if (*no_memory) return false;
  const cJSON *item;
  cJSON_ArrayForEach(item, array)
  {
    struct plm_ingested_file *source = &description->ingested[description->ingested_count];
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
    if (!cJSON_IsString(name) || !parse_u64(item, "bytes", &source->bytes) ||
        !parse_u64(item, "documents", &source->documents))
      return false;
    source->name = strdup(name->valuestring);
    *no_memory = source->name == NULL;
    if (*no_memory) return false;
    description->ingested_count++;
  }
  return true;
}

static bool parse_labels(const cJSON *root, struct plm_corpus_description *description)
{
  const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, "labels");
  if (!plm_corpus_has_labels(&description->info)) return array == NULL;
  if (!plm_corpus_labels_parse(array, &description->labels)) return false;
  description->info.schema = plm_label_schema_digest(&description->labels);
  return true;
}

static bool parse_files(const cJSON *root, struct plm_corpus_description *description)
{
  const cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data");
  struct plm_corpus_files *files = &description->files;
  if (description->info.format == PLM_CORPUS_FORMAT_CLUSTERS &&
      !parse_hash(data, "clusters", &files->clusters))
    return false;
  return parse_u64(data, "size", &files->size_bytes) &&
         parse_hash(data, "first_mib", &files->first) &&
         parse_hash(data, "last_mib", &files->last) && parse_hash(data, "whole", &files->whole) &&
         parse_hash(data, "lengths", &files->lengths) && parse_hash(data, "checks", &files->checks);
}

static bool parse_description(const cJSON *root, struct plm_corpus_description *description,
                              bool *no_memory)
{
  struct plm_corpus_info *info = &description->info;
  const cJSON *tokenizer = cJSON_GetObjectItemCaseSensitive(root, "tokenizer");
  const cJSON *clustered = cJSON_GetObjectItemCaseSensitive(root, "clustered");
  if (!cJSON_IsString(tokenizer) || !cJSON_IsBool(clustered)) return false;
  if (strcmp(tokenizer->valuestring, tokenizer_names[PLM_TOKENIZER_ESM]) == 0)
    info->tokenizer = PLM_TOKENIZER_ESM;
  else if (strcmp(tokenizer->valuestring, tokenizer_names[PLM_TOKENIZER_BYTE]) == 0)
    info->tokenizer = PLM_TOKENIZER_BYTE;
  else
    return false;
  info->clustered = cJSON_IsTrue(clustered);
  if (!parse_hash(root, "fingerprint", &info->fingerprint) || !parse_splits(root, info) ||
      !parse_labels(root, description) || !parse_ingested(root, description, no_memory) ||
      !parse_files(root, description))
    return false;
  (void)parse_hash(root, "upgraded_from", &info->upgraded_from); /* not every corpus has it */
  if (plm_corpus_keeps_clusters(info) && !info->clustered) return false;
  if (plm_corpus_has_proof(info) &&
      !plm_hash_equal(plm_corpus_fingerprint(info), info->fingerprint))
    return false;
  plm_corpus_info_finish(info);
  return true;
}

/* The file must be exactly the text that the writer would print. */
static plm_status compare_with_print(const struct plm_corpus_description *description,
                                     const char *bytes, size_t size, const char *path,
                                     struct plm_error *error)
{
  struct plm_text text = {0};
  plm_corpus_description_print(description, true, &text);
  plm_status status = PLM_OK;
  if (text.length != size || memcmp(text.data, bytes, size) != 0)
    status = plm_error_set(error, PLM_CORRUPT, "%s is not what ingest wrote", path);
  plm_text_deinit(&text);
  return status;
}

static plm_status check_format(uint64_t format, bool allow_old, const char *path,
                               struct plm_error *error)
{
  const bool old = format == PLM_CORPUS_FORMAT_PLAIN || format == PLM_CORPUS_FORMAT_CLUSTERS;
  if (format == PLM_CORPUS_FORMAT || format == PLM_CORPUS_FORMAT_LABELS || (old && allow_old))
    return PLM_OK;
  plm_error_set(error, PLM_UNSUPPORTED,
                "%s has format %" PRIu64 "; this program reads formats %d and %d", path, format,
                PLM_CORPUS_FORMAT, PLM_CORPUS_FORMAT_LABELS);
  if (!old) return plm_error_hint(error, "use a newer version of plm-pipeline");
  const char *slash = strrchr(path, '/');
  return plm_error_hint(error,
                        "`plm-pipeline corpus %.*s --upgrade` writes the same corpus in the new "
                        "format, and runs continue with it",
                        slash == NULL ? 1 : (int)(slash - path), slash == NULL ? "." : path);
}

static plm_status description_parse(const char *bytes, size_t size, const char *path,
                                    bool allow_old, struct plm_corpus_description *description,
                                    struct plm_error *error)
{
  cJSON *root = plm_json_bounded(bytes, size, VALUES_LIMIT);
  plm_status status = PLM_OK;
  uint64_t format = 0;
  if (root == NULL && plm_json_no_memory())
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for %s", path);
  else if (!cJSON_IsObject(root) || !parse_u64(root, "format", &format))
    status = plm_error_set(error, PLM_CORRUPT, "%s is not the description of a corpus", path);
  else
    status = check_format(format, allow_old, path, error);
  if (status == PLM_OK) {
    description->info.format = (uint32_t)format;
    bool no_memory = false;
    if (parse_description(root, description, &no_memory))
      status = compare_with_print(description, bytes, size, path, error);
    else if (no_memory)
      status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for the sources in %s", path);
    else
      status = plm_error_set(error, PLM_CORRUPT, "%s is damaged", path);
  }
  cJSON_Delete(root);
  return status;
}

static plm_status parse_or_nothing(const char *bytes, size_t size, const char *path, bool allow_old,
                                   struct plm_corpus_description *description,
                                   struct plm_error *error)
{
  *description = (struct plm_corpus_description){0};
  const plm_status status = description_parse(bytes, size, path, allow_old, description, error);
  if (status != PLM_OK) plm_corpus_description_deinit(description);
  if (status == PLM_CORRUPT)
    plm_error_hint(error, "copy the corpus again or ingest its sources again");
  return status;
}

plm_status plm_corpus_description_parse(const char *bytes, size_t size, const char *path,
                                        struct plm_corpus_description *description,
                                        struct plm_error *error)
{
  return parse_or_nothing(bytes, size, path, false, description, error);
}

static plm_status read_description(const char *directory, bool allow_old,
                                   struct plm_corpus_description *description,
                                   struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *bytes;
  size_t size;
  *description = (struct plm_corpus_description){0};
  PLM_TRY(plm_path_join(path, directory, PLM_CORPUS_DESCRIPTION, error));
  plm_status status = plm_file_read(path, DESCRIPTION_LIMIT, &bytes, &size, error);
  if (status == PLM_NOT_FOUND) {
    plm_error_set(error, PLM_NOT_FOUND, "%s is not a corpus: it has no %s", directory,
                  PLM_CORPUS_DESCRIPTION);
    return plm_error_hint(error, "make one with plm-pipeline ingest FILE --corpus %s", directory);
  }
  if (status != PLM_OK) return status;
  status = parse_or_nothing(bytes, size, path, allow_old, description, error);
  free(bytes);
  return status;
}

plm_status plm_corpus_description_read(const char *directory,
                                       struct plm_corpus_description *description,
                                       struct plm_error *error)
{
  return read_description(directory, false, description, error);
}

plm_status plm_corpus_description_read_old(const char *directory,
                                           struct plm_corpus_description *description,
                                           struct plm_error *error)
{
  return read_description(directory, true, description, error);
}
