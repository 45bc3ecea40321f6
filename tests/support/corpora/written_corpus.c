/* Writing corpora for tests with ingest's writer. */
#include "tests/support/corpora/written_corpus.h"

#include <stdlib.h>

#include "common/base/numbers/philox.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static void add_document(struct plm_corpus_writer *writer, const struct written_corpus *of,
                         enum plm_split split, uint64_t number, uint8_t *residues)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWC";
  const struct plm_philox_words head = plm_philox(11, (uint32_t)split, number, 920);
  const uint32_t size = 1 + head.w[0] % of->longest;
  for (uint32_t i = 0; i < size; i++) {
    const uint32_t word = plm_philox(11, i / 4, number, 921 + (uint32_t)split).w[i % 4];
    residues[i] = of->tokenizer == PLM_TOKENIZER_BYTE ? (uint8_t)word : (uint8_t)letters[word % 20];
  }
  if (of->cluster_documents != 0 && (number == 0 || head.w[1] % of->cluster_documents == 0))
    PLM_ASSERT(plm_corpus_writer_begin_cluster(writer, split, NULL) == PLM_OK);
  PLM_ASSERT(plm_corpus_writer_add(writer, split, "n", 1, residues, size, NULL) == PLM_OK);
}

struct plm_corpus *written_corpus_open(const char *name, const struct written_corpus *of)
{
  const char *directory = scratch_path(name);
  const struct plm_corpus_writer_options options = {.directory = directory,
                                                    .tokenizer = of->tokenizer,
                                                    .clustered = of->cluster_documents != 0,
                                                    .threads = 1};
  const struct plm_ingested_file source = {.name = "written", .bytes = 1, .documents = 1};
  struct plm_corpus_writer *writer;
  struct plm_corpus *corpus;
  uint8_t *residues = must(malloc(of->longest));
  PLM_ASSERT(plm_corpus_writer_open(&options, &writer, NULL) == PLM_OK);
  for (int split = 0; split < PLM_SPLIT_COUNT; split++)
    for (uint64_t number = 0; number < of->documents[split]; number++)
      add_document(writer, of, (enum plm_split)split, number, residues);
  PLM_ASSERT(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL) == PLM_OK);
  plm_corpus_writer_close(writer);
  free(residues);
  PLM_ASSERT(plm_corpus_open(directory, NULL, &corpus, NULL) == PLM_OK);
  return corpus;
}
