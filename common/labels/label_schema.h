/* What labels the documents of a corpus have: the columns of the table that they came from, with
 * the names of classes, and statistics of the training split. A corpus has one schema or none, and
 * its fingerprint covers the schema. doc/data.md#labels
 *
 *   kind      a document's label                                   limits
 *   number    a finite number                                      -
 *   class     one of the column's classes                          65,535 classes
 *   residues  one of the column's classes for each residue         255 classes
 *   classes   any number of the column's classes, even none        16,384 classes
 *
 * Every label may be missing, also that of a single residue. Classes are in the order of their
 * bytes, and are named in UTF-8.
 *
 * A schema as bytes, which are hashed and sent: little-endian, u32 1 (the version), u32 columns,
 * and for each column u8 kind, u16 size of the name, the name, u64 labels of each of train, valid
 * and test; of numbers f64 mean, f64 standard deviation; otherwise u32 classes, and for each class
 * u16 size of the name, the name, u64 labels in train. */
#ifndef PLM_COMMON_LABELS_LABEL_SCHEMA_H
#define PLM_COMMON_LABELS_LABEL_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proof/proof.h"

enum plm_label_kind {
  PLM_LABEL_GUESSED, /* only in a request to read a table: its labels decide */
  PLM_LABEL_NUMBER,
  PLM_LABEL_CLASS,
  PLM_LABEL_RESIDUES,
  PLM_LABEL_CLASSES,
  PLM_LABEL_KINDS
};
/* "number", "class", "residues", "classes"; not of PLM_LABEL_GUESSED. */
const char *plm_label_kind_name(enum plm_label_kind kind);

enum {
  PLM_LABEL_SCHEMA_VERSION = 1,
  PLM_LABEL_COLUMNS_MOST = 256,
  PLM_LABEL_NAME_MOST = 1024, /* bytes of the name of a column or a class */
  PLM_LABEL_CLASS_MOST = 65535,
  PLM_LABEL_RESIDUES_MOST = 255,
  PLM_LABEL_CLASSES_MOST = 16384,
  PLM_LABEL_SCHEMA_LIMIT = 1 << 19, /* bytes of a schema */
};
/* The largest number of classes that a column of this kind may have; 0 of numbers. */
uint32_t plm_label_most_classes(enum plm_label_kind kind);

struct plm_label_column {
  char *name;
  enum plm_label_kind kind;
  char **classes; /* (class_count), sorted by their bytes, without repeats; NULL for numbers */
  uint32_t class_count;
  /* How many labels are not missing in train, valid and test: of residues, these count, otherwise
   * documents. */
  uint64_t labels[PLM_PROOF_SPLITS];
  double mean, deviation; /* of numbers of the training split (n in the divisor); 0 without any */
  uint64_t *counts;       /* (class_count) labels of the training split; NULL for numbers */
};

/* Begins with {0}: no columns. */
struct plm_label_schema {
  struct plm_label_column *columns;
  uint32_t count;
};
void plm_label_schema_deinit(struct plm_label_schema *schema);
void plm_label_schema_copy(const struct plm_label_schema *from, struct plm_label_schema *to);

/* The column with this name; NULL: there is none. */
const struct plm_label_column *plm_label_schema_find(const struct plm_label_schema *schema,
                                                     const char *name);
/* Whether two columns mean the same: name, kind and classes, not the statistics. */
bool plm_label_column_equal(const struct plm_label_column *a, const struct plm_label_column *b);

/* PLM_LIMIT, PLM_FORMAT: a column has too many classes or a name that is too long, empty, not UTF-8
 * or has control characters; classes are not sorted; two columns have one name; the schema is
 * longer than PLM_LABEL_SCHEMA_LIMIT. */
plm_status plm_label_schema_check(const struct plm_label_schema *schema, struct plm_error *error);

/* The size of a schema as bytes, and the bytes. 0 bytes: it has no columns. */
size_t plm_label_schema_bytes(const struct plm_label_schema *schema);
void plm_label_schema_encode(const struct plm_label_schema *schema, uint8_t *bytes);
/* Reads and checks a schema of at least one column. The caller deinits on success. PLM_FORMAT: the
 * bytes are no schema. */
plm_status plm_label_schema_decode(const void *bytes, size_t size, struct plm_label_schema *schema,
                                   struct plm_error *error);
/* The hash of these bytes, as the fingerprint of a corpus takes it (common/proof/proof.h). */
struct plm_proof_digest plm_label_schema_digest(const struct plm_label_schema *schema);

#endif
