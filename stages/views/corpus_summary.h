/* What `plm-pipeline corpus` prints about a corpus, for people and as JSON. */
#ifndef PLM_STAGES_VIEWS_CORPUS_SUMMARY_H
#define PLM_STAGES_VIEWS_CORPUS_SUMMARY_H

#include "common/corpus/corpus_description.h"

/* Tables and bars on stdout. */
void plm_corpus_summary_print(const char *directory,
                              const struct plm_corpus_description *description);
/* Prints one object on one line: fingerprint, tokenizer, format, clustered, entropy (nats),
 * ingested files (sources), size (bytes), and splits.NAME with documents, residues, length_min,
 * length_max, histogram and composition. */
plm_status plm_corpus_summary_json(const struct plm_corpus_description *description,
                                   struct plm_error *error);

#endif
