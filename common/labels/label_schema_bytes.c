/* A schema as bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/labels/label_schema.h"

/* Counts bytes, and writes them unless `at` is NULL. */
struct schema_writer {
  uint8_t *at;
  size_t size;
};

static void put_bytes(struct schema_writer *out, const void *bytes, size_t size)
{
  if (out->at != NULL) memcpy(out->at + out->size, bytes, size);
  out->size += size;
}

static void put(struct schema_writer *out, uint64_t value, unsigned bytes)
{
  uint8_t little[8];
  for (unsigned i = 0; i < 8; i++) little[i] = (uint8_t)(value >> (8 * i));
  put_bytes(out, little, bytes);
}

static void put_number(struct schema_writer *out, double value)
{
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put(out, bits, 8);
}

static void put_name(struct schema_writer *out, const char *name)
{
  const size_t size = strlen(name);
  put(out, size, 2);
  put_bytes(out, name, size);
}

static void put_column(struct schema_writer *out, const struct plm_label_column *column)
{
  put(out, column->kind, 1);
  put_name(out, column->name);
  for (int s = 0; s < PLM_PROOF_SPLITS; s++) put(out, column->labels[s], 8);
  if (column->kind == PLM_LABEL_NUMBER) {
    put_number(out, column->mean);
    put_number(out, column->deviation);
    return;
  }
  put(out, column->class_count, 4);
  for (uint32_t c = 0; c < column->class_count; c++) {
    put_name(out, column->classes[c]);
    put(out, column->counts[c], 8);
  }
}

static size_t put_schema(const struct plm_label_schema *schema, uint8_t *bytes)
{
  struct schema_writer out = {.at = bytes};
  if (schema->count == 0) return 0;
  put(&out, PLM_LABEL_SCHEMA_VERSION, 4);
  put(&out, schema->count, 4);
  for (uint32_t i = 0; i < schema->count; i++) put_column(&out, &schema->columns[i]);
  return out.size;
}

size_t plm_label_schema_bytes(const struct plm_label_schema *schema)
{
  return put_schema(schema, NULL);
}

void plm_label_schema_encode(const struct plm_label_schema *schema, uint8_t *bytes)
{
  (void)put_schema(schema, bytes);
}

struct plm_proof_digest plm_label_schema_digest(const struct plm_label_schema *schema)
{
  const size_t size = plm_label_schema_bytes(schema);
  uint8_t *bytes = plm_alloc(size);
  plm_label_schema_encode(schema, bytes);
  const struct plm_proof_digest digest = plm_proof_schema(bytes, size);
  free(bytes);
  return digest;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* If something is missing or out of range, `bad` is set, and what is read from then on is 0. */
struct schema_reader {
  const uint8_t *at;
  size_t left;
  bool bad;
};

static const uint8_t *schema_take(struct schema_reader *in, size_t size)
{
  const uint8_t *bytes = in->at;
  if (in->bad || in->left < size) {
    in->bad = true;
    return NULL;
  }
  in->at += size;
  in->left -= size;
  return bytes;
}

static uint64_t get(struct schema_reader *in, unsigned bytes)
{
  const uint8_t *from = schema_take(in, bytes);
  uint64_t value = 0;
  for (unsigned i = 0; from != NULL && i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
  return value;
}

static double get_number(struct schema_reader *in)
{
  const uint64_t bits = get(in, 8);
  double value;
  memcpy(&value, &bits, sizeof value);
  in->bad |= !isfinite(value);
  return value;
}

/* A name of the caller's; NULL if it is bad. */
static char *get_name(struct schema_reader *in)
{
  const size_t size = get(in, 2);
  const uint8_t *bytes = size > PLM_LABEL_NAME_MOST ? NULL : schema_take(in, size);
  if (bytes == NULL || memchr(bytes, 0, size) != NULL) {
    in->bad = true;
    return NULL;
  }
  return plm_strndup((const char *)bytes, size);
}

static void get_classes(struct schema_reader *in, struct plm_label_column *column)
{
  enum { LEAST = 11 }; /* bytes of a class */
  const uint64_t count = get(in, 4);
  if (in->bad || count > plm_label_most_classes(column->kind) || count > in->left / LEAST) {
    in->bad = true;
    return;
  }
  column->class_count = (uint32_t)count;
  column->classes = plm_alloc_zeroed(count, sizeof *column->classes);
  column->counts = plm_alloc_zeroed(count, sizeof *column->counts);
  for (uint32_t c = 0; c < count && !in->bad; c++) {
    column->classes[c] = get_name(in);
    column->counts[c] = get(in, 8);
  }
}

static void get_column(struct schema_reader *in, struct plm_label_column *column)
{
  const uint64_t kind = get(in, 1);
  if (kind == PLM_LABEL_GUESSED || kind >= PLM_LABEL_KINDS) {
    in->bad = true;
    return;
  }
  column->kind = (enum plm_label_kind)kind;
  column->name = get_name(in);
  for (int s = 0; s < PLM_PROOF_SPLITS; s++) column->labels[s] = get(in, 8);
  if (column->kind != PLM_LABEL_NUMBER) {
    get_classes(in, column);
    return;
  }
  column->mean = get_number(in);
  column->deviation = get_number(in);
  in->bad |= column->deviation < 0;
}

plm_status plm_label_schema_decode(const void *bytes, size_t size, struct plm_label_schema *schema,
                                   struct plm_error *error)
{
  struct schema_reader in = {.at = bytes, .left = size};
  *schema = (struct plm_label_schema){0};
  in.bad |= get(&in, 4) != PLM_LABEL_SCHEMA_VERSION;
  const uint64_t count = get(&in, 4);
  in.bad |= count == 0 || count > PLM_LABEL_COLUMNS_MOST;
  if (!in.bad) {
    schema->columns = plm_alloc_zeroed(count, sizeof *schema->columns);
    schema->count = (uint32_t)count;
  }
  for (uint32_t i = 0; i < schema->count && !in.bad; i++) get_column(&in, &schema->columns[i]);
  const plm_status status =
      in.bad || in.left != 0
          ? plm_error_set(error, PLM_FORMAT, "the schema of the labels is malformed")
          : plm_label_schema_check(schema, error);
  if (status == PLM_OK) return PLM_OK;
  plm_label_schema_deinit(schema);
  if (error != NULL) error->status = PLM_FORMAT;
  return PLM_FORMAT;
}
