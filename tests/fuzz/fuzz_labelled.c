/* Fuzzes the reader of tables with labels, of each kind, with and without a split: what it accepts
 * is consistent, and what it refuses has a message. */
#include "tests/support/harness/fuzz_seed.h"

#include <math.h>
#include <string.h>

#include "common/sequences/byte_stream.h"
#include "common/sequences/labelled_table.h"
#include "tests/support/harness/scratch.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("sequence,y,set,validation\nMKV,0.5,train,\nMA,-1e3,test,True\nMC,NA,,\n"),
    FUZZ_TEXT("seq\ty\tset\nMKV\t[0, '12', 1]\t3\nMA*\tH?\t0\n"),
    FUZZ_TEXT("{\"sequence\":\"MKV\",\"y\":[1,null,\"a\"],\"set\":\"dev\"}\n{\"sequence\":\"A\","
              "\"y\":true,\"set\":\"test\"}\n"),
    FUZZ_TEXT("\xef\xbb\xbfy;sequence;set\r\n\"a;b\";M K;1\r\n1,5;MA;2.0\r\n"),
    {0},
};

static void check_table(const struct plm_labelled_table *table)
{
  const int32_t classes = (int32_t)table->class_count;
  size_t parts = 0;
  PLM_ASSERT(table->kind != PLM_LABEL_GUESSED);
  PLM_ASSERT(table->count > 0 || table->kind == PLM_LABEL_CLASSES);
  for (int part = 0; part < PLM_PARTS; part++) parts += table->parts[part];
  PLM_ASSERT(parts == (table->folds > 0 ? 0 : table->count));
  for (uint32_t k = 1; k < table->class_count; k++)
    PLM_ASSERT(strcmp(table->classes[k - 1], table->classes[k]) < 0);
  for (size_t i = 0; i < table->count; i++) {
    const struct plm_labelled_row *row = &table->rows[i];
    PLM_ASSERT(row->length > 0 && row->line > (i > 0 ? row[-1].line : 0));
    PLM_ASSERT(row->part < (table->folds > 0 ? table->folds : PLM_PARTS));
    if (table->kind == PLM_LABEL_NUMBER) PLM_ASSERT(isfinite(row->number));
    if (table->kind == PLM_LABEL_CLASS) PLM_ASSERT(row->label >= 0 && row->label < classes);
    PLM_ASSERT((row->labels != NULL) ==
               (table->kind == PLM_LABEL_RESIDUES || table->kind == PLM_LABEL_CLASSES));
    if (table->kind == PLM_LABEL_RESIDUES) PLM_ASSERT(row->label_count == row->length);
    for (uint32_t t = 0; t < row->label_count; t++)
      PLM_ASSERT(row->labels[t] >= -1 && row->labels[t] < classes);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static const char *const splits[] = {NULL, "set"};
  const char *path = scratch_path("labelled.csv");
  plm_byte_stream_limit_windows(1); /* the process may take little memory */
  scratch_write(path, bytes, size);
  for (int kind = PLM_LABEL_GUESSED; kind < PLM_LABEL_KINDS; kind++)
    for (int split = 0; split < 2; split++) {
      const struct plm_labelled_request request = {.path = path,
                                                   .target_column = "y",
                                                   .split_column = splits[split],
                                                   .corpus = kind == PLM_LABEL_CLASSES,
                                                   .kind = (enum plm_label_kind)kind};
      struct plm_labelled_table table;
      struct plm_error error = {0};
      const plm_status status = plm_labelled_table_read(&request, &table, &error);
      if (status == PLM_OK)
        check_table(&table);
      else
        PLM_ASSERT(error.what[0] != '\0');
      plm_labelled_table_deinit(&table);
    }
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
