/* A chunk is max_length tokens that hold documents (or pieces of long ones), and a table of where
 * they are. Their boundaries come from this table, never from looking for <cls>. */
#ifndef PLM_COMMON_PLAN_CHUNK_H
#define PLM_COMMON_PLAN_CHUNK_H

#include <stdint.h>

/* One document (or piece) in a chunk. On the wire these are the same fields in the same order,
 * little-endian. */
struct plm_chunk_document {
  uint64_t number;   /* in its split */
  uint32_t start;    /* the index of its first token in the chunk */
  uint32_t tokens;   /* in the chunk, including <cls> and <eos> if it has them */
  uint32_t offset;   /* the index of its first residue in the whole document */
  uint32_t residues; /* of the whole document */
};

/* A batch of chunks, as the feed delivers it and the model takes it. The pointers are borrowed. */
struct plm_batch {
  uint32_t chunks;                            /* B */
  uint32_t max_length;                        /* L */
  uint32_t token_bytes;                       /* 1 or 2 */
  const void *tokens;                         /* (B, L), padding <pad> */
  const uint32_t *document_begin;             /* (B + 1) into documents */
  const struct plm_chunk_document *documents; /* of each chunk, by ascending start */
  uint64_t first_chunk;   /* g of chunk 0: the number of chunks that the run consumed before it */
  const uint8_t *sources; /* (B) of each chunk; NULL: not known here */
  const uint64_t *chunk_ids; /* (B) g of each chunk; NULL: g of chunk i is first_chunk + i */
  /* Label records (common/labels/label_record.h): that of document d of the table is labels +
   * label_at[d], of the whole document even for a piece. NULL: the corpora have no labels. */
  const uint8_t *labels;
  const uint64_t *label_at; /* for each document of the table, ascending, and then the end */
};

#endif
