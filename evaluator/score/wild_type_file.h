/* The wild type given on the command line: a file with one sequence, or the letters of the
 * sequence. */
#ifndef PLM_EVALUATOR_SCORE_WILD_TYPE_FILE_H
#define PLM_EVALUATOR_SCORE_WILD_TYPE_FILE_H

#include "common/sequences/sequence_reader.h"
#include "evaluator/score/variant.h"

enum { PLM_WILD_TYPE_LIMIT = 1 << 20 }; /* residues */

/* If text names a file (FASTA, JSONL, a table or text; plain, .gz or .zst; "-" is standard input),
 * the sequence is read from it; otherwise text is the sequence. first is the number of its first
 * residue. choices hold for a file. The caller frees it with _deinit. PLM_FORMAT: there is no
 * sequence, more than one, or a malformed one. PLM_LIMIT: it is too long. PLM_NOT_FOUND: text is
 * neither a file nor letters. */
plm_status plm_wild_type_read(const char *text, const struct plm_sequence_choices *choices,
                              enum plm_tokenizer_kind tokenizer, int64_t first,
                              struct plm_wild_type *wild_type, struct plm_error *error);
void plm_wild_type_deinit(struct plm_wild_type *wild_type);

#endif
