/* Corpora of given sizes, written without ingest: documents are a function of split and number. */
#ifndef PLM_TESTS_SUPPORT_CORPORA_WRITTEN_CORPUS_H
#define PLM_TESTS_SUPPORT_CORPORA_WRITTEN_CORPUS_H

#include "common/corpus/corpus.h"

struct written_corpus {
  enum plm_tokenizer_kind tokenizer;
  uint64_t documents[PLM_SPLIT_COUNT];
  uint32_t longest;           /* documents have 1 to that many residues */
  uint32_t cluster_documents; /* of a cluster on average; 0: no clusters */
  bool labelled;              /* with labels of the schema of label_schema_make */
};

/* Writes a corpus into the temporary folder, under a name that is not in use, and opens it. */
struct plm_corpus *written_corpus_open(const char *name, const struct written_corpus *of);

/* Writes `count` such corpora as corpus.0, corpus.1, … and does not keep them open. */
void written_corpora(int count, const struct written_corpus *of);

#endif
