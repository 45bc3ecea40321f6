/* The wild type that a command line names: a file with one sequence, or the sequence itself. */
#ifndef PLM_EVALUATOR_SCORE_WILD_TYPE_FILE_H
#define PLM_EVALUATOR_SCORE_WILD_TYPE_FILE_H

#include "evaluator/score/variant.h"

enum { PLM_WILD_TYPE_LIMIT = 1 << 20 }; /* residues */

/* text is a file (FASTA, JSONL or text; plain, .gz or .zst; "-": standard input) where there is one
 * of that name, else letters. first is the number of the first residue. The caller deinits.
 * PLM_FORMAT: no sequence, more than one, one that cannot be read. PLM_NOT_FOUND: no such file, and
 * no letters. */
plm_status plm_wild_type_read(const char *text, enum plm_tokenizer_kind tokenizer, int64_t first,
                              struct plm_wild_type *wild_type, struct plm_error *error);
void plm_wild_type_deinit(struct plm_wild_type *wild_type);

#endif
