/* Where variants to score come from: words of the command line, a column of a CSV file, or every
 * single substitution of the wild type (a deep mutational scan). Read twice: to check, to score. */
#ifndef PLM_EVALUATOR_SCORE_VARIANT_SOURCE_H
#define PLM_EVALUATOR_SCORE_VARIANT_SOURCE_H

#include <stdbool.h>

#include "evaluator/score/csv_file.h"
#include "evaluator/score/variant.h"

struct plm_variant_source_request {
  const char *csv;          /* or NULL: */
  const char *const *texts; /* (text_count), else all substitutions */
  size_t text_count;
  const char *mutations, *measured; /* columns; measured may be NULL */
  const char *added;                /* the column of scores, which must not be there yet */
};

/* A variant to be scored, valid until the next. */
struct plm_variant_entry {
  const char *text;
  size_t size;
  struct plm_csv_row row; /* of a CSV file */
  double measured;        /* NaN: none */
};

struct plm_variant_source;
/* PLM_CONFIG: a CSV file without these columns, or with the added one. request and wild_type are
 * borrowed. */
plm_status plm_variant_source_open(const struct plm_variant_source_request *request,
                                   const struct plm_wild_type *wild_type,
                                   struct plm_variant_source **source, struct plm_error *error);
void plm_variant_source_close(struct plm_variant_source *source); /* NULL is fine */

/* *ended: there is none. PLM_FORMAT about one entry (*ended is false: reading may go on): a row
 * without as many fields as the header, a measured value that is no number. Other errors end it. */
plm_status plm_variant_source_next(struct plm_variant_source *source,
                                   struct plm_variant_entry *entry, bool *ended,
                                   struct plm_error *error);
plm_status plm_variant_source_rewind(struct plm_variant_source *source, struct plm_error *error);

/* Names the place of the entry that was read last in error->where, for people. */
void plm_variant_source_where(const struct plm_variant_source *source, struct plm_error *error);

/* The header of the output, and the fields in front of an entry's score. */
void plm_variant_source_header(const struct plm_variant_source *source, struct plm_text *out);
void plm_variant_source_fields(const struct plm_variant_source *source,
                               const struct plm_variant_entry *entry, struct plm_text *out);

#endif
