/* A schema with a column of each kind. */
#include "tests/support/cases/label_schemas.h"

#include <stdio.h>

#include "common/base/alloc.h"

static void add(struct plm_label_schema *schema, const char *name, enum plm_label_kind kind,
                const char *const *classes, uint32_t count)
{
  struct plm_label_column *column = &schema->columns[schema->count++];
  *column = (struct plm_label_column){
      .name = plm_strdup(name), .kind = kind, .class_count = count, .labels = {40, 3, 2}};
  if (kind == PLM_LABEL_NUMBER) {
    column->mean = 1.25;
    column->deviation = 2;
    return;
  }
  column->classes = plm_alloc_zeroed(count, sizeof *column->classes);
  column->counts = plm_alloc_zeroed(count, sizeof *column->counts);
  for (uint32_t c = 0; c < count; c++) {
    column->classes[c] = plm_strdup(classes[c]);
    column->counts[c] = 10 + c;
  }
}

void label_schema_make(struct plm_label_schema *schema)
{
  static const char *const families[] = {"Alpha", "Beta", "Ga\xce\xbcma"};
  static const char *const structures[] = {"C", "E", "H"};
  static const char *const answers[] = {"0", "1"};
  static const char *const terms[] = {"t00", "t01", "t02", "t03", "t04",
                                      "t05", "t06", "t07", "t08"};
  *schema = (struct plm_label_schema){.columns = plm_alloc_zeroed(5, sizeof *schema->columns)};
  add(schema, "stability", PLM_LABEL_NUMBER, NULL, 0);
  add(schema, "family", PLM_LABEL_CLASS, families, 3);
  add(schema, "structure", PLM_LABEL_RESIDUES, structures, 3);
  add(schema, "terms", PLM_LABEL_CLASSES, terms, 9);
  add(schema, "soluble", PLM_LABEL_CLASS, answers, 2);
}
