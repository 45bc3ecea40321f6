/* A folder that holds a model, in either of two forms: a checkpoint of a run, whose MANIFEST is
 * verified before anything else is read, or a Hugging Face folder without a MANIFEST, as
 * `plm-pipeline export` and transformers' save_pretrained write it, also of published weights
 * (EsmForMaskedLM, EsmcForMaskedLM). Every command that reads a model named by the user begins
 * here. doc/checkpoints.md#model-folders, doc/published.md */
#ifndef PLM_COMMON_HUGGINGFACE_MODEL_FOLDER_H
#define PLM_COMMON_HUGGINGFACE_MODEL_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/parameter_file.h"
#include "common/model/model_config.h"

struct plm_text;

struct plm_model_folder {
  char directory[PLM_PATH_SIZE]; /* absolute, with links resolved, since `latest` may change */
  bool checkpoint;               /* it has a MANIFEST, and every byte is as published */
  uint64_t step;                 /* of a checkpoint; otherwise 0 */
  struct plm_hash identity;      /* XXH3-128 of a checkpoint's model.safetensors; otherwise 0 */
  bool averaged;                 /* it has EMA weights as well (only checkpoints do) */
  struct plm_model_config model;
  uint32_t window; /* in force, tokens */
  enum plm_objective objective;
};

/* Opens a folder: verifies a checkpoint and reads config.json. PLM_NOT_FOUND: there is no folder,
 * or no model in it. PLM_CORRUPT: a checkpoint that does not verify or has no MANIFEST. PLM_FORMAT,
 * PLM_CONFIG: config.json is wrong. The weights of an export are only checked when they are loaded.
 * advance (may be NULL): told of the bytes that are verified. */
plm_status plm_model_folder_check(const char *directory, struct plm_model_folder *folder,
                                  struct plm_advance *advance, struct plm_error *error);

/* The name of the weights file to evaluate and export: the EMA weights if there are any. */
const char *plm_model_folder_weights(const struct plm_model_folder *folder);
/* Checks a user's choice of weights: NULL, "model" or "ema". PLM_USAGE: any other word. */
plm_status plm_model_weights_check(const char *choice, struct plm_error *error);
/* The name of the file that a choice selects in this folder. PLM_USAGE as above; PLM_NOT_FOUND: the
 * folder has no EMA weights. */
plm_status plm_model_folder_choose(const struct plm_model_folder *folder, const char *choice,
                                   const char **file, struct plm_error *error);

/* XXH3-128 of one of its weights files. If the weights are in shards, it is the hash of the name
 * and data of each tensor in turn. Published weights without a MANIFEST are identified by their
 * tensors: type, shape, name and data of each, in the order of their names, so that one file and
 * shards, or another order, are the same. */
plm_status plm_model_folder_hash(const struct plm_model_folder *folder, const char *file,
                                 struct plm_hash *hash, struct plm_error *error);

/* What stands above the notes below. */
#define PLM_NOTES_TITLE "trainer.init_from: the weights were trained with other settings"
/* Logs them, if there are any. */
void plm_model_folder_log_notes(const struct plm_text *notes);

/* Checks that the folder's weights fit a model: the same parameters with the same meaning.
 * PLM_CONFIG names the keys that differ, with both values. Keys that may differ (soft_logit_cap,
 * attention.*, layer_norm_eps, token_dropout, max_length unless a patch_unet has other blocks with
 * it) add a line each to notes, which may be NULL. */
plm_status plm_model_folder_fits(const struct plm_model_folder *folder,
                                 const struct plm_model_config *model, struct plm_text *notes,
                                 struct plm_error *error);
/* What a run from the folder begins with new: a head for labels, if the model has one and the
 * folder has none, or one of another shape; adapters, if only the model has any. The seed is 0. */
struct plm_new_parts plm_model_folder_new_parts(const struct plm_model_folder *folder,
                                                const struct plm_model_config *model);
/* Checks, without reading values, that a run of this model can begin with the folder's weights: it
 * fits, and unless the head is new, the weights have the model's head. notes and PLM_CONFIG as
 * above; other errors are those of plm_parameters_check_whole. */
plm_status plm_model_folder_can_start(const struct plm_model_folder *folder,
                                      const struct plm_model_config *model, struct plm_text *notes,
                                      struct plm_error *error);

#endif
