/* Clusters of sequences, from the table that MMseqs2 writes, whose lines are representative, tab
 * and member. Hashes of each member and of its representative are kept in a temporary index, so
 * memory does not grow with the table. Neighbouring hashes are neighbours in the index, which is
 * therefore much faster if many hashes are looked up in ascending order. */
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
  uint64_t without_member;  /* sequences that no line names; plm_cluster_order counts them */
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

/* Whether a line names the member with this hash. */
plm_status plm_cluster_table_has(struct plm_cluster_table *table, uint64_t hash, bool *found,
                                 struct plm_error *error);
/* Looks a sequence up by the hash of its name. If a line names it, *found is true, *representative
 * is the hash of its representative's name, and the sequence is counted. */
plm_status plm_cluster_table_find(struct plm_cluster_table *table, uint64_t hash,
                                  uint64_t *representative, bool *found, struct plm_error *error);

#endif
