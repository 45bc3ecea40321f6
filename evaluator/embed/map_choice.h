/* Which attention maps `embed --attention` writes: LAYER or LAYER:HEAD, separated by commas. Layers
 * are numbered as with --layers: layer i is the i-th block that runs, from 1, and its output is
 * state i. Heads are numbered from 1. A layer alone means all its heads, in their order. */
#ifndef PLM_EVALUATOR_EMBED_MAP_CHOICE_H
#define PLM_EVALUATOR_EMBED_MAP_CHOICE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model_config.h"

enum { PLM_MAX_MAP_ITEMS = 32, PLM_MAP_TEXT_SIZE = 160 };

struct plm_map_item {
  uint32_t block;      /* from 0 */
  int32_t head, heads; /* the first, from 0, and how many */
  uint32_t before;     /* maps of the items before it */
};

struct plm_map_choice {
  struct plm_map_item items[PLM_MAX_MAP_ITEMS];
  uint32_t count;
  uint32_t maps; /* of all items */
};

/* PLM_USAGE: malformed text, a layer or head that the model lacks, a layer without attention or
 * with less than one position for each token (deeper levels of a patch_unet), or too many items. */
plm_status plm_map_choice_parse(const char *text, const struct plm_model_config *config,
                                struct plm_map_choice *choice, struct plm_error *error);

#endif
