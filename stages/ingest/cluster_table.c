/* Reading and finding clusters. */
#include "stages/ingest/cluster_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/run/stop.h"
#include "common/sequences/line_source.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/ingest/pair_table.h"

enum { LINE_LIMIT = 1 << 16 };

struct plm_cluster_table {
  struct plm_pair_table *pairs;
};

static plm_status bad_line(const struct plm_line_source *source, const char *what,
                           struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "%s", what);
  plm_error_hint(error,
                 "a line is REPRESENTATIVE, a tab and MEMBER, as `mmseqs createtsv` writes it");
  return plm_error_where(error, "%s:%llu", plm_byte_stream_name(source->stream),
                         (unsigned long long)source->line);
}

static plm_status take_line(struct plm_cluster_table *table, const struct plm_line_source *source,
                            const char *line, size_t size, struct plm_error *error)
{
  if (size != 0 && line[size - 1] == '\r') size--;
  if (size == 0) return PLM_OK;
  const char *tab = memchr(line, '\t', size);
  if (tab == NULL) return bad_line(source, "this line has no tab", error);
  const char *member = tab + 1;
  const char *end = memchr(member, '\t', size - (size_t)(member - line));
  const size_t length = (size_t)((end != NULL ? end : line + size) - member);
  if (tab == line || length == 0) return bad_line(source, "this line has an empty name", error);
  const uint64_t representative = plm_hash64_bytes(line, (size_t)(tab - line));
  uint64_t second = representative;
  bool found;
  PLM_TRY(
      plm_pair_table_add(table->pairs, plm_hash64_bytes(member, length), &second, &found, error));
  if (found && second != representative)
    return bad_line(source, "the member of this line is already in another cluster", error);
  return PLM_OK;
}

static plm_status read_lines(struct plm_cluster_table *table, struct plm_line_source *source,
                             char *line, struct plm_error *error)
{
  size_t used = 0;
  for (;;) {
    struct plm_line_piece piece;
    PLM_TRY(plm_stop_check("", error));
    const enum plm_line_result result = plm_line_next(source, &piece, error);
    if (result == PLM_LINE_AGAIN) continue;
    if (result == PLM_LINE_FAILED) return error == NULL ? PLM_FAILURE : error->status;
    if (result == PLM_LINE_END) return take_line(table, source, line, used, error);
    if (piece.size > LINE_LIMIT - used) return bad_line(source, "this line is too long", error);
    memcpy(line + used, piece.bytes, piece.size);
    used += piece.size;
    if (!piece.ends) continue;
    PLM_TRY(take_line(table, source, line, used, error));
    used = 0;
  }
}

plm_status plm_cluster_table_open(const char *path, struct plm_cluster_table **table,
                                  struct plm_error *error)
{
  *table = NULL;
  struct plm_line_source source = {0};
  struct plm_cluster_table *opened = calloc(1, sizeof *opened);
  char *line = malloc(LINE_LIMIT);
  plm_status status = PLM_OK;
  if (opened != NULL) opened->pairs = plm_pair_table_open(false);
  if (opened == NULL || line == NULL || opened->pairs == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  if (status == PLM_OK) status = plm_byte_stream_open(path, &source.stream, error);
  if (status == PLM_OK) status = read_lines(opened, &source, line, error);
  if (status == PLM_OK && plm_pair_table_count(opened->pairs) == 0)
    status = plm_error_set(error, PLM_FORMAT, "%s holds no clusters", path);
  plm_byte_stream_close(source.stream);
  free(line);
  if (status != PLM_OK)
    plm_cluster_table_close(opened);
  else
    *table = opened;
  return status;
}

void plm_cluster_table_close(struct plm_cluster_table *table)
{
  if (table == NULL) return;
  plm_pair_table_close(table->pairs);
  free(table);
}

uint64_t plm_cluster_table_members(const struct plm_cluster_table *table)
{
  return plm_pair_table_count(table->pairs);
}

bool plm_cluster_table_find(const struct plm_cluster_table *table, const char *name,
                            size_t name_size, uint64_t *hash)
{
  const uint64_t own = plm_hash64_bytes(name, name_size);
  if (plm_pair_table_find(table->pairs, own, hash)) return true;
  *hash = own;
  const char *first = memchr(name, '|', name_size);
  if (first == NULL) return false;
  const char *accession = first + 1;
  const char *second = memchr(accession, '|', name_size - (size_t)(accession - name));
  if (second == NULL) return false;
  *hash = plm_hash64_bytes(accession, (size_t)(second - accession));
  return plm_pair_table_find(table->pairs, *hash, hash);
}
