/* A split whose documents are drawn, with the hash trees that prove it: what a packer has of a
 * corpus, without a corpus. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_PROVEN_SPLIT_H
#define PLM_TESTS_SUPPORT_CORPORA_PROVEN_SPLIT_H

#include "common/plan/plan.h"
#include "common/proof/proof.h"
#include "common/wire/tables.h"
#include "tests/support/corpora/known_split.h"

struct proven_split {
  const struct plm_tokenizer *tokenizer;
  uint32_t seed;
  struct plm_proof_split split;
  const uint32_t *lengths, *clusters; /* borrowed */
  struct plm_proof_digest *digests;
  const struct plm_label_schema *schema;  /* borrowed; NULL: the split has no labels */
  struct plm_proof_digest *label_digests; /* NULL without labels */
  struct plm_tables_input input;
};

/* Borrows lengths, clusters and schema; the last two may be NULL. Sequences and labels are a
 * function of the seed. */
void proven_split_open(struct proven_split *made, enum plm_tokenizer_kind tokenizer, uint32_t seed,
                       const struct known_split *of);
void proven_split_open_labelled(struct proven_split *made, enum plm_tokenizer_kind tokenizer,
                                uint32_t seed, const struct known_split *of,
                                const struct plm_label_schema *schema);
void proven_split_close(struct proven_split *made);

/* The token ids of a document. The caller frees them. */
void *proven_split_tokens(const struct proven_split *made, uint64_t document);
/* The label record of a document, of a schema as label_schema_make makes it. The caller frees it.
 */
uint8_t *proven_split_record(const struct proven_split *made, uint64_t document);
/* The payload of DATA for all chunks of a window, whose layout is given. The caller frees it. */
uint8_t *proven_split_chunks(const struct proven_split *made, const struct plm_window *window,
                             uint32_t max_length, const uint64_t *offset);
/* The hashes of the sequences of a window's documents, in the window's order. The caller frees
 * them. */
struct plm_proof_digest *proven_split_digests(const struct proven_split *made,
                                              const struct plm_window *window);

#endif
