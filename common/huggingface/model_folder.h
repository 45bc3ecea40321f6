/* A folder that holds a model, in either of its forms: a checkpoint of a run (it has a MANIFEST,
 * which is verified before anything else is read), or a Hugging Face folder of our model without
 * one, as `plm-pipeline export` and transformers' save_pretrained write it. Whoever reads a model
 * that a user names begins here. */
#ifndef PLM_COMMON_HUGGINGFACE_MODEL_FOLDER_H
#define PLM_COMMON_HUGGINGFACE_MODEL_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/parameter_file.h"
#include "common/model/model_config.h"

struct plm_text;

struct plm_model_folder {
  char directory[PLM_PATH_SIZE]; /* absolute, links followed (`latest` moves on) */
  bool checkpoint;               /* it has a MANIFEST, and every byte is what was published */
  uint64_t step;                 /* of a checkpoint; else 0 */
  struct plm_hash identity;      /* of a checkpoint, XXH3-128 of model.safetensors; else zeros */
  bool averaged;                 /* it has EMA weights beside the model's (checkpoints alone) */
  struct plm_model_config model;
  uint32_t window; /* in force, tokens */
  enum plm_objective objective;
};

/* Looks at a folder and reads its config.json. PLM_NOT_FOUND: no folder, or no model in it;
 * PLM_CORRUPT: a checkpoint that does not verify or has lost its MANIFEST; PLM_FORMAT, PLM_CONFIG:
 * its config.json. The weights of an export are looked at when they are loaded. */
plm_status plm_model_folder_check(const char *directory, struct plm_model_folder *folder,
                                  struct plm_error *error);

/* The weights that are evaluated and exported: EMA weights where there are any. A file's name for
 * plm_parameters_load. */
const char *plm_model_folder_weights(const struct plm_model_folder *folder);
/* A user's choice of weights: NULL, "model" or "ema". PLM_USAGE: another word. */
plm_status plm_model_weights_check(const char *choice, struct plm_error *error);
/* The file that a choice means in this folder. PLM_USAGE as above; PLM_NOT_FOUND: the folder has no
 * EMA weights. */
plm_status plm_model_folder_choose(const struct plm_model_folder *folder, const char *choice,
                                   const char **file, struct plm_error *error);

/* XXH3-128 of one of its weights files; of shards, that of their tensors' names and data in turn.
 */
plm_status plm_model_folder_hash(const struct plm_model_folder *folder, const char *file,
                                 struct plm_hash *hash, struct plm_error *error);

/* Whether the folder's weights fit a model: the same parameters with the same meaning. PLM_CONFIG
 * names the keys that are in the way, with both values. Keys that differ and leave the weights as
 * they are (soft_logit_cap, attention.…, max_length of a plain transformer) get one line each in
 * notes, which may be NULL. */
plm_status plm_model_folder_fits(const struct plm_model_folder *folder,
                                 const struct plm_model_config *model, struct plm_text *notes,
                                 struct plm_error *error);

#endif
