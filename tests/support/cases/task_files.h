/* What the evaluator's tasks read: small models, a table with numbers, and proteins with contacts,
 * all in the temporary folder. Paths are put into `path` (PLM_PATH_SIZE). */
#ifndef PLM_TESTS_SUPPORT_CASES_TASK_FILES_H
#define PLM_TESTS_SUPPORT_CASES_TASK_FILES_H

#include <stdint.h>

#include "common/model/architecture.h"

enum { TASK_FILES_LENGTH = 32 /* residues of each sequence */ };

/* A model for 64 tokens. overflows: what it computes for a sequence with this residue is not
 * finite; 0: none. */
void task_files_model(const char *name, enum plm_architecture architecture, char overflows,
                      char *path);
/* Rows of sequences with a number `y`; `part` of every third one is test, and of the others train.
 */
void task_files_table(const char *name, uint32_t rows, char *path);
/* Residue `position` of sequence number n. */
char task_files_letter(uint32_t n, uint32_t position);
/* A FASTA file of sequences s0, s1 ... of length_of(n) such residues. */
void task_files_fasta(const char *path, uint32_t count, uint32_t (*length_of)(uint32_t n));
/* A folder of that many proteins. */
void task_files_proteins(const char *name, uint32_t count, char *path);

#endif
