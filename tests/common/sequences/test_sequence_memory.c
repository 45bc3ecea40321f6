/* Reading sequences and labels while memory runs out, at each of the allocations that may fail, and
 * labels while the disk fails, at each call. */
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/sequences/labelled_table.h"
#include "common/sequences/sequence_reader.h"
#include "tests/support/harness/scratch.h"

enum { SHORT = 30, LONG = 20000, ROWS = 40 };

/* A file, and what reading it gives. */
struct file {
  char path[256];
  uint64_t records, residues;
  enum plm_label_kind kind;
  bool corpus; /* it is ingested */
};

/* Reads all records. */
static plm_status read_sequences(void *context, struct plm_error *error)
{
  const struct file *file = context;
  const struct plm_sequence_choices choices = {.columns = true};
  struct plm_byte_stream *stream;
  struct plm_sequence sequence;
  enum plm_sequence_result result;
  uint64_t records = 0, residues = 0;
  PLM_TRY(plm_byte_stream_open(file->path, &stream, error));
  struct plm_sequence_reader *reader =
      plm_sequence_reader_open(stream, PLM_TOKENIZER_ESM, 2 * LONG);
  plm_sequence_reader_choose(reader, &choices);
  while ((result = plm_sequence_reader_next(reader, &sequence, error)) == PLM_SEQUENCE_READ) {
    records++;
    residues += sequence.size;
    assert_int_equal(sequence.residues[sequence.size - 1], 'W');
  }
  plm_sequence_reader_close(reader);
  if (result == PLM_SEQUENCE_FAILED) return error->status;
  assert_int_equal(result, PLM_SEQUENCE_END);
  assert_int_equal(records, file->records);
  assert_int_equal(residues, file->residues);
  return PLM_OK;
}

/* A sequence that ends with W. */
static const char *sequence_of(size_t length)
{
  static char text[LONG + 1];
  memset(text, 'A', length - 1);
  text[length - 1] = 'W';
  text[length] = '\0';
  return text;
}

/* Writes a short record, a long one and a short one, as they look in the format. */
static void write_records(struct file *file, const char *name, const char *header,
                          const char *before, const char *after)
{
  static const size_t lengths[] = {SHORT, LONG, SHORT + 1};
  struct plm_text text = {0};
  plm_text_puts(&text, header);
  *file = (struct file){.records = 3};
  for (int i = 0; i < 3; i++) {
    plm_text_printf(&text, "%s%s%s", before, sequence_of(lengths[i]), after);
    file->residues += lengths[i];
  }
  snprintf(file->path, sizeof file->path, "%s", scratch_path(name));
  if (strstr(name, ".zst") != NULL) {
    static char packed[ZSTD_COMPRESSBOUND(1 << 16)];
    scratch_write(file->path, packed,
                  ZSTD_compress(packed, sizeof packed, text.data, text.length, 1));
  } else {
    scratch_write(file->path, text.data, text.length);
  }
  plm_text_deinit(&text);
}

static void each_format_says_that_memory_ran_out(void **state)
{
  static const struct {
    const char *name, *header, *before, *after;
    long least;
  } rows[] = {
      {"a.fasta", "", ">a name\n", "\n", 2},
      {"a.fasta.zst", "", ">a name\n", "\n", 2},
      {"a.txt", "", "", "\n", 1},
      {"a.jsonl", "", "{\"name\": \"a\", \"sequence\": \"", "\"}\n", 2},
      {"a.csv", "name,more,sequence\n", "a,\"b, c\",", "\n", 2},
      {"a.tsv", "name\tsequence\n", "a\t", "\n", 2},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct file file;
    struct plm_error error = {0};
    write_records(&file, rows[i].name, rows[i].header, rows[i].before, rows[i].after);
    if (read_sequences(&file, &error) != PLM_OK) fail_msg("%s: %s", rows[i].name, error.what);
    failing_memory_try(read_sequences, &file, rows[i].least);
  }
}

static plm_status read_labels(void *context, struct plm_error *error)
{
  const struct file *file = context;
  const struct plm_labelled_request request = {.path = file->path,
                                               .target_column = "label",
                                               .corpus = file->corpus,
                                               .kind = file->kind,
                                               .tokenizer = PLM_TOKENIZER_ESM};
  struct plm_labelled_table table;
  const plm_status status = plm_labelled_table_read(&request, &table, error);
  size_t residues = 0, expected = LONG - SHORT - 7;
  for (size_t r = 0; r < ROWS; r++) expected += SHORT + r;
  if (status == PLM_OK) assert_int_equal(table.count, ROWS);
  for (size_t r = 0; status == PLM_OK && r < ROWS; r++) residues += table.rows[r].length;
  if (status == PLM_OK) assert_int_equal(residues, expected);
  plm_labelled_table_deinit(&table); /* also after an error */
  return status;
}

static void a_table_of_labels_says_what_failed(void **state)
{
  static const char *const names[] = {"labels.csv", "classes.csv", "labels.jsonl", "residues.csv",
                                      "several.csv"};
  (void)state;
  for (int i = 0; i < 5; i++) {
    struct plm_text text = {0};
    struct file file = {.records = ROWS, .corpus = i == 4};
    struct plm_error error = {0};
    if (i == 3) file.kind = PLM_LABEL_RESIDUES;
    if (i == 4) file.kind = PLM_LABEL_CLASSES;
    if (i != 2) plm_text_puts(&text, "sequence,label\n");
    for (int row = 0; row < ROWS; row++) {
      const size_t length = row == 7 ? LONG : SHORT + (size_t)row;
      if (i == 0) plm_text_printf(&text, "%s,%d.5\n", sequence_of(length), row);
      if (i == 3)
        plm_text_printf(&text, "%s,%s\n", sequence_of(length), sequence_of(length)); /* A, W */
      if (i == 4) plm_text_printf(&text, "%s,one %d\n", sequence_of(length), row % 3);
      if (i == 1) plm_text_printf(&text, "%s,class %d\n", sequence_of(length), row % 3);
      if (i == 2)
        plm_text_printf(&text, "{\"sequence\": \"%s\", \"label\": %d.5}\n", sequence_of(length),
                        row);
    }
    snprintf(file.path, sizeof file.path, "%s", scratch_path(names[i]));
    scratch_write(file.path, text.data, text.length);
    plm_text_deinit(&text);
    if (read_labels(&file, &error) != PLM_OK) fail_msg("%s: %s", names[i], error.what);
    failing_disk_try(read_labels, &file, NULL);
    failing_memory_try(read_labels, &file, 5);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_format_says_that_memory_ran_out),
      cmocka_unit_test(a_table_of_labels_says_what_failed),
  };
  plm_log_init("t", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
