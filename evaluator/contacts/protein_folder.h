/* Proteins with known contacts: a folder with NAME.fasta and NAME.contacts for each. The FASTA file
 * has one sequence. Each line of the other file names two residues in contact, counted from 1 and
 * separated by blanks, a tab or a comma; further columns (such as those of CASP's RR format), empty
 * lines and lines that begin with # are not read. Which distance is a contact is the user's choice;
 * Rao et al. take 8 angstroms between C-beta atoms. */
#ifndef PLM_EVALUATOR_CONTACTS_PROTEIN_FOLDER_H
#define PLM_EVALUATOR_CONTACTS_PROTEIN_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"

enum { PLM_PROTEIN_LIMIT = 1 << 16 }; /* residues */

struct plm_contact_pair {
  uint32_t i, j; /* residues from 0, i < j */
};

struct plm_contact_protein {
  char *name;
  uint8_t *residues;
  uint32_t length;
  struct plm_contact_pair *pairs; /* (count) ascending, no two equal */
  size_t count;
};

struct plm_protein_folder {
  struct plm_contact_protein *proteins; /* (count) in the byte order of their names */
  size_t count;
};

/* The caller frees it with _deinit. PLM_NOT_FOUND: no such folder. PLM_FORMAT: it is a file, a
 * protein has only one of its files, or a file is malformed; the error says where. */
plm_status plm_protein_folder_read(const char *path, enum plm_tokenizer_kind tokenizer,
                                   struct plm_protein_folder *folder, struct plm_error *error);
void plm_protein_folder_deinit(struct plm_protein_folder *folder);

#endif
