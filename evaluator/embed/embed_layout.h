/* What lies where in the file of embeddings, and its header: fp32, little-endian, in the order of
 * the input.
 *
 *   safetensors   pooled: one tensor `embeddings` (N, width). Otherwise one tensor a sequence,
 * named by its number from 0, (tokens, width). Metadata: `names`, a JSON array, and for pooled ones
 * `pooling`. The format allows a header of 100 MB. npy           version 1, (N, width), pooled
 * alone; the names go into a JSON file of their own
 */
#ifndef PLM_EVALUATOR_EMBED_EMBED_LAYOUT_H
#define PLM_EVALUATOR_EMBED_EMBED_LAYOUT_H

#include <stdint.h>

#include "common/base/status.h"
#include "evaluator/embed/sequence_spool.h"

enum plm_embed_kind { PLM_EMBED_POOLED, PLM_EMBED_PER_TOKEN, PLM_EMBED_LOGITS };
enum plm_embed_format { PLM_EMBED_SAFETENSORS, PLM_EMBED_NPY };

struct plm_embed_layout {
  enum plm_embed_kind kind;
  enum plm_embed_format format;
  const char *pooling; /* "mean,max" when pooled; borrowed */
  uint32_t width;      /* floats a row */
  uint64_t rows;       /* in the whole file: sequences, or their tokens */
  uint64_t header_bytes, bytes;
};

/* ".safetensors" or ".npy" at the end of path; PLM_USAGE otherwise, or when the format does not
 * hold that kind. */
plm_status plm_embed_format_of(const char *path, enum plm_embed_kind kind,
                               enum plm_embed_format *format, struct plm_error *error);

/* From kind, format, pooling and width: rows and bytes. PLM_LIMIT: the header would be larger than
 * the format allows. */
plm_status plm_embed_layout_plan(struct plm_embed_layout *layout, struct plm_sequence_spool *spool,
                                 struct plm_error *error);
/* The header, at the beginning of the file behind descriptor; path is for errors. */
plm_status plm_embed_layout_write_header(const struct plm_embed_layout *layout,
                                         struct plm_sequence_spool *spool, int descriptor,
                                         const char *path, struct plm_error *error);
/* Byte in the file where a row begins. */
uint64_t plm_embed_layout_offset(const struct plm_embed_layout *layout, uint64_t row);

/* The names alone as a JSON array, written and synced. */
plm_status plm_embed_write_names(struct plm_sequence_spool *spool, const char *path,
                                 struct plm_error *error);

#endif
