/* What a model card says about the origin of a model: gathered from the checkpoint, its run and the
 * corpus, as far as they exist. */
#ifndef PLM_STAGES_EXPORT_CARD_FACTS_H
#define PLM_STAGES_EXPORT_CARD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/corpus/corpus_description.h"
#include "common/huggingface/model_folder.h"

struct cJSON;

struct plm_card_facts {
  /* filled by the caller */
  const struct plm_model_folder *folder;
  const char *name;    /* of the model */
  const char *license; /* from the Hub's list; NULL: the card leaves it to be chosen */
  const char *weights; /* "ema" or "model" */
  const char *dtype;   /* "float32" or "bfloat16" */
  uint64_t parameters;
  const char
      *adapter; /* the folder of an adapter that was added to the folder's weights; or NULL */

  /* filled by plm_card_facts_gather */
  bool trained; /* trainer.json exists: config, tokens, precision, fingerprint are set */
  struct plm_config config; /* as at the checkpoint */
  uint64_t tokens;          /* seen during training */
  double epochs;            /* of the corpus; NAN: unknown */
  char precision[16];
  char fingerprint[PLM_HASH_HEX_SIZE]; /* of the corpus */
  bool corpus_known;                   /* the corpus with this fingerprint is still there */
  struct plm_corpus_description corpus;
  struct cJSON *evaluations; /* array: the evaluator's last line for each set and split and these
                                weights; empty with an adapter, since the weights are others then */
  struct cJSON *tasks; /* array: the same of evaluator.tasks, without those that were skipped */
};

/* Fills the rest. Missing files are left out; a damaged file is an error, after which _deinit need
 * not be called. */
plm_status plm_card_facts_gather(struct plm_card_facts *facts, struct plm_error *error);
void plm_card_facts_deinit(struct plm_card_facts *facts);

#endif
