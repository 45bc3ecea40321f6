/* Brings documents into the order of their clusters. Documents are collected in a temporary file in
 * the order of ingest, and their order in a temporary index, so memory does not grow with the
 * number of documents or clusters.
 *
 * Clusters come in the order in which their first documents were added, and the documents of a
 * cluster in the order in which they were added. */
#ifndef PLM_STAGES_INGEST_CLUSTER_ORDER_H
#define PLM_STAGES_INGEST_CLUSTER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "stages/ingest/cluster_table.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/ingest/member_name.h"
#include "stages/ingest/split_rule.h"

struct plm_cluster_order;

/* Reads the table of clusters at path (see plm_cluster_table_open). directory is an existing empty
 * folder for the temporary files; the caller removes it after _close. unmatched_limit is the
 * largest share, 0 to 1, of the documents that the table need not name. */
plm_status plm_cluster_order_open(const char *directory, const char *path, bool strict,
                                  double unmatched_limit, const struct plm_split_rule *splits,
                                  struct plm_cluster_order **order, struct plm_error *error);
void plm_cluster_order_close(struct plm_cluster_order *order); /* NULL is fine */
/* Complete after plm_cluster_order_write, as are the following. */
struct plm_cluster_counts plm_cluster_order_counts(const struct plm_cluster_order *order);
/* How the table names the sequences. */
enum plm_member_rule plm_cluster_order_rule(const struct plm_cluster_order *order);
/* The first names that the table lacks, quoted: `"a", "b", "c"`; "" if there are none. */
const char *plm_cluster_order_unmatched(const struct plm_cluster_order *order);

/* Adds the next document, with its label record (labels: NULL: the corpus has none). Its split
 * follows from the name of its cluster's representative: that of a sequence that no line of the
 * table names has its name. PLM_NO_SPACE. */
plm_status plm_cluster_order_add(struct plm_cluster_order *order, const char *name,
                                 size_t name_size, const uint8_t *residues, size_t size,
                                 const uint8_t *labels, size_t label_size, struct plm_error *error);

/* Adds all documents to the writer, cluster by cluster. Of the rules of member_name.h, the one by
 * which the table names most documents holds for all. progress may be NULL. A stop signal ends it.
 * PLM_FORMAT: the table lacks more documents than the limit allows. */
plm_status plm_cluster_order_write(struct plm_cluster_order *order,
                                   struct plm_corpus_writer *writer,
                                   void (*progress)(void *context, uint64_t done, uint64_t total),
                                   void *context, struct plm_error *error);

#endif
