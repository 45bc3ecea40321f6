/* Clusters of sequences, from the table that MMseqs2 writes, whose lines are representative, tab
 * and member. Only a hash of each member and a hash of its representative are kept, 16 bytes. */
#ifndef PLM_STAGES_INGEST_CLUSTER_TABLE_H
#define PLM_STAGES_INGEST_CLUSTER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct plm_cluster_table;

/* The file may be plain, .gz or .zst. PLM_FORMAT names file and line. A stop signal ends it. */
plm_status plm_cluster_table_open(const char *path, struct plm_cluster_table **table,
                                  struct plm_error *error);
void plm_cluster_table_close(struct plm_cluster_table *table); /* NULL is fine */
uint64_t plm_cluster_table_members(const struct plm_cluster_table *table);

/* Finds the hash of the representative of the sequence with this name. The name is looked up as a
 * whole and then by its accession, because MMseqs2 shortens UniProt's `sp|ACCESSION|NAME`. Returns
 * false if the sequence is in no cluster; *hash is then that of its accession, if its name has one,
 * else of its name. */
bool plm_cluster_table_find(const struct plm_cluster_table *table, const char *name,
                            size_t name_size, uint64_t *hash);

#endif
