/* What a model folder is, for people and scripts: its class, sizes, files and heads. */
#ifndef PLM_COMMON_HUGGINGFACE_FOLDER_FACTS_H
#define PLM_COMMON_HUGGINGFACE_FOLDER_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text/text.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/model_folder.h"

struct plm_folder_facts {
  char class_name[PLM_HEAD_CLASS_SIZE]; /* that opens it: "EsmForMaskedLM"; "EsmModel" if it has no
                                           head */
  const char *dtype;                    /* of the embedding table: "float16" */
  uint64_t parameters;                  /* that the file has */
  uint64_t bytes;                       /* of all tensors */
  size_t files;                         /* 1, or the number of shards */
  enum plm_weights_head head;
  bool contact_head;
};

/* Reads the headers of the folder's weights (model.safetensors or its shards) and checks names and
 * shapes; values are not read. The errors are those of plm_parameters_check. */
plm_status plm_folder_facts_read(const struct plm_model_folder *folder,
                                 struct plm_folder_facts *facts, struct plm_error *error);

/* Appends two sentences, without a line break at the end: "ESM-2 (EsmForMaskedLM of transformers),
 * 7.5M parameters in float32 … ". */
void plm_folder_facts_print(const struct plm_model_folder *folder,
                            const struct plm_folder_facts *facts, struct plm_text *text);

#endif
