/* FILE.journal beside FILE.partial: what a run of embed computes, and how much of it lies safely in
 * the partial file, so that the same command goes on where it was stopped. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_JOURNAL_H
#define PLM_EVALUATOR_EMBED_EMBED_JOURNAL_H

#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

struct plm_embed_journal {
  /* what is computed: a run goes on only where all of this is the same */
  struct plm_hash input;      /* fingerprint of the sequences and their names */
  struct plm_hash checkpoint; /* of the weights file */
  struct plm_hash config;     /* of config.json */
  char options[256];          /* what decides the bytes, in words: "pooled mean fp32 …" */
  uint64_t bytes;             /* of the result */
  /* how far: batches of a window are a function of the above */
  uint64_t windows;   /* done */
  uint64_t batches;   /* done of the window after them */
  uint64_t sequences; /* done in all */
};

/* Replaces the file, atomically and synced. */
plm_status plm_embed_journal_write(const struct plm_embed_journal *journal, const char *path,
                                   struct plm_error *error);
/* PLM_NOT_FOUND: no such file. PLM_FORMAT: not a journal of ours. */
plm_status plm_embed_journal_read(struct plm_embed_journal *journal, const char *path,
                                  struct plm_error *error);
/* And what a killed run may have left of a new one. */
void plm_embed_journal_remove(const char *path);
/* PLM_EXISTS names what differs between the journal found and the run that was asked for. */
plm_status plm_embed_journal_compare(const struct plm_embed_journal *found,
                                     const struct plm_embed_journal *wanted,
                                     struct plm_error *error);

#endif
