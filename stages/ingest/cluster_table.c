/* Reading and finding clusters. */
#include "stages/ingest/cluster_table.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/run/stop.h"
#include "common/sequences/line_reader.h"

enum { LINE_LIMIT = 1 << 16, LINES_TOGETHER = 1 << 18 };

/* A line of the table: hashes of its names, and its number from 1. */
struct table_line {
  uint64_t member, representative, number;
};

struct plm_cluster_table {
  struct plm_temporary_index *index;
  int index_table;
  bool strict;
  struct plm_cluster_counts counts;
  struct table_line *lines; /* (LINES_TOGETHER) that are not in the index yet */
  size_t line_count;
};

/* A record of the index, whose key is the hash of the member's name, big-endian, so that ascending
 * hashes are neighbours. */
struct member {
  uint64_t representative; /* hash of its name */
  uint64_t sequences;      /* that were looked up so far */
};

static plm_status get_member(struct plm_cluster_table *table, uint64_t hash, struct member *member,
                             bool *found, struct plm_error *error)
{
  const uint64_t key = htobe64(hash);
  return plm_temporary_index_get(table->index, table->index_table, &key, sizeof key, member,
                                 sizeof *member, found, error);
}

static plm_status put_member(struct plm_cluster_table *table, uint64_t hash,
                             const struct member *member, struct plm_error *error)
{
  const uint64_t key = htobe64(hash);
  return plm_temporary_index_put(table->index, table->index_table, &key, sizeof key, member,
                                 sizeof *member, error);
}

/* ---- reading the table ----------------------------------------------------------------------- */

static plm_status bad_line(const struct plm_line_reader *source, const char *what,
                           struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "%s", what);
  plm_error_hint(error,
                 "a line is REPRESENTATIVE, a tab and MEMBER, as in the file NAME_cluster.tsv of "
                 "`mmseqs easy-cluster IN.fasta NAME TEMPORARY`");
  return plm_error_where(error, "%s:%llu", plm_byte_stream_name(source->stream),
                         (unsigned long long)source->line);
}

