/* The list of assays of a benchmark in ProteinGym's format: a reference file (CSV) with one line
 * for each assay. Its columns DMS_id, DMS_filename, UniProt_ID, target_seq and
 * coarse_selection_type are needed, DMS_binarization_cutoff is read if it is there, and others are
 * ignored. */
#ifndef PLM_EVALUATOR_SCORE_ASSAY_LIST_H
#define PLM_EVALUATOR_SCORE_ASSAY_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "evaluator/score/variant.h"

struct plm_assay {
  char *id, *uniprot, *selection; /* DMS_id, UniProt_ID, coarse_selection_type */
  char file[PLM_PATH_SIZE];       /* the folder of assays and DMS_filename */
  uint8_t *target;                /* target_seq, in upper case; (length) */
  uint32_t length;
  double cutoff; /* DMS_binarization_cutoff; NaN if there is none */
  bool indels;   /* it has whole sequences instead of substitutions */
};

struct plm_assay_list {
  struct plm_assay *items;
  size_t count, capacity;
};

/* What is scored of a benchmark. */
struct plm_assay_choice {
  const char *const *ids; /* (id_count) DMS_id; no id: all assays */
  uint32_t id_count;
  uint64_t max_variants; /* of each assay (variant_sample.h); 0: all */
};

/* Reads the reference file and the first two lines of each assay of the choice in `folder`. An
 * assay has substitutions if it has a column `mutant` whose first entry has a digit, and otherwise
 * indels: whole sequences in the column `mutated_sequence`. The order is that of the reference
 * file. PLM_CONFIG: a column is missing, or the file lists no assay with an id of the choice.
 * PLM_NOT_FOUND: files of assays are missing; the message counts them. PLM_FORMAT: a wrong entry,
 * with file and line. */
plm_status plm_assay_list_read(const char *reference, const char *folder,
                               const struct plm_assay_choice *choice, struct plm_assay_list *list,
                               struct plm_error *error);
void plm_assay_list_deinit(struct plm_assay_list *list);

#endif
