/* The layout of a file of embeddings, and its header. Values are fp32, little-endian, in the order
 * of the input.
 *
 *   format       kind               tensors                      names of the sequences
 *   safetensors  pooled             `embeddings` (N, width)      in the metadata, `names`
 *   safetensors  per token, logits  `0`, `1`, … (tokens, width)  in the metadata, `names`
 *   npy          pooled             one array (N, width)         in FILE.names.json
 *
 * Names are a JSON array. The metadata of pooled embeddings also has `pooling`, and `layers` if
 * there is a choice of them. safetensors allows
 * a header of 100 MB.
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
  const char *pooling;          /* for pooled, for example "mean,max"; borrowed */
  const char *layers;           /* chosen ones, "4,8,12"; NULL: only the last; borrowed */
  uint32_t width;               /* floats in a row */
  uint64_t rows;                /* in the file: sequences, or the tokens of all sequences */
  uint64_t header_bytes, bytes; /* of the header, and of the whole file */
};

/* The format follows from the end of path, ".safetensors" or ".npy". PLM_USAGE: neither, or the
 * format cannot hold that kind. */
plm_status plm_embed_format_of(const char *path, enum plm_embed_kind kind,
                               enum plm_embed_format *format, struct plm_error *error);

/* Computes rows and bytes from kind, format, pooling, width and the sequences. PLM_LIMIT: the
 * header would be larger than the format allows. */
plm_status plm_embed_layout_compute(struct plm_embed_layout *layout,
                                    struct plm_sequence_spool *spool, struct plm_error *error);
/* Writes the header at the beginning of the open file. path is for error messages. */
plm_status plm_embed_layout_write_header(const struct plm_embed_layout *layout,
                                         struct plm_sequence_spool *spool, int descriptor,
                                         const char *path, struct plm_error *error);
/* The offset in the file at which a row begins. */
uint64_t plm_embed_layout_offset(const struct plm_embed_layout *layout, uint64_t row);

/* Writes the names as a JSON array, and syncs the file. */
plm_status plm_embed_write_names(struct plm_sequence_spool *spool, const char *path,
                                 struct plm_error *error);

#endif
