/* Writing corpora for tests with ingest's writer. */
#include "tests/support/corpora/written_corpus.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/numbers/philox.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static uint8_t *draw_record(const struct plm_label_schema *schema, uint64_t number,
                            uint32_t residues)
{
  uint8_t *record = must(malloc(plm_label_record_size(schema, residues)));
  plm_label_record_clear(schema, residues, record);
  if (number % 4 == 0) return record;
  plm_label_put_number(record, (double)number);
  plm_label_put_class(record + plm_label_record_offset(schema, 1, residues), (int32_t)(number % 3));
  uint8_t *structure = record + plm_label_record_offset(schema, 2, residues);
  for (uint32_t i = 0; i < residues; i++)
    plm_label_put_residue(structure, i, (int32_t)((number + i) % 4) - 1);
  return record;
}

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
  uint8_t *record = NULL;
  if (of->labelled) {
    record = draw_record(plm_corpus_writer_schema(writer), number, size);
    plm_corpus_writer_labels(writer, record);
  }
  PLM_ASSERT(plm_corpus_writer_add(writer, split, "n", 1, residues, size, NULL) == PLM_OK);
  free(record);
}

struct plm_corpus *written_corpus_open(const char *name, const struct written_corpus *of)
{
  const char *directory = scratch_path(name);
  struct plm_label_schema schema = {0};
  if (of->labelled) label_schema_make(&schema);
  const struct plm_corpus_writer_options options = {.directory = directory,
                                                    .labels = of->labelled ? &schema : NULL,
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
  plm_label_schema_deinit(&schema);
  PLM_ASSERT(plm_corpus_open(directory, NULL, &corpus, NULL) == PLM_OK);
  return corpus;
}

void written_corpora(int count, const struct written_corpus *of)
{
  for (int k = 0; k < count; k++) {
    char name[24];
    snprintf(name, sizeof name, "corpus.%d", k);
    plm_corpus_close(written_corpus_open(name, of));
  }
}
