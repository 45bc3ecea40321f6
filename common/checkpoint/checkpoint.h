/* Checkpoint folders: what is in one, how it is verified, listed and loaded. The writing side that
 * runs beside training (snapshot, thread, retention) is trainer/publish; this is the format.
 *
 * A checkpoint exists if and only if its folder has its final name (step_00000500) and its
 * MANIFEST verifies. Readers verify before they load.
 */
#ifndef PLM_COMMON_CHECKPOINT_CHECKPOINT_H
#define PLM_COMMON_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/corpus/tokenizer.h"
#include "common/model/model.h"
#include "common/model/model_config.h"

enum { PLM_CHECKPOINT_FORMAT = 1, PLM_CHECKPOINT_NAME_SIZE = 32, PLM_MANIFEST_MAX_FILES = 64 };

void plm_checkpoint_name(uint64_t step, char name[PLM_CHECKPOINT_NAME_SIZE]); /* step_%08u */
bool plm_checkpoint_parse_name(const char *name, uint64_t *step); /* exactly the final form */

/* One line of a MANIFEST. */
struct plm_manifest_file {
  char name[64];
  uint64_t size;
  struct plm_hash hash;
};
struct plm_manifest {
  uint64_t step;
  size_t count;
  struct plm_manifest_file files[PLM_MANIFEST_MAX_FILES]; /* in the order written */
};
/* Canonical text (its form: manifest.c), its own hash included. Caller frees; NULL: out of memory.
 */
char *plm_manifest_print(const struct plm_manifest *manifest);
/* Compared byte for byte with what plm_manifest_print would give. */
plm_status plm_manifest_parse(const char *text, size_t size, struct plm_manifest *manifest,
                              struct plm_error *error);
/* The identity of the checkpoint beside its step: the hash listed for model.safetensors. false:
 * none is listed. */
bool plm_manifest_identity(const struct plm_manifest *manifest, struct plm_hash *identity);
/* Hash of the MANIFEST's bytes: what announcements carry. */
plm_status plm_manifest_read(const char *directory, struct plm_manifest *manifest,
                             struct plm_hash *hash, struct plm_error *error);

/* Every file's size and hash, no file missing, none unlisted; the step is the folder's where its
 * name is a final one. step and identity (the XXH3-128 of model.safetensors) may be NULL. */
plm_status plm_checkpoint_verify(const char *directory, uint64_t *step, struct plm_hash *identity,
                                 struct plm_error *error);

/* Folders with final names under DIR, ascending by step, verified or not. Caller frees *steps. */
plm_status plm_checkpoint_list(const char *checkpoints_directory, uint64_t **steps, size_t *count,
                               struct plm_error *error);
/* The newest that verifies; reports each that fails through plm_warning. PLM_NOT_FOUND. */
plm_status plm_checkpoint_newest(const char *checkpoints_directory, uint64_t *step,
                                 struct plm_error *error);

/* config.json of a checkpoint: the model, plus auto_map, model_type, architectures, dtype,
 * tie_word_embeddings, the window in force and the objective: a causal mask alone does not say what
 * the model learnt to predict. Caller frees *text. */
plm_status plm_checkpoint_config_print(const struct plm_model_config *model, uint32_t window,
                                       enum plm_objective objective, char **text,
                                       struct plm_error *error);
/* window and objective may be NULL. */
plm_status plm_checkpoint_config_read(const char *directory, struct plm_model_config *model,
                                      uint32_t *window, enum plm_objective *objective,
                                      struct plm_error *error);

/* The tensors of a weights file, or of the shards of PATH.index.json where there is no such file,
 * into host values (arena layout of `table`; gaps are left alone). F32, BF16, F16 and F64 are
 * taken, as fp32. PLM_FORMAT when a parameter is missing, has another shape or no such dtype, or a
 * tensor is left over; a tied model may have its table a second time as lm_head.decoder.weight. */
plm_status plm_checkpoint_read_weights(const char *path, const struct plm_parameter *table,
                                       size_t count, float *values, struct plm_error *error);
/* The same into the model's parameter arena. file: "model.safetensors" or "ema.safetensors"; every
 * parameter must be there with its shape, none may be left over. Calls
 * plm_model_weights_changed. */
plm_status plm_checkpoint_load_weights(const char *directory, const char *file,
                                       struct plm_model *model, struct plm_error *error);

/* What a weights file has besides the trunk. */
enum plm_weights_head {
  PLM_HEAD_LM,         /* the language model's head, lm_head.* */
  PLM_HEAD_CLASSIFIER, /* classifier.*: a model fine-tuned to labels of sequences or of residues */
  PLM_HEAD_NONE        /* nothing: transformers' AutoModel, whose names also lack "plm." */
};
/* As plm_checkpoint_load_weights, for hidden states only: the file may have any of these heads, and
 * *head says which. Unless it is the language model's, the model's head is zero. */
plm_status plm_checkpoint_load_trunk(const char *directory, const char *file,
                                     struct plm_model *model, enum plm_weights_head *head,
                                     struct plm_error *error);

/* Host values (arena layout of `table`) as fp32 tensors under the names of model.md. */
plm_status plm_checkpoint_write_weights(const char *path, const struct plm_parameter *table,
                                        size_t count, const float *values, struct plm_error *error);

/* The files that every checkpoint carries for Hugging Face besides weights and config.json:
 * vocab.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json. Each is fsynced. */
plm_status plm_checkpoint_write_huggingface(const char *directory,
                                            const struct plm_model_config *model,
                                            enum plm_tokenizer_kind tokenizer,
                                            struct plm_error *error);

#endif
