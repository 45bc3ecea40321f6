/* The labels that a table gives the documents of a new corpus, and their splits.
 *
 * The table is read into memory before the sequences are, once for each column, by the rules of
 * common/sequences/labelled_table.h. If it is the table that also has the sequences, a sequence's
 * row is the one of its line; otherwise, beside FASTA, the one with its name. */
#ifndef PLM_STAGES_INGEST_LABEL_TABLE_H
#define PLM_STAGES_INGEST_LABEL_TABLE_H

#include <stdbool.h>

#include "common/corpus/corpus.h"
#include "common/labels/label_record.h"
#include "common/sequences/labelled_table.h"
#include "common/sequences/sequence_reader.h"

struct plm_label_options {
  const char *columns;         /* COLUMN[:KIND][,COLUMN[:KIND]]...; NULL: no labels */
  const char *table;           /* beside FASTA; NULL: the input is the table */
  const char *split_column;    /* NULL: the hash of the sequence decides */
  const char *sequence_column; /* as plm_sequence_choices has them */
  const char *name_column;
};
/* Whether a table has to be read. */
bool plm_label_options_any(const struct plm_label_options *options);

struct plm_label_table;
/* Reads `input`, or options->table. PLM_USAGE: the list of columns. Other errors, with line and
 * column, are those of plm_labelled_table_read; PLM_FORMAT also: a column has no label at all, a
 * name is repeated, or the column of splits has folds. */
plm_status plm_label_table_open(const struct plm_label_options *options, const char *input,
                                enum plm_tokenizer_kind tokenizer, struct plm_label_table **table,
                                struct plm_error *error);
void plm_label_table_close(struct plm_label_table *table); /* NULL is fine */

/* NULL: there are no columns of labels. Its statistics are not set. */
const struct plm_label_schema *plm_label_table_schema(const struct plm_label_table *table);

/* What the table says of a sequence. */
struct plm_label_row {
  const uint8_t *record; /* its label record, until the next call; NULL without a schema */
  size_t record_size;
  bool has_split;
  enum plm_split split;
};
/* Begins the row with the split of a sequence. Sequences come in the order of the input. False:
 * there is a column of splits, and it has none for this sequence, which is counted. */
bool plm_label_table_includes(struct plm_label_table *table, const struct plm_sequence *sequence,
                              struct plm_label_row *row);
/* Adds the record of a sequence that is included. PLM_FORMAT, with line and column: labels of
 * residues have another number than the sequence has residues. PLM_LIMIT: the record is too long.
 */
plm_status plm_label_table_find(struct plm_label_table *table, const struct plm_sequence *sequence,
                                struct plm_label_row *row, struct plm_error *error);

/* Says what was unusual: rows without a sequence, sequences without labels or without a split,
 * those that several splits have, and classes that the training split of this schema does not have.
 * PLM_FORMAT: no sequence has any label. */
plm_status plm_label_table_report(const struct plm_label_table *table,
                                  const struct plm_label_schema *schema, struct plm_error *error);

#endif
