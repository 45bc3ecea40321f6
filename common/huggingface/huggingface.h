/* The files that make a checkpoint a Hugging Face model folder: config.json, the tokenizer's files
 * and the model in PyTorch. doc/checkpoints.md#hugging-face describes them. */
#ifndef PLM_COMMON_HUGGINGFACE_HUGGINGFACE_H
#define PLM_COMMON_HUGGINGFACE_HUGGINGFACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model_config.h"

/* The text of config.json: the model, the window in force, the objective (which cannot be told
 * from a causal mask), and model_type, architectures, auto_map, dtype, tie_word_embeddings and the
 * ids of special tokens for transformers. For esm2 and esmc it is transformers' own config.json
 * (published_config.h). The caller frees it. */
char *plm_huggingface_config_print(const struct plm_model_config *model, uint32_t window,
                                   enum plm_objective objective);
/* The same for weights of another type than fp32: "bfloat16". */
char *plm_huggingface_config_print_dtype(const struct plm_model_config *model, uint32_t window,
                                         enum plm_objective objective, const char *dtype);
/* The same with the names of the labels that the model predicts (head_json.h), or NULL. */
struct plm_label_names;
char *plm_huggingface_config_print_labels(const struct plm_model_config *model, uint32_t window,
                                          enum plm_objective objective, const char *dtype,
                                          const struct plm_label_names *names);
/* The same, where published weights keep numbers that nothing here computes with; NULL: none. */
struct plm_published_kept;
char *plm_huggingface_config_print_kept(const struct plm_model_config *model, uint32_t window,
                                        enum plm_objective objective, const char *dtype,
                                        const struct plm_label_names *names,
                                        const struct plm_published_kept *kept);
/* Reads the text of a config.json of either form. window and objective may be NULL. A text without
 * objective means mlm. PLM_FORMAT, PLM_CONFIG as plm_model_config_from_json. PLM_UNSUPPORTED: it
 * describes a model of another kind, or one with a part that is not computed here. */
plm_status plm_huggingface_config_parse(const char *text, size_t size,
                                        struct plm_model_config *model, uint32_t *window,
                                        enum plm_objective *objective, struct plm_error *error);
/* Parses the config.json of a folder, whatever it describes. The caller deletes *json. path
 * receives its path, which is also error->where. */
struct cJSON;
plm_status plm_huggingface_config_open(const char *directory, char path[PLM_PATH_SIZE],
                                       struct cJSON **json, struct plm_error *error);
/* plm_huggingface_config_parse for the config.json of a folder. error->where is its path, followed
 * by the key if one is wrong. */
plm_status plm_huggingface_config_read(const char *directory, struct plm_model_config *model,
                                       uint32_t *window, enum plm_objective *objective,
                                       struct plm_error *error);

/* The tokenizer of a model: esm for published weights, otherwise the one whose vocabulary has
 * vocab_size tokens. NULL: there is none. */
const struct plm_tokenizer *plm_huggingface_tokenizer(const struct plm_model_config *model);

/* Writes and fsyncs the other files: vocab.txt, tokenizer_config.json, special_tokens_map.json,
 * modeling_plm.py for our own architectures (transformers has the classes of ESM-2 and ESM-C), and
 * tokenizer.json except for ESM-2. */
plm_status plm_huggingface_write(const char *directory, const struct plm_model_config *model,
                                 enum plm_tokenizer_kind tokenizer, struct plm_error *error);

/* The text of modeling_plm.py, NUL-terminated (modeling_text.c). */
extern const char plm_huggingface_modeling[];

#endif
