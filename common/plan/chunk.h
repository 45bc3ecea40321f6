/* A chunk: max_length tokens that hold whole documents (or pieces), and the table that says where.
 * Boundaries come from this table, never from looking for <cls>. */
#ifndef PLM_COMMON_PLAN_CHUNK_H
#define PLM_COMMON_PLAN_CHUNK_H

#include <stdint.h>

/* One document (or piece) in a chunk. On the wire: the same fields, little-endian, in this order,
 * u64 then four u32. */
struct plm_chunk_document {
  uint64_t number;   /* in its split */
  uint32_t start;    /* first token's place in the chunk */
  uint32_t tokens;   /* in the chunk, <cls> and <eos> included where present */
  uint32_t offset;   /* of its first residue in the whole document */
  uint32_t residues; /* of the whole document */
};

/* A batch of `chunks` chunks, as feeds deliver it and the model takes it. Who fills it owns it. */
struct plm_batch {
  uint32_t chunks;                            /* B */
  uint32_t max_length;                        /* L */
  uint32_t token_bytes;                       /* 1 or 2 */
  const void *tokens;                         /* (B, L), padding <pad> */
  const uint32_t *document_begin;             /* (B + 1) into documents */
  const struct plm_chunk_document *documents; /* in a chunk: ascending start */
  uint64_t first_chunk;      /* g of chunk 0: chunks consumed by the run before it */
  const uint64_t *chunk_ids; /* (B) g of each chunk, or NULL: first_chunk + i */
};

#endif
