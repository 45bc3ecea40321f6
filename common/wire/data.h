/* DATA's payload: chunks of a window, one after another. Each has
 *
 *   tokens, packed together (common/wire/token_bits.h):
 *     max_length of them; <pad> between and after the documents
 *     and then for each piece of a longer document (as far as it has residues), in order:
 *       the residues' token ids before the piece, from the beginning of the block in which its
 *         first residue is (common/proof: blocks of 512)
 *       those after it, to the end of the block in which its last residue is
 *   for each such piece, the path of these blocks in the document's tree: hashes of 32 bytes
 *   and, in a corpus with labels, for each document or piece in order: the label record of the
 *     whole document (common/labels/label_record.h)
 *
 * Which documents are where, and so how many bytes each chunk has, follows from the plan and the
 * schema of the labels, which both sides know.
 */
#ifndef PLM_COMMON_WIRE_DATA_H
#define PLM_COMMON_WIRE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/labels/label_record.h"
#include "common/plan/plan.h"
#include "common/proof/proof.h"

/* The residues of a piece among those of its document, and the blocks that prove them. */
struct plm_data_piece {
  bool has_cls, has_eos;
  uint64_t begin, end;             /* residues of the piece; equal if it has only <eos> */
  bool whole;                      /* it has all residues of the document */
  uint64_t block_begin, block_end; /* blocks that contain residues of the piece */
  uint64_t before, after;          /* residues of these blocks that are not in the piece */
  uint32_t path;                   /* nodes */
};
void plm_data_piece(const struct plm_chunk_document *document, struct plm_data_piece *piece);

/* The tokens of a chunk with those that prove its pieces, the tokens of the blocks that contain its
 * pieces, and the bytes of their paths. */
struct plm_data_extent {
  uint64_t tokens, block_tokens, path_bytes;
};
struct plm_data_extent plm_data_extent(uint32_t max_length, const struct plm_window *window,
                                       uint32_t chunk);
/* The place of each chunk of a window in its payload: offset (chunks + 1), in bytes. schema: of the
 * labels; NULL: none. */
void plm_data_layout(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                     const struct plm_label_schema *schema, const struct plm_window *window,
                     uint64_t *offset);
/* Where the label records of a chunk begin, in bytes from the beginning of the chunk. */
uint64_t plm_data_labels_at(const struct plm_tokenizer *tokenizer, uint32_t max_length,
                            const struct plm_window *window, uint32_t chunk);
/* Bytes of the greatest chunk of a plan, without label records, at most PLM_WIRE_DATA_LIMIT. */
size_t plm_data_chunk_most(const struct plm_plan_parameters *plan);

/* Where the next piece's evidence goes: its tokens, from number `at` of the chunk on, and its path.
 */
struct plm_data_evidence {
  uint8_t *chunk;
  size_t at;
  uint8_t *path;
};
/* Writes what proves a piece, and moves `to` behind it. residues: token ids of the whole document;
 * tree: over its blocks. Not for a whole document. */
void plm_data_write_evidence(const struct plm_tokenizer *tokenizer,
                             const struct plm_chunk_document *document, const void *residues,
                             const struct plm_proof_tree *tree, struct plm_data_evidence *to);

/* What a consumer knows of chunks that it asked for. */
struct plm_data_known {
  const struct plm_tokenizer *tokenizer;
  uint32_t max_length;
  const struct plm_window *window;        /* planned from lengths that are proven */
  const struct plm_proof_digest *digests; /* (document_count) the sequence of each document */
  const uint64_t *offset;                 /* plm_data_layout */
  const struct plm_label_schema *schema;  /* of the labels; NULL: none */
  const struct plm_proof_digest *labels;  /* (document_count) the label record of each document */
};
/* Memory for checks; begins with {0}, and may be used again and again. */
struct plm_data_scratch {
  uint8_t *tokens;                /* of some chunks, unpacked */
  uint8_t *pieces;                /* the blocks of pieces, one after another */
  struct plm_proof_part *parts;   /* what is hashed for each document */
  struct plm_proof_digest *found; /* the hash that follows */
  size_t tokens_bytes, pieces_bytes, parts_bytes, found_bytes;
};
void plm_data_scratch_deinit(struct plm_data_scratch *scratch);
/* Checks that `payload` is chunks [first, first + count) of the window: each token of each
 * document, <cls>, <eos>, <pad>, the bits after the last token, which are 0, and label records.
 * PLM_PROTOCOL: the size is wrong, so nothing was read. PLM_CORRUPT names the first document with a
 * false token or label, or the chunk with false padding or bits after its tokens. PLM_FORMAT: the
 * corpus itself has a token outside the vocabulary, or a label without a valid form, so no packer
 * is at fault. Consumers check nothing of this again. */
plm_status plm_data_check(const struct plm_data_known *known, uint32_t first, uint32_t count,
                          const void *payload, size_t size, struct plm_data_scratch *scratch,
                          struct plm_error *error);

#endif
