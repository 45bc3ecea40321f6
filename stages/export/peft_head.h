/* The head for labels that an adapter in PEFT's format brings along: what PEFT keeps in
 * modules_to_save, the tensors base_model.model.classifier.* or base_model.model.score.*. */
#ifndef PLM_STAGES_EXPORT_PEFT_HEAD_H
#define PLM_STAGES_EXPORT_PEFT_HEAD_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/huggingface/model_folder.h"

struct plm_peft_head {
  bool found;                /* the adapter has a head for labels */
  bool described;            /* by config.json in the adapter's folder */
  char names[PLM_PATH_SIZE]; /* the folder whose config.json names its outputs; "": they have no
                                names but LABEL_0, LABEL_1, ... */
};

/* Whether the name of a tensor of an adapter, without base_model.model., is one of such a head. The
 * low-rank matrices of a product of the base's head are not. */
bool plm_peft_is_of_head(const char *name);

/* Looks for a head in the adapter. If it has one, base->model.head becomes it, and what it means
 * comes from config.json in the adapter's folder, or if there is none from a base with a head of
 * this kind and size, or else it is what transformers assumes: numbers if there is one output, and
 * classes otherwise. The scaling of numbers comes only from the adapter's config.json: PEFT trains
 * the outputs of transformers, which knows none. PLM_CONFIG: the tensors do not say what the head
 * is, or not the same as config.json. PLM_UNSUPPORTED: the adapter changes products of its own
 * head. Other errors are those of the files. */
plm_status plm_peft_head_find(const char *directory, struct plm_model_folder *base,
                              struct plm_peft_head *head, struct plm_error *error);

#endif
