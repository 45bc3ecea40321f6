/* Clusters of sequences, from the table that MMseqs2 writes: representative, tab, member, a line
 * each. What is kept is a hash of each member with a hash of its representative, 16 bytes. */
#ifndef PLM_STAGES_INGEST_CLUSTER_TABLE_H
#define PLM_STAGES_INGEST_CLUSTER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_cluster_table;

/* Plain, .gz or .zst. PLM_FORMAT names file and line. stop: as in ingest. */
plm_status plm_cluster_table_open(const char *path, const volatile int *stop,
                                  struct plm_cluster_table **table, struct plm_error *error);
void plm_cluster_table_close(struct plm_cluster_table *table); /* NULL is fine */
uint64_t plm_cluster_table_members(const struct plm_cluster_table *table);

/* The hash of the representative of the sequence with this name; members are looked for under the
 * whole name and, as MMseqs2 shortens UniProt's `sp|ACCESSION|NAME`, under the accession. A
 * sequence in no cluster stands for itself: false, and the hash of its own name. */
bool plm_cluster_table_find(const struct plm_cluster_table *table, const char *name,
                            size_t name_size, uint64_t *hash);

#endif
