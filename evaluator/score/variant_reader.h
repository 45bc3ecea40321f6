/* Where the variants to score come from: words of the command line, a column of a CSV file, or
 * every single substitution of the wild type (a deep mutational scan). They are read twice, to
 * check and to score. */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_READER_H
#define PLM_EVALUATOR_SCORE_VARIANT_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sequences/csv_file.h"
#include "evaluator/score/variant.h"

struct plm_variant_reader_request {
  const char *csv;          /* a file; NULL: texts */
  const char *const *texts; /* (text_count); NULL: all substitutions */
  size_t text_count;
  const char *mutations, *measured; /* names of columns; measured may be NULL */
  const char *added;                /* name of the new column of scores */
  uint64_t most; /* of a file: only such a sample of its rows (variant_sample.h); 0: all */
};

/* A variant to score. It is valid until the next one is read. */
struct plm_variant_entry {
  const char *text;
  size_t size;
  struct plm_csv_row row; /* of a CSV file; else empty */
  double measured;        /* NaN if there is none */
};

struct plm_variant_reader;
/* wild_type, and the texts that request points to, are borrowed. PLM_CONFIG: the CSV file lacks one
 * of the columns, or already has the new one. PLM_FORMAT: it is empty. */
plm_status plm_variant_reader_open(const struct plm_variant_reader_request *request,
                                   const struct plm_wild_type *wild_type,
                                   struct plm_variant_reader **reader, struct plm_error *error);
void plm_variant_reader_close(struct plm_variant_reader *reader); /* NULL is fine */

/* The next variant; *ended is true if there is none. PLM_FORMAT with *ended false concerns one
 * entry, and reading may continue: the row does not have as many fields as the header, or its
 * measured value is not a number. Other errors end the reading. */
plm_status plm_variant_reader_next(struct plm_variant_reader *reader,
                                   struct plm_variant_entry *entry, bool *ended,
                                   struct plm_error *error);
plm_status plm_variant_reader_rewind(struct plm_variant_reader *reader, struct plm_error *error);

/* Puts the place of the last entry (file, line and column) into error->where. */
void plm_variant_reader_where(const struct plm_variant_reader *reader, struct plm_error *error);

/* Append to out the header line of the output, and the fields that precede an entry's score. */
void plm_variant_reader_header(const struct plm_variant_reader *reader, struct plm_text *out);
void plm_variant_reader_fields(const struct plm_variant_reader *reader,
                               const struct plm_variant_entry *entry, struct plm_text *out);

#endif
