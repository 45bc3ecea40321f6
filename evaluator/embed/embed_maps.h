/* The maps that `embed` writes of the sequences of a batch: chosen attention maps (map_choice.h),
 * or contacts (contact_map.h). Another task may visit what maps are computed from. */
#ifndef PLM_EVALUATOR_EMBED_EMBED_MAPS_H
#define PLM_EVALUATOR_EMBED_EMBED_MAPS_H

#include "common/inference/inference.h"
#include "common/inference/sequence_batch.h"
#include "evaluator/embed/attention_map.h"
#include "evaluator/embed/map_choice.h"

struct plm_embed_maps;
/* Receives the queries and keys of the k-th sequence in a block at full length, which are valid
 * until it returns. */
typedef plm_status plm_embed_maps_visit(void *context, uint32_t block, uint32_t k,
                                        const struct plm_map_source *source,
                                        struct plm_attention_map *map, struct plm_error *error);
/* For attention maps, a choice; for contacts, the regression: weights (layers, heads) and bias; or
 * a function that visits each block. All are borrowed, and inference has the room that its batches
 * need. PLM_NO_MEMORY. */
struct plm_maps_request {
  struct plm_inference *inference;
  const struct plm_map_choice *choice; /* NULL: contacts, or `visit` */
  const float *weights;
  float bias;
  plm_embed_maps_visit *visit; /* NULL: contacts, or a choice */
};
plm_status plm_embed_maps_open(const struct plm_maps_request *request, struct plm_embed_maps **maps,
                               struct plm_error *error);
void plm_embed_maps_close(struct plm_embed_maps *maps); /* NULL is fine */

/* The batch has k sequences of tokens[k] tokens; for contacts each is <cls> residues <eos>. `put`
 * receives each map (count values) of the k-th sequence, whose values begin with the at-th of all
 * the sequence's: (maps, tokens, tokens), or (residues, residues). With `visit`, put is NULL.
 * Errors are those of plm_inference_run_states, of `put` and of `visit`. */
typedef plm_status plm_embed_maps_put(void *context, uint32_t k, uint64_t at, const float *values,
                                      uint64_t count, struct plm_error *error);
plm_status plm_embed_maps_run(struct plm_embed_maps *maps, struct plm_sequence_batch *batch,
                              const uint32_t *tokens, plm_embed_maps_put *put, void *context,
                              struct plm_error *error);

#endif
