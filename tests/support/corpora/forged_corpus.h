/* Damage in a corpus that its opening does not show. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_FORGED_CORPUS_H
#define PLM_TESTS_SUPPORT_CORPORA_FORGED_CORPUS_H

#include <stdint.h>

#include "common/corpus/corpus_description.h"

/* Writes a description into corpus.json, changed so that it agrees with the edges of data.mdb. */
void forged_corpus_describe(const char *directory, const struct plm_corpus_description *original);
/* Keeps only the first `documents` hashes of sequences of train, which has at most 16,384. */
void forged_corpus_cut_digests(const char *directory, uint32_t documents);
/* Cuts the record that has the names of train's first documents to half of its bytes. */
void forged_corpus_cut_names(const char *directory);

#endif
