/* Label records: where everything is, and the forms of its values. */
#include "common/labels/label_record.h"

#include <math.h>
#include <string.h>

enum { NUMBER_BYTES = 8, CLASS_BYTES = 2 };
static const uint64_t missing_number = 0x7ff8000000000000;

static size_t mask_bytes(uint32_t classes)
{
  return (classes + 7) / 8;
}

size_t plm_label_column_size(const struct plm_label_column *column, uint32_t residues)
{
  switch (column->kind) {
  case PLM_LABEL_NUMBER: return NUMBER_BYTES;
  case PLM_LABEL_CLASS: return CLASS_BYTES;
  case PLM_LABEL_RESIDUES: return residues;
  case PLM_LABEL_CLASSES: return 1 + mask_bytes(column->class_count);
  default: PLM_ASSERT(false); return 0;
  }
}

size_t plm_label_record_offset(const struct plm_label_schema *schema, uint32_t column,
                               uint32_t residues)
{
  size_t offset = 0;
  PLM_ASSERT(column <= schema->count);
  for (uint32_t i = 0; i < column; i++)
    offset += plm_label_column_size(&schema->columns[i], residues);
  return offset;
}

size_t plm_label_record_size(const struct plm_label_schema *schema, uint32_t residues)
{
  return plm_label_record_offset(schema, schema->count, residues);
}

/* ---- values ------------------------------------------------------------------------------- */

static void write_little(uint8_t *at, uint64_t value, unsigned bytes)
{
  for (unsigned i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t read_little(const uint8_t *at, unsigned bytes)
{
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

void plm_label_put_number(uint8_t *at, double value)
{
  uint64_t bits = missing_number;
  PLM_ASSERT(!isinf(value));
  if (!isnan(value)) memcpy(&bits, &value, sizeof bits);
  write_little(at, bits, NUMBER_BYTES);
}

double plm_label_number(const uint8_t *at)
{
  const uint64_t bits = read_little(at, NUMBER_BYTES);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

void plm_label_put_class(uint8_t *at, int32_t value)
{
  PLM_ASSERT(value >= -1 && value < PLM_LABEL_CLASS_MOST);
  write_little(at, (uint64_t)value + 1, CLASS_BYTES);
}

int32_t plm_label_class(const uint8_t *at)
{
  return (int32_t)read_little(at, CLASS_BYTES) - 1;
}

void plm_label_put_residue(uint8_t *at, uint32_t i, int32_t value)
{
  PLM_ASSERT(value >= -1 && value < PLM_LABEL_RESIDUES_MOST);
  at[i] = (uint8_t)(value + 1);
}

int32_t plm_label_residue(const uint8_t *at, uint32_t i)
{
  return at[i] - 1;
}

void plm_label_put_one_of(uint8_t *at, int32_t value)
{
  PLM_ASSERT(value >= -1 && value < PLM_LABEL_CLASSES_MOST);
  at[0] = 1;
  if (value >= 0) at[1 + value / 8] |= (uint8_t)(1u << (value % 8));
}

int plm_label_has(const uint8_t *at, uint32_t value)
{
  return at[0] == 0 ? -1 : at[1 + value / 8] >> (value % 8) & 1;
}

/* ---- whole records ------------------------------------------------------------------------ */

void plm_label_record_clear(const struct plm_label_schema *schema, uint32_t residues,
                            uint8_t *record)
{
  for (uint32_t i = 0; i < schema->count; i++) {
    const size_t size = plm_label_column_size(&schema->columns[i], residues);
    memset(record, 0, size);
    if (schema->columns[i].kind == PLM_LABEL_NUMBER) plm_label_put_number(record, NAN);
    record += size;
  }
}

static bool mask_valid(const struct plm_label_column *column, const uint8_t *at)
{
  const size_t bytes = mask_bytes(column->class_count);
  if (at[0] > 1) return false;
  for (size_t i = 0; i < bytes && at[0] == 0; i++)
    if (at[1 + i] != 0) return false;
  return column->class_count % 8 == 0 || at[bytes] >> (column->class_count % 8) == 0;
}

static bool value_valid(const struct plm_label_column *column, uint32_t residues, const uint8_t *at)
{
  uint8_t greatest = 0;
  switch (column->kind) {
  case PLM_LABEL_NUMBER:
    return isfinite(plm_label_number(at)) || read_little(at, NUMBER_BYTES) == missing_number;
  case PLM_LABEL_CLASS: return plm_label_class(at) < (int32_t)column->class_count;
  case PLM_LABEL_CLASSES: return mask_valid(column, at);
  default:
    for (uint32_t i = 0; i < residues; i++) greatest = at[i] > greatest ? at[i] : greatest;
    return greatest <= column->class_count;
  }
}

plm_status plm_label_record_check(const struct plm_label_schema *schema, uint32_t residues,
                                  const uint8_t *record, struct plm_error *error)
{
  for (uint32_t i = 0; i < schema->count; i++) {
    const struct plm_label_column *column = &schema->columns[i];
    if (!value_valid(column, residues, record))
      return plm_error_set(error, PLM_FORMAT, "the label of column %s has no valid form",
                           column->name);
    record += plm_label_column_size(column, residues);
  }
  return PLM_OK;
}
