/* What a schema of labels says of the documents: how many labels there are, and the moments and
 * counts of the training split. The results depend on the order of the documents only. */
#ifndef PLM_STAGES_INGEST_LABEL_STATISTICS_H
#define PLM_STAGES_INGEST_LABEL_STATISTICS_H

#include "common/corpus/corpus.h"
#include "common/labels/label_record.h"

struct plm_label_statistics;
/* Borrows the schema, of which only names, kinds and classes are read. Never NULL. */
struct plm_label_statistics *plm_label_statistics_open(const struct plm_label_schema *schema);
void plm_label_statistics_close(struct plm_label_statistics *statistics); /* NULL is fine */
/* Adds a document's label record. */
void plm_label_statistics_add(struct plm_label_statistics *statistics, enum plm_split split,
                              uint32_t residues, const uint8_t *record);
/* Sets the statistics of the schema's columns. */
void plm_label_statistics_finish(const struct plm_label_statistics *statistics,
                                 struct plm_label_schema *schema);

#endif
