/* The label record of a document: its labels in the order of the schema's columns. Its size follows
 * from the schema and the document's length, so both ends of a feed know it.
 *
 *   number    f64, little-endian; missing: the quiet NaN 0x7ff8000000000000
 *   class     u16, little-endian: class + 1; missing: 0
 *   residues  for each residue one byte: class + 1; missing: 0
 *   classes   one byte, 1; then bit c % 8 of byte c / 8 for each class c; missing: all are 0
 *
 * A value has exactly one form, so equal labels have equal records and equal hashes. */
#ifndef PLM_COMMON_LABELS_LABEL_RECORD_H
#define PLM_COMMON_LABELS_LABEL_RECORD_H

#include "common/labels/label_schema.h"

enum { PLM_LABEL_RECORD_LIMIT = 1 << 20 }; /* bytes */

/* Bytes of the labels of one column, or of all columns, of a document. 0 without columns. */
size_t plm_label_column_size(const struct plm_label_column *column, uint32_t residues);
size_t plm_label_record_size(const struct plm_label_schema *schema, uint32_t residues);
/* Where a column begins in the record. */
size_t plm_label_record_offset(const struct plm_label_schema *schema, uint32_t column,
                               uint32_t residues);
/* Fills a record with missing labels only. */
void plm_label_record_clear(const struct plm_label_schema *schema, uint32_t residues,
                            uint8_t *record);
/* PLM_FORMAT names the column whose bytes are none of the forms above. */
plm_status plm_label_record_check(const struct plm_label_schema *schema, uint32_t residues,
                                  const uint8_t *record, struct plm_error *error);

/* Labels of one column, at its place in a record (plm_label_record_offset). */
void plm_label_put_number(uint8_t *at, double value);               /* NaN: missing */
void plm_label_put_class(uint8_t *at, int32_t value);               /* -1: missing */
void plm_label_put_residue(uint8_t *at, uint32_t i, int32_t value); /* -1: missing */
void plm_label_put_one_of(uint8_t *at, int32_t value); /* adds a class; -1: known, with none yet */
double plm_label_number(const uint8_t *at);            /* NaN: missing */
int32_t plm_label_class(const uint8_t *at);            /* -1: missing */
int32_t plm_label_residue(const uint8_t *at, uint32_t i); /* -1: missing */
int plm_label_has(const uint8_t *at, uint32_t value);     /* 1, 0; -1: missing */

#endif
