/* Clusters of sequences, from the table that MMseqs2 writes, whose lines are representative, tab
 * and member. Hashes of each member and of its representative are kept in a temporary index, so
 * memory does not grow with the table. */
#ifndef PLM_STAGES_INGEST_CLUSTER_TABLE_H
#define PLM_STAGES_INGEST_CLUSTER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "stages/ingest/temporary_index.h"

/* What is unusual about the table and the sequences that were looked up in it. */
struct plm_cluster_counts {
  uint64_t members;         /* that the table names */
  uint64_t repeated_lines;  /* lines that repeat an earlier one; ignored */
  uint64_t in_several;      /* lines that put a member into a second cluster; ignored */
  uint64_t in_several_line; /* the first of them, from 1 */
  uint64_t without_member;  /* sequences that no line names */
  uint64_t members_found;   /* members with at least one sequence */
  uint64_t repeated_names;  /* sequences whose member already had one */
};

struct plm_cluster_table;

/* The file may be plain, .gz or .zst. Uses the table `index_table` of the index, which is borrowed.
 * A line that puts a member into a second cluster is counted and ignored, or with strict an error.
 * PLM_FORMAT names file and line. A stop signal ends it. */
plm_status plm_cluster_table_open(const char *path, bool strict, struct plm_temporary_index *index,
                                  int index_table, struct plm_cluster_table **table,
                                  struct plm_error *error);
void plm_cluster_table_close(struct plm_cluster_table *table); /* NULL is fine */
const struct plm_cluster_counts *plm_cluster_table_counts(const struct plm_cluster_table *table);

/* Finds the hash of the representative of the next sequence, which has this name. The name is
 * looked up as a whole and then by its accession, because MMseqs2 shortens UniProt's
 * `sp|ACCESSION|NAME`. For a sequence that no line names, it is the hash of its accession, if its
 * name has one, else of its name. */
plm_status plm_cluster_table_find(struct plm_cluster_table *table, const char *name,
                                  size_t name_size, uint64_t *representative,
                                  struct plm_error *error);

#endif
