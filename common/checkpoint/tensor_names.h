/* How a weights file names its tensors. The names of parameters (doc/model.md) are those of the
 * class that writes them: PLMForMaskedLM, or EsmForMaskedLM and EsmcForMaskedLM of transformers.
 * Files may differ from them:
 *
 * - A class without a head (PLMModel, EsmModel) writes "encoder…" instead of "esm.encoder…".
 * - transformers 5.24 writes LayerNorm.gamma and .beta for LayerNorm.weight and .bias. Both are
 *   read.
 * - The decoder of a tied head may be stored a second time.
 * - Published weights have tensors that are no parameters. Each is known by its name: the contact
 *   head, which is carried through a training, and tables that follow from the configuration.
 */
#ifndef PLM_COMMON_CHECKPOINT_TENSOR_NAMES_H
#define PLM_COMMON_CHECKPOINT_TENSOR_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/model/model.h"

struct plm_tensor_family; /* the architectures that one class writes */

struct plm_tensor_naming {
  const struct plm_tensor_family *family;
  enum plm_weights_head head;
  bool reads_adapters; /* those of the table are in the file */
  bool reads_head;     /* the head of the file is of the table's kind: its tensors are parameters */
  size_t prefix;       /* bytes of a parameter's name that its tensor's name lacks */
};

/* How this file names the parameters of this table. */
struct plm_tensor_naming plm_tensor_naming_of(const struct plm_tensor_shards *weights,
                                              const struct plm_parameter *table, size_t count);

/* The class that writes the trunk without a head: "EsmModel". */
const char *plm_tensor_trunk_class(const struct plm_tensor_naming *naming);
/* Whether transformers has the class, so that config.json has only its own keys. */
bool plm_tensor_published(const struct plm_tensor_naming *naming);

/* Whether the file has to have this parameter: those of a head that it lacks are not wanted. */
bool plm_tensor_wanted(const struct plm_tensor_naming *naming,
                       const struct plm_parameter *parameter);
/* The tensor of a parameter, under any of its names; NULL: it is missing. */
const struct plm_tensor_info *plm_tensor_of_parameter(const struct plm_tensor_shards *weights,
                                                      const struct plm_tensor_naming *naming,
                                                      const struct plm_parameter *parameter);

/* The name without what begins the names of a trunk ("esm."), as a class without a head writes it.
 */
const char *plm_tensor_within_trunk(const char *name);
/* The tensor of this name, or of its name within the trunk; NULL: it is missing. */
const struct plm_tensor_info *plm_tensor_of_trunk(const struct plm_tensor_shards *weights,
                                                  const char *name);

/* Whether the shape of a tensor that is no parameter follows from the number of heads, as no
 * parameter's does: the contact head has a weight for each head of each layer, and rotary
 * frequencies are half as many as a head is wide. Then *rank and shape are those of this model. */
bool plm_tensor_shape_of_heads(const struct plm_tensor_naming *naming,
                               const struct plm_model_config *config,
                               const struct plm_tensor_info *tensor, int *rank,
                               uint64_t shape[PLM_TENSOR_MAX_RANK]);

enum plm_tensor_use {
  PLM_TENSOR_PARAMETER,  /* of the model */
  PLM_TENSOR_OTHER_HEAD, /* of a head that is not read */
  PLM_TENSOR_TIED,       /* the decoder, equal to the embedding table */
  PLM_TENSOR_CARRIED,    /* not computed with here, but part of the weights: the contact head */
  PLM_TENSOR_IGNORED,    /* follows from the configuration, or belongs to nothing that is used */
  PLM_TENSOR_UNKNOWN,
};
/* What a tensor of the file is. */
enum plm_tensor_use plm_tensor_use(const struct plm_tensor_shards *weights,
                                   const struct plm_tensor_naming *naming,
                                   const struct plm_parameter *table, size_t count,
                                   const struct plm_tensor_info *tensor);

#endif