static int compare_lines(const void *left, const void *right)
{
  const struct table_line *a = left, *b = right;
  if (a->member != b->member) return a->member < b->member ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static plm_status index_line(struct plm_cluster_table *table, const struct table_line *line,
                             struct plm_error *error)
{
  struct member member;
  bool found;
  PLM_TRY(get_member(table, line->member, &member, &found, error));
  if (!found) {
    member = (struct member){.representative = line->representative};
    table->counts.members++;
    return put_member(table, line->member, &member, error);
  }
  if (member.representative == line->representative) {
    table->counts.repeated_lines++;
    return PLM_OK;
  }
  if (table->counts.in_several++ == 0 || line->number < table->counts.in_several_line)
    table->counts.in_several_line = line->number;
  return PLM_OK;
}

/* Puts the lines into the index by ascending hash. The lines of a member keep their order, so that
 * the first one counts. */
static plm_status cluster_table_index_lines(struct plm_cluster_table *table,
                                            const struct plm_line_reader *source,
                                            struct plm_error *error)
{
  qsort(table->lines, table->line_count, sizeof *table->lines, compare_lines);
  for (size_t i = 0; i < table->line_count; i++)
    PLM_TRY(index_line(table, &table->lines[i], error));
  table->line_count = 0;
  if (!table->strict || table->counts.in_several == 0) return PLM_OK;
  struct plm_line_reader conflict = *source;
  conflict.line = table->counts.in_several_line;
  return bad_line(&conflict, "the member of this line is already in another cluster", error);
}

static plm_status cluster_table_parse_line(struct plm_cluster_table *table,
                                           const struct plm_line_reader *source, const char *line,
                                           size_t size, struct plm_error *error)
{
  if (size == 0) return PLM_OK;
  const char *tab = memchr(line, '\t', size);
  if (tab == NULL) return bad_line(source, "this line has no tab", error);
  const char *member = tab + 1;
  const char *end = memchr(member, '\t', size - (size_t)(member - line));
  const size_t length = (size_t)((end != NULL ? end : line + size) - member);
  if (tab == line || length == 0) return bad_line(source, "this line has an empty name", error);
  table->lines[table->line_count++] =
      (struct table_line){.member = plm_hash64_bytes(member, length),
                          .representative = plm_hash64_bytes(line, (size_t)(tab - line)),
                          .number = source->line};
  return table->line_count == LINES_TOGETHER ? cluster_table_index_lines(table, source, error)
                                             : PLM_OK;
}

static plm_status read_lines(struct plm_cluster_table *table, struct plm_line_reader *source,
                             char *line, struct plm_error *error)
{
  size_t used = 0;
  plm_status begun;
  do {
    PLM_TRY(plm_stop_check("", error));
    begun = plm_byte_stream_begin_text(source->stream, false, error);
  } while (begun == PLM_AGAIN);
  PLM_TRY(begun);
  for (;;) {
    struct plm_line_span span;
    PLM_TRY(plm_stop_check("", error));
    const enum plm_line_result result = plm_line_next(source, &span, error);
    if (result == PLM_LINE_AGAIN) continue;
    if (result == PLM_LINE_FAILED) return error == NULL ? PLM_FAILURE : error->status;
    if (result == PLM_LINE_END) {
      PLM_TRY(cluster_table_parse_line(table, source, line, used, error));
      return cluster_table_index_lines(table, source, error);
    }
    if (span.size > LINE_LIMIT - used) return bad_line(source, "this line is too long", error);
    memcpy(line + used, span.bytes, span.size);
    used += span.size;
    if (!span.ends) continue;
    PLM_TRY(cluster_table_parse_line(table, source, line, used, error));
    used = 0;
  }
}

plm_status plm_cluster_table_open(const char *path, bool strict, struct plm_temporary_index *index,
                                  int index_table, struct plm_cluster_table **table,
                                  struct plm_error *error)
{
  *table = NULL;
  struct plm_line_reader source = {0};
  struct plm_cluster_table *opened = calloc(1, sizeof *opened);
  char *line = malloc(LINE_LIMIT);
  plm_status status = PLM_OK;
  if (opened != NULL)
    *opened =
        (struct plm_cluster_table){.index = index,
                                   .index_table = index_table,
                                   .strict = strict,
                                   .lines = malloc(LINES_TOGETHER * sizeof(struct table_line))};
  if (opened == NULL || line == NULL || opened->lines == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  if (status == PLM_OK) status = plm_byte_stream_open(path, &source.stream, error);
  if (status == PLM_OK) status = read_lines(opened, &source, line, error);
  if (status == PLM_OK && opened->counts.members == 0)
    status = plm_error_set(error, PLM_FORMAT, "%s holds no clusters", path);
  plm_byte_stream_close(source.stream);
  free(line);
  if (opened != NULL) free(opened->lines);
  if (status != PLM_OK)
    plm_cluster_table_close(opened);
  else
    *table = opened;
  return status;
}

void plm_cluster_table_close(struct plm_cluster_table *table)
{
  free(table);
}

const struct plm_cluster_counts *plm_cluster_table_counts(const struct plm_cluster_table *table)
{
  return &table->counts;
}

/* ---- looking sequences up -------------------------------------------------------------------- */

plm_status plm_cluster_table_has(struct plm_cluster_table *table, uint64_t hash, bool *found,
                                 struct plm_error *error)
{
  struct member member;
  return get_member(table, hash, &member, found, error);
}

plm_status plm_cluster_table_find(struct plm_cluster_table *table, uint64_t hash,
                                  uint64_t *representative, bool *found, struct plm_error *error)
{
  struct member member;
  PLM_TRY(get_member(table, hash, &member, found, error));
  if (!*found) return PLM_OK;
  *representative = member.representative;
  if (member.sequences != 0) {
    table->counts.repeated_names++;
    return PLM_OK;
  }
  table->counts.members_found++;
  member.sequences = 1;
  return put_member(table, hash, &member, error);
}
