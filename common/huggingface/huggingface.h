/* The files that make a checkpoint a Hugging Face model folder: config.json, the tokenizer's files
 * and the model in PyTorch. doc/checkpoints.md#hugging-face describes them. */
#ifndef PLM_COMMON_HUGGINGFACE_HUGGINGFACE_H
#define PLM_COMMON_HUGGINGFACE_HUGGINGFACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model_config.h"

/* The text of config.json: the model, the window in force, the objective (which cannot be told
 * from a causal mask), and model_type, architectures, auto_map, dtype, tie_word_embeddings and the
 * ids of special tokens for transformers. The caller frees it. */
char *plm_huggingface_config_print(const struct plm_model_config *model, uint32_t window,
                                   enum plm_objective objective);
/* Reads the text of a config.json. window and objective may be NULL. A text without objective means
 * mlm. PLM_FORMAT, PLM_CONFIG as plm_model_config_from_json. */
plm_status plm_huggingface_config_parse(const char *text, size_t size,
                                        struct plm_model_config *model, uint32_t *window,
                                        enum plm_objective *objective, struct plm_error *error);
/* The same for the config.json of a folder. error->where is its path, followed by the key if one is
 * wrong. */
plm_status plm_huggingface_config_read(const char *directory, struct plm_model_config *model,
                                       uint32_t *window, enum plm_objective *objective,
                                       struct plm_error *error);

/* Writes and fsyncs the other files: modeling_plm.py, vocab.txt, tokenizer.json,
 * tokenizer_config.json, special_tokens_map.json. */
plm_status plm_huggingface_write(const char *directory, const struct plm_model_config *model,
                                 enum plm_tokenizer_kind tokenizer, struct plm_error *error);

/* The text of modeling_plm.py, NUL-terminated (modeling_text.c). */
extern const char plm_huggingface_modeling[];

#endif
