/* The configuration of a head that predicts labels: see head_config.h. */
#include "common/model/head_config.h"

#include "common/model/model_config.h"

const char *const plm_head_pooling_names[] = {"mean", "cls", NULL};

static plm_status head_fault(const char *key, struct plm_error *error)
{
  plm_error_where(error, "%s", key);
  return PLM_CONFIG;
}

/* What EsmClassificationHead and EsmcClassificationHead of transformers fix. */
static plm_status check_as_published(const struct plm_head_config *head, uint32_t width,
                                     struct plm_error *error)
{
  if (head->pooling != PLM_HEAD_CLS) {
    plm_error_set(error, PLM_CONFIG,
                  "the class of transformers reads the <cls> token and takes no mean");
    plm_error_hint(error, "use pooling cls; the architectures of plm-pipeline take both");
    return head_fault("head.pooling", error);
  }
  if (head->hidden == width) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "the class of transformers has a layer of hidden_size %u, not %u", width,
                head->hidden);
  return head_fault("head.hidden_size", error);
}

plm_status plm_head_config_check(const struct plm_head_config *head, bool published, uint32_t width,
                                 struct plm_error *error)
{
  if (head->kind == PLM_PREDICTS_TOKENS) return PLM_OK;
  if (head->outputs == 0 || head->outputs > PLM_HEAD_MAX_OUTPUTS) {
    plm_error_set(error, PLM_CONFIG, "%u outputs; 1 to %d are possible", head->outputs,
                  PLM_HEAD_MAX_OUTPUTS);
    return head_fault("head.outputs", error);
  }
  if (!(head->dropout >= 0.0 && head->dropout < 1.0)) {
    plm_error_set(error, PLM_CONFIG, "%g is not a rate from 0 to below 1", head->dropout);
    return head_fault("head.dropout", error);
  }
  if (head->hidden > PLM_MODEL_MAX_WIDTH) {
    plm_error_set(error, PLM_CONFIG, "%u exceeds the limit of %d", head->hidden,
                  PLM_MODEL_MAX_WIDTH);
    return head_fault("head.hidden_size", error);
  }
  if (head->kind == PLM_PREDICTS_SEQUENCES)
    return published ? check_as_published(head, width, error) : PLM_OK;
  if (head->hidden == 0 && head->loss == PLM_LOSS_CLASS) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "a head for residues predicts one class for each, without a hidden layer");
  return head_fault("head.hidden_size", error);
}
