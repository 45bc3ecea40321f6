/* Which hidden states `embed` writes: the outputs of chosen blocks, numbered as transformers' tuple
 * `hidden_states`. State 0 is the embeddings, state i the output of block i (from 1, in the order
 * in which they run), and `last` the output of the last block.
 *
 * The states of a token are concatenated in the order of the choice. In a patch_unet a deeper level
 * has one state for a group of tokens, which each token of the group gets. */
#ifndef PLM_EVALUATOR_EMBED_LAYER_CHOICE_H
#define PLM_EVALUATOR_EMBED_LAYER_CHOICE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/inference/inference.h"

enum { PLM_MAX_LAYERS = 32, PLM_LAYERS_NAME_SIZE = 160 };

struct plm_layer_choice {
  uint32_t states[PLM_MAX_LAYERS];
  uint32_t widths[PLM_MAX_LAYERS]; /* of a state */
  int levels[PLM_MAX_LAYERS];
  uint32_t count;
  uint32_t width;                  /* of all together */
  char name[PLM_LAYERS_NAME_SIZE]; /* "4,8,12" */
};

/* Resolves text, for example "4,8,last", for a model. PLM_USAGE: a word that is not a number or
 * `last`, a state that the model lacks, one that is named twice, or too many. */
plm_status plm_layer_choice_parse(const char *text, const struct plm_model_config *config,
                                  struct plm_layer_choice *choice, struct plm_error *error);

/* Runs the model over inputs (B, L). values (B L, width); room is scratch of B L * the width of the
 * widest level-0 state (hidden_size) floats. */
plm_status plm_layer_choice_run(const struct plm_layer_choice *choice,
                                struct plm_inference *inference, const struct plm_batch *batch,
                                const int32_t *inputs, float *room, float *values,
                                struct plm_error *error);

#endif
