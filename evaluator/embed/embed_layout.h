/* The layout of a file of embeddings, and its header. Values are fp32, little-endian, in the order
 * of the input.
 *
 *   format       kind               tensors                      names of the sequences
 *   safetensors  pooled             `embeddings` (N, width)      in the metadata, `names`
 *   safetensors  per token, logits  `0`, `1`, … (tokens, width)  in the metadata, `names`
 *   safetensors  attention          `0`, `1`, … (maps, tokens, tokens)      the same
 *   safetensors  contacts           `0`, `1`, … (residues, residues)        the same
 *   npy          pooled             one array (N, width)         in FILE.names.json
 *   rows         pooled, per token  none: only the values        nowhere
 *
 * Names are a JSON array. The metadata of pooled embeddings also has `pooling`, and `layers` if
 * there is a choice of them; that of attention maps has `attention`, the choice. safetensors allows
 * a header of 100 MB.
 */
#ifndef PLM_EVALUATOR_EMBED_EMBED_LAYOUT_H
#define PLM_EVALUATOR_EMBED_EMBED_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "evaluator/embed/sequence_spool.h"

enum plm_embed_kind {
  PLM_EMBED_POOLED,
  PLM_EMBED_PER_TOKEN,
  PLM_EMBED_LOGITS,
  PLM_EMBED_ATTENTION,
  PLM_EMBED_CONTACTS
};
/* PLM_EMBED_ROWS is never a result: `predict` keeps its outputs so until all are there. */
enum plm_embed_format { PLM_EMBED_SAFETENSORS, PLM_EMBED_NPY, PLM_EMBED_ROWS };

struct plm_embed_layout {
  enum plm_embed_kind kind;
  enum plm_embed_format format;
  const char *pooling;          /* for pooled, for example "mean,max"; borrowed */
  const char *layers;           /* chosen ones, "4,8,12"; NULL: only the last; borrowed */
  const char *attention;        /* the choice of attention maps; borrowed */
  uint32_t maps;                /* that it chooses */
  uint32_t width;               /* floats in a row; 1 for maps */
  uint64_t rows;                /* in the file: those of all sequences */
  uint64_t header_bytes, bytes; /* of the header, and of the whole file */
};

/* The format follows from the end of path, ".safetensors" or ".npy". PLM_USAGE: neither, or the
 * format cannot hold that kind. */
plm_status plm_embed_format_of(const char *path, enum plm_embed_kind kind,
                               enum plm_embed_format *format, struct plm_error *error);

/* Whether the values of a sequence are maps: attention or contacts. */
bool plm_embed_kind_is_map(enum plm_embed_kind kind);
/* The rows of a sequence of so many tokens: 1 if it is pooled, its tokens, or the values of its
 * maps. For contacts its tokens are <cls> residues <eos>. */
uint64_t plm_embed_layout_rows_of(const struct plm_embed_layout *layout, uint32_t tokens);

/* Computes rows and bytes from kind, format, pooling, maps, width and the sequences. PLM_LIMIT: the
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
