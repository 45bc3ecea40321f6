/* What a model card tells of where a model comes from: gathered from the checkpoint, its run and
 * the corpus, each as far as it is at hand. */
#ifndef PLM_STAGES_EXPORT_CARD_FACTS_H
#define PLM_STAGES_EXPORT_CARD_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/corpus/corpus_description.h"
#include "common/huggingface/model_folder.h"

struct cJSON;

struct plm_card_facts {
  /* the caller's */
  const struct plm_model_folder *folder;
  const char *name;    /* of the model */
  const char *license; /* of the Hub's list; NULL: to be filled in */
  const char *weights; /* "ema" or "model" */
  const char *dtype;   /* "float32" or "bfloat16" */
  uint64_t parameters;

  /* plm_card_facts_gather's */
  bool trained;             /* trainer.json was there: config, tokens, precision, fingerprint */
  struct plm_config config; /* as at the checkpoint */
  uint64_t tokens;          /* seen in training */
  char precision[16];
  char fingerprint[PLM_HASH_HEX_SIZE]; /* of the corpus */
  bool corpus_known;                   /* the corpus of that fingerprint is where it was */
  struct plm_corpus_description corpus;
  struct cJSON *evaluations; /* array: the evaluator's line of each split, of these weights */
};

/* Fills the rest. What is missing is left out; what is damaged is an error. */
plm_status plm_card_facts_gather(struct plm_card_facts *facts, struct plm_error *error);
void plm_card_facts_deinit(struct plm_card_facts *facts);

#endif
