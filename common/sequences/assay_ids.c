/* Looks for ids in the reference file of a benchmark. */
#include "common/sequences/assay_ids.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/suggest.h"
#include "common/sequences/csv_file.h"

/* The nearest id of the file, which the search keeps by reference. */
struct nearest {
  struct plm_suggestion suggestion;
  char *id;
};

static void offer(struct nearest *nearest, const char *text, size_t size)
{
  char *id = plm_strndup(text, size);
  plm_suggest(&nearest->suggestion, id);
  if (nearest->suggestion.best != id) {
    free(id);
    return;
  }
  free(nearest->id);
  nearest->id = id;
}

/* Whether the file has the id. */
static plm_status find_id(struct plm_csv_file *csv, const char *wanted, bool *found,
                          struct nearest *nearest, struct plm_error *error)
{
  struct plm_csv_row row;
  PLM_TRY(plm_csv_rewind(csv, error));
  PLM_TRY(plm_csv_next(csv, &row, error));
  const size_t column = plm_csv_column(&row, "DMS_id");
  if (column == SIZE_MAX)
    return plm_error_set(error, PLM_CONFIG, "%s has no column \"DMS_id\"", plm_csv_name(csv));
  for (*found = false; !*found;) {
    PLM_TRY(plm_csv_next(csv, &row, error));
    if (row.count == 0) return PLM_OK;
    if (column >= row.count) continue;
    const char *text = row.fields[column].text;
    size_t size = row.fields[column].size;
    plm_trim(&text, &size);
    *found = size == strlen(wanted) && memcmp(text, wanted, size) == 0;
    offer(nearest, text, size);
  }
  return PLM_OK;
}

static plm_status check_id(struct plm_csv_file *csv, const char *id, struct plm_error *error)
{
  struct nearest nearest = {.suggestion.word = id};
  bool found = false;
  plm_status status = find_id(csv, id, &found, &nearest, error);
  if (status == PLM_OK && !found) {
    status = plm_error_set(error, PLM_CONFIG, "%s lists no assay \"%.80s\"", plm_csv_name(csv), id);
    if (nearest.id != NULL)
      plm_error_hint(error, "did you mean \"%.80s\"?", nearest.id);
    else
      plm_error_hint(error, "the ids are those of its column DMS_id");
  }
  free(nearest.id);
  return status;
}

plm_status plm_assay_ids_check(const char *reference, const char *const *ids, uint32_t count,
                               struct plm_error *error)
{
  struct plm_csv_file *csv;
  PLM_TRY(plm_csv_open(reference, &csv, error));
  plm_status status = PLM_OK;
  for (uint32_t i = 0; i < count && status == PLM_OK; i++) status = check_id(csv, ids[i], error);
  plm_csv_close(csv);
  return status;
}
