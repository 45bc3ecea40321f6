/* The head that predicts labels in config.json, in the keys of transformers: `architectures` names
 * ForSequenceClassification or ForTokenClassification, problem_type says what the outputs mean, and
 * id2label names them. What transformers has no key for is in `head`: pooling, hidden_size,
 * dropout, and for numbers `scaling`, [mean, deviation] of each output: a prediction is output *
 * deviation + mean. For our own architectures `head` is a key of config.json, for published weights
 * one of its `plm_pipeline`. */
#ifndef PLM_COMMON_HUGGINGFACE_HEAD_JSON_H
#define PLM_COMMON_HUGGINGFACE_HEAD_JSON_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/model/model_config.h"

/* What the outputs are called, and how numbers were scaled. Begins with {0}. */
struct plm_label_names {
  uint32_t count;
  char **names;             /* (count) */
  double *mean, *deviation; /* (count) of numbers; NULL: not scaled */
};
void plm_label_names_deinit(struct plm_label_names *names);
/* Leaves only the names: the outputs are the numbers themselves. */
void plm_label_names_unscale(struct plm_label_names *names);

struct cJSON;
/* Where the keys of config.json are that transformers does not have: `json` itself for our own
 * architectures, `plm_pipeline` for published weights, which is made if it is missing. */
struct cJSON *plm_own_keys(const struct plm_model_config *model, struct cJSON *json);
/* The class of transformers that has the model's head: "EsmForSequenceClassification". */
enum { PLM_HEAD_CLASS_SIZE = 48 };
const char *plm_head_class(const struct plm_model_config *model, char name[PLM_HEAD_CLASS_SIZE]);

/* The class that loads the model: "AutoModelForMaskedLM". */
const char *plm_head_auto_class(const struct plm_head_config *head);

/* Writes the keys of the model's head into a config.json that has those of its other parts. names
 * may be NULL: the outputs are then called LABEL_0, ... Nothing is written for a language model. */
void plm_head_config_print(const struct plm_model_config *model,
                           const struct plm_label_names *names, struct cJSON *json);
/* Reads the head of a model whose other parts are known. It stays {0} if `architectures` names no
 * class that predicts labels. PLM_FORMAT, PLM_CONFIG with the key in error->where. */
plm_status plm_head_config_parse(const struct cJSON *json, struct plm_model_config *model,
                                 struct plm_error *error);
/* Reads the names and the scaling of a folder with such a head. The caller deinits. */
plm_status plm_label_names_read(const char *directory, const struct plm_model_config *model,
                                struct plm_label_names *names, struct plm_error *error);
/* The error for a folder whose head is to predict labels, and which has none: PLM_CONFIG with what
 * its config.json says instead. */
plm_status plm_head_missing(const char *directory, struct plm_error *error);

#endif
