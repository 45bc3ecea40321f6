/* The head of a model that predicts labels: of whole sequences or of residues. A model has this
 * head or that of the language model, never both. doc/model.md#heads-for-labels has the formulas.
 */
#ifndef PLM_COMMON_MODEL_HEAD_CONFIG_H
#define PLM_COMMON_MODEL_HEAD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/label_operands.h"

enum plm_head_kind {
  PLM_PREDICTS_TOKENS, /* the language model's head; the other fields of the configuration are 0 */
  PLM_PREDICTS_SEQUENCES,
  PLM_PREDICTS_RESIDUES
};
enum plm_head_pooling { PLM_HEAD_MEAN, PLM_HEAD_CLS };
extern const char *const plm_head_pooling_names[]; /* "mean", "cls", NULL */

enum { PLM_HEAD_MAX_OUTPUTS = 1 << 17 };

struct plm_head_config {
  enum plm_head_kind kind;
  enum plm_label_loss loss;      /* what the outputs mean; of residues always one class */
  enum plm_head_pooling pooling; /* of sequences */
  uint32_t hidden;               /* of sequences: width of the layer with tanh; 0: there is none */
  uint32_t outputs;
  double dropout; /* below 1; only when training */
};

/* The rules that a head breaks: PLM_CONFIG with the key in error->where. `published`: the head of a
 * class of transformers, which has pooling cls and a hidden layer as wide as the model (width). */
plm_status plm_head_config_check(const struct plm_head_config *head, bool published, uint32_t width,
                                 struct plm_error *error);

#endif
