/* The table of metrics: every field with its kind, unit and meaning. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/metrics/metrics.h"

#define T PLM_STAGE_TRAINER
#define E PLM_STAGE_EVALUATOR
#define P PLM_STAGE_PACKER
#define X PLM_METRIC_EXACT
#define M PLM_METRIC_MEASURED
#define W PLM_METRIC_TEXT

static const struct plm_metric_field table[] = {
    {"step", T, X, "", "step to which the values belong, from 1"},
    {"loss", T, X, "nats", "training loss of the step, as the objective defines it"},
    {"accuracy", T, X, "", "share of the labelled tokens or classes that were predicted correctly"},
    {"lr_hidden", T, X, "", "learning rate of the hidden matrices"},
    {"lr_embed", T, X, "", "learning rate of the embeddings"},
    {"lr_head", T, X, "", "learning rate of the head"},
    {"lr_scalar", T, X, "", "learning rate of the scalars"},
    {"grad_norm", T, X, "", "norm of the gradient over all parameters, before clipping"},
    {"clip_norm", T, X, "", "norm to which the gradient was clipped; 0: not clipped"},
    {"mask_rate", T, X, "", "mask rate of the step (mean over its chunks)"},
    {"window", T, X, "tokens", "sliding attention window in force"},
    {"tokens", T, X, "tokens", "real tokens consumed by the run so far"},
    {"tokens_by_source", T, X, "tokens",
     "real tokens of the step by corpus, in a run on several; otherwise absent"},
    {"loss_by_source", T, X, "nats",
     "training loss of the step by corpus, in a run on several; otherwise absent"},
    {"epoch", T, X, "", "epochs of the corpus so far; of a mixture, of its first corpus"},
    {"padding_fraction", T, X, "", "share of padding in the step's chunks"},
    {"skipped_updates", T, X, "", "updates skipped by the run so far"},
    {"gradient_norms", T, X, "", "norm of the gradient by layer, before clipping"},
    {"weight_norms", T, X, "", "norm of the weights by layer, after the update"},
    {"update_norms", T, X, "", "norm of what the update changed, by layer"},
    {"tokens_per_second", T, M, "tokens/s", "real tokens per second of the step"},
    {"padded_tokens_per_second", T, M, "tokens/s", "tokens per second, padding included"},
    {"step_ms", T, M, "ms", "wall time of the step"},
    {"data_wait_ms", T, M, "ms", "time the step waited for chunks"},
    {"checkpoint_ms", T, M, "ms", "time the step waited for checkpointing"},
    {"mfu", T, M, "", "model FLOPs divided by what a large product achieves"},
    {"memory_bytes", T, M, "bytes", "memory held by the trainer"},
    {"slowest_rank", T, M, "", "rank that computed longest in the step; absent with one rank"},
    {"warning", T, W, "", "sign that training has gone wrong; otherwise absent"},
    {"resumed", T, W, "",
     "in the first step after a resume: the step after which it continued; otherwise absent"},
    {"exact", T, W, "", "false after a resume that cannot be bit-exact; otherwise absent"},
    {"time", T, M, "s", "seconds since 1970"},
    {"step", E, X, "", "step of the checkpoint"},
    {"checkpoint", E, W, "", "folder of the checkpoint, relative to the run"},
    {"identity", E, W, "",
     "XXH3-128 of model.safetensors, which with the step identifies the checkpoint"},
    {"set", E, W, "", "held-out set: corpus (the run's own), or a name of evaluator.sets"},
    {"split", E, W, "", "split of the corpus"},
    {"weights", E, W, "", "model or ema"},
    {"compute_dtype", E, W, "", "fp32, bf16 or int8: in what the evaluation computed"},
    {"cut", E, X, "", "documents of which only the first tokens were evaluated"},
    {"loss", E, X, "nats",
     "token-weighted cross-entropy; of a model that predicts labels, their loss"},
    {"perplexity", E, X, "", "exp(loss)"},
    {"accuracy", E, X, "", "share of the tokens or labels that were predicted correctly"},
    {"precision", E, X, "", "support-weighted precision"},
    {"recall", E, X, "", "support-weighted recall"},
    {"f1", E, X, "", "support-weighted F1"},
    {"mcc", E, X, "", "Matthews correlation coefficient, multi-class"},
    {"tokens", E, X, "tokens", "number of tokens that were predicted"},
    {"baseline_entropy", E, X, "nats", "entropy of the residues' composition"},
    {"elbo", E, X, "nats", "bound of masked diffusion on the loss, with evaluator.elbo_rates"},
    {"pseudo_perplexity", E, X, "", "each residue masked by itself; only `evaluate`"},
    {"pseudo_perplexity_fast", E, X, "", "its estimate from one pass; only `evaluate`"},
    {"loss_by_mask_rate", E, X, "nats", "loss at each mask rate"},
    {"loss_by_length", E, X, "nats", "loss by length of the document"},
    {"attention_entropy", E, X, "nats", "mean entropy of the attention's weights, by layer"},
    {"labels", E, X, "", "labels that were measured"},
    {"missing_labels", E, X, "", "labels that documents or residues do not have"},
    {"unseen_labels", E, X, "", "labels of classes that were not in training; absent without any"},
    {"reason", E, W, "", "why a measure of labels does not exist; otherwise absent"},
    {"spearman", E, X, "", "rank correlation of predicted numbers or scores"},
    {"pearson", E, X, "", "correlation of predicted numbers"},
    {"r2", E, X, "", "share of the variance that predicted numbers explain"},
    {"rmse", E, X, "", "root of the mean squared error of predicted numbers"},
    {"macro_f1", E, X, "", "mean F1 of the predicted classes"},
    {"auroc", E, X, "", "area under the ROC curve of predicted classes, mean over them"},
    {"spearman_by_label", E, X, "", "spearman of each of several columns of labels"},
    {"pearson_by_label", E, X, "", "pearson of each of several columns of labels"},
    {"r2_by_label", E, X, "", "r2 of each of several columns of labels"},
    {"rmse_by_label", E, X, "", "rmse of each of several columns of labels"},
    {"auc", E, X, "", "area under the ROC curve of assays, mean"},
    {"ndcg", E, X, "", "discounted cumulative gain of assays, mean"},
    {"top_recall", E, X, "", "share of the best variants of assays that are found, mean"},
    {"spearman_by_assay", E, X, "", "rank correlation of each assay"},
    {"low", E, X, "", "lower ends of the 95 % intervals of a probe's measures"},
    {"high", E, X, "", "upper ends of these intervals"},
    {"baseline", E, X, "", "measures of a probe of the composition alone"},
    {"alpha", E, X, "", "regularisation that a probe chose; absent with folds"},
    {"layer", E, W, "", "layer of a probe"},
    {"predictions", E, X, "", "number of predictions of a probe"},
    {"assays", E, X, "", "number of assays"},
    {"precision_l", E, X, "", "contacts among the L most probable pairs of residues, mean"},
    {"precision_l2", E, X, "", "the same of the L/2 most probable"},
    {"precision_l5", E, X, "", "the same of the L/5 most probable"},
    {"chance", E, X, "", "share of contacts among all pairs, mean"},
    {"trained", E, X, "", "proteins from which contacts were learnt"},
    {"tested", E, X, "", "proteins whose contacts were predicted"},
    {"heads", E, X, "", "attention heads of the model at full length"},
    {"heads_used", E, X, "", "those that the regression uses"},
    {"task_skipped", E, W, "",
     "why a task or a set did not measure the checkpoint; replaces its numbers"},
    {"skipped", E, W, "", "why the checkpoint was not evaluated; replaces all numbers"},
    {"seconds", E, M, "s", "time the evaluation took"},
    {"lag_steps", E, M, "steps", "steps by which training was ahead when the evaluation ended"},
    {"time", E, M, "s", "seconds since 1970"},
    {"packer", P, W, "", "host and process of the packer"},
    {"windows", P, M, "", "windows served"},
    {"documents_per_second", P, M, "documents/s", "documents served per second"},
    {"tokens_per_second", P, M, "tokens/s", "real tokens served per second"},
    {"padding_fraction", P, M, "", "share of padding in the chunks served"},
    {"queue", P, M, "", "requests waiting"},
    {"time", P, M, "s", "seconds since 1970"},
};

const struct plm_metric_field *plm_metric_table(size_t *count)
{
  *count = sizeof table / sizeof table[0];
  return table;
}

const struct plm_metric_field *plm_metric_find(enum plm_metric_stage stage, const char *name)
{
  const size_t length = strcspn(name, "/");
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    if (table[i].stage == stage && strlen(table[i].name) == length &&
        strncmp(table[i].name, name, length) == 0)
      return &table[i];
  return NULL;
}

const cJSON *plm_metrics_value(const cJSON *line, const char *key)
{
  char name[64];
  const size_t length = strcspn(key, "/");
  if (key[length] == '\0') return cJSON_GetObjectItemCaseSensitive(line, key);
  snprintf(name, sizeof name, "%.*s", (int)length, key);
  return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(line, name),
                                          key + length + 1);
}
