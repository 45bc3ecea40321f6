/* FILE.journal, beside FILE.partial: what a run of embed computes, and how much of it is safely in
 * the partial file, so that the same command continues where it was stopped. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_JOURNAL_H
#define PLM_EVALUATOR_EMBED_EMBED_JOURNAL_H

#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct plm_embed_journal {
  /* what is computed: a run continues only if all of this is the same */
  struct plm_hash input;      /* fingerprint of the sequences and their names */
  struct plm_hash checkpoint; /* of the weights file */
  struct plm_hash config;     /* of config.json */
  char options[256];          /* those that affect the result, in words: "pooled mean fp32 …" */
  uint64_t bytes;             /* of the result */
  /* how much is written */
  uint64_t windows;   /* finished */
  uint64_t batches;   /* finished batches of the next window */
  uint64_t sequences; /* finished in total */
};

/* Replaces the file atomically, and syncs it. */
plm_status plm_embed_journal_write(const struct plm_embed_journal *journal, const char *path,
                                   struct plm_error *error);
/* PLM_NOT_FOUND: there is no such file. PLM_FORMAT: it is not a journal of this version. */
plm_status plm_embed_journal_read(struct plm_embed_journal *journal, const char *path,
                                  struct plm_error *error);
/* Removes the journal, and a new one that a killed run may have begun. */
void plm_embed_journal_remove(const char *path);
/* PLM_EXISTS, with what differs, unless both describe the same result. */
plm_status plm_embed_journal_compare(const struct plm_embed_journal *found,
                                     const struct plm_embed_journal *wanted,
                                     struct plm_error *error);

#endif
