/* Reads a table of sequences with labels, which the user's columns name, into memory: CSV, TSV
 * (csv_file.h) or JSON lines, plain, .gz or .zst. JSON lines are recognised by their first
 * character, {; each line is an object, and its keys are the columns.
 *
 * The label of a row is one of these:
 *
 *   number    a decimal number with a point
 *   class     any text; numbers in JSON count as their text, and true and false as these words
 *   classes   several classes, separated by ; or | or commas, in brackets or not; in JSON an array.
 *             [] is none of them
 *   residues  one class for each residue: as many characters as the sequence has residues, or as
 *             many words, separated by blanks, commas or semicolons, in brackets or not; in JSON
 *             a string or an array. ? or null is a residue without a label.
 *
 * A label is missing if its field is empty or one of NA, N/A, #N/A, NaN, nan, null, NULL and None.
 * Such rows are counted and left out, and so are those whose field of the split is missing.
 *
 * The split says train, training, learn; valid, validation, val, dev; or test, testing. Case does
 * not matter. Integers are folds instead. If its column is called `set` and the table has a column
 * `validation`, rows of the training part that say true there are the validation part (FLIP's
 * format). Without a column, the hash of the sequence decides: XXH3-64 modulo 10 is 0 to 7 for
 * train, 8 for valid and 9 for test. */
#ifndef PLM_COMMON_SEQUENCES_LABELLED_TABLE_H
#define PLM_COMMON_SEQUENCES_LABELLED_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/labels/label_schema.h"

enum plm_label_part { PLM_PART_TRAIN, PLM_PART_VALID, PLM_PART_TEST, PLM_PARTS };
extern const char *const plm_label_part_names[]; /* "train", "valid", "test" */

enum { PLM_MOST_CLASSES = 1000 };

struct plm_labelled_request {
  const char *path;            /* "-" is standard input */
  const char *sequence_column; /* NULL: sequence, seq, protein_sequence or mutated_sequence */
  const char *target_column;
  const char *split_column; /* NULL: the hash of the sequence decides */
  /* Not NULL: rows have names instead of sequences, and the labels of residues any number. */
  const char *name_column;
  /* The labels are to be ingested: rows with a bad sequence are left out, a column may have as many
   * classes as a schema allows, and hints name the options of ingest. */
  bool corpus;
  enum plm_label_kind kind; /* classes only with corpus. PLM_LABEL_GUESSED: residues if most labels
                               fit the lengths of their sequences and are no numbers with a point or
                               a sign; classes if a label is no number, or all are 0 or 1; otherwise
                               numbers */
  enum plm_tokenizer_kind
      tokenizer; /* with esm, letters become upper case, and others are errors */
};

struct plm_labelled_row {
  uint64_t line;     /* on which the row begins, from 1 */
  uint8_t *residues; /* (length); NULL with a column of names */
  uint32_t length;   /* with a column of names, that of labels */
  char *name;        /* with a column of names, else NULL */
  double number;
  int32_t label;   /* of a class */
  int32_t *labels; /* (length) for residues; -1: missing. (label_count) for classes. Else NULL */
  uint32_t label_count;
  uint32_t part; /* enum plm_label_part, or the number of the fold in the order of the integers */
};

struct plm_labelled_table {
  char *path; /* as messages name it */
  char *target_name;
  enum plm_label_kind kind; /* never GUESSED */
  struct plm_labelled_row *rows;
  size_t count;
  char **classes; /* (class_count) in the order of their bytes */
  uint32_t class_count;
  uint32_t folds;          /* 0: there are parts */
  size_t parts[PLM_PARTS]; /* rows of each */
  bool hashed;             /* the hash of the sequence chose the parts */
  uint64_t missing_labels, missing_splits;
  struct { /* rows whose sequence another part has too */
    uint64_t count;
    uint64_t line;     /* the first of them; 0: none */
  } shared[PLM_PARTS]; /* by part; all folds in the first */
};

/* The caller frees the table with _deinit, also after an error. PLM_FORMAT, with line and column:
 * the table, a sequence, a label or a split is wrong, or a name is repeated; without them: it is a
 * folder. PLM_LIMIT: more than PLM_MOST_CLASSES classes, or, for a corpus, plm_label_most_classes.
 * PLM_NO_MEMORY. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. */
plm_status plm_labelled_table_read(const struct plm_labelled_request *request,
                                   struct plm_labelled_table *table, struct plm_error *error);
void plm_labelled_table_deinit(struct plm_labelled_table *table);

#endif
