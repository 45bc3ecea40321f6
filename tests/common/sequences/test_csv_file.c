/* Reads CSV as common programs write it, twice, and writes it again. */
#include "tests/support/harness/cmocka_all.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include <csv.h>

#include "common/run/stop.h"
#include "common/sequences/csv_file.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/scratch.h"

static bool streams_fail;

/* Takes the place of libc's function in this program. */
FILE *fdopen(int file, const char *mode)
{
  FILE *(*of_libc)(int, const char *);
  void *found = dlsym(RTLD_NEXT, "fdopen");
  memcpy(&of_libc, &found, sizeof found);
  return streams_fail ? NULL : of_libc(file, mode);
}

static const char *write_file(const char *name, const void *bytes, size_t size)
{
  const char *path = scratch_path(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  fclose(file);
  return path;
}

/* All rows in the form "LINE[field|field]". */
static void show(struct plm_csv_file *file, char *out)
{
  struct plm_csv_row row;
  *out = '\0';
  for (;;) {
    assert_int_equal(plm_csv_next(file, &row, NULL), PLM_OK);
    if (row.count == 0) break;
    out += sprintf(out, "%llu[", (unsigned long long)row.line);
    for (size_t i = 0; i < row.count; i++) {
      assert_int_equal(strlen(row.fields[i].text), row.fields[i].size);
      out += sprintf(out, "%s%s", i == 0 ? "" : "|", row.fields[i].text);
    }
    out += sprintf(out, "]");
  }
}

static void reads_from(const char *path, const char *expected)
{
  char got[4096];
  struct plm_csv_file *file;
  assert_int_equal(plm_csv_open(path, &file, NULL), PLM_OK);
  for (int round = 0; round < 2; round++) {
    show(file, got);
    assert_string_equal(got, expected);
    assert_int_equal(plm_csv_rewind(file, NULL), PLM_OK);
  }
  plm_csv_close(file);
}

static void reads(const char *name, const char *text, const char *expected)
{
  reads_from(write_file(name, text, strlen(text)), expected);
}

static void rows_and_fields(void **state)
{
  (void)state;
  reads("a.csv", "x,y\n1,2\n", "1[x|y]2[1|2]");
  reads("a.csv", "x,y\r\n1,2\r\n", "1[x|y]2[1|2]");
  reads("a.csv", "x,y\r1,2\r", "1[x|y]2[1|2]");
  reads("a.csv", "x,y\n1,2", "1[x|y]2[1|2]");
  reads("a.csv", "\xEF\xBB\xBFx,y\n1,2\n", "1[x|y]2[1|2]");
  reads("a.csv", "\xEF\xBB\xBF\"x\",y\n", "1[x|y]");
  reads("a.csv", "x,y\n\n\r\n1,2\n\n", "1[x|y]4[1|2]");
  reads("a.csv", " x , y\t\n,\n\"\",\" \"\n", "1[ x | y\t]2[|]3[| ]");
  reads("a.csv", "", "");
  reads("a.csv", "\xEF\xBB\xBF", "");
  reads("a.csv", "\n\n", "");
}

static void quotes(void **state)
{
  (void)state;
  reads("a.csv", "\"a,b\",\"c \"\"d\"\"\"\n\"\"\"\",e\n", "1[a,b|c \"d\"]2[\"|e]");
  reads("a.csv", "x,\"two\nlines\"\ny,\"and\r\ntwo\"\nz,1\n",
        "1[x|two\nlines]3[y|and\r\ntwo]5[z|1]");
}

static void tabs_by_name(void **state)
{
  (void)state;
  reads("a.tsv", "x\ty,z\n1\t2\n", "1[x|y,z]2[1|2]");
  reads("A.TSV", "x\ty,,z\n1\t2\n", "1[x|y,,z]2[1|2]");
}

/* The separator is what the header has most often outside quotes, except in a .tsv file. */
static void the_header_says_what_separates(void **state)
{
  (void)state;
  reads("a.csv", "x;y\n1,5;2\n", "1[x|y]2[1,5|2]");
  reads("a.csv", "\xEF\xBB\xBFx;y;z, really\r\n1;\"2;3\";\r\n", "1[x|y|z, really]2[1|2;3|]");
  reads("a.csv", "\n\nx\ty\n1\t2;3,4,5\n", "3[x|y]4[1|2;3,4,5]");
  reads("a.csv", "\"a;b;c\nd;e\",y\n1,2\n", "1[a;b;c\nd;e|y]3[1|2]");
  reads("a.csv", "x\n1;2\n", "1[x]2[1;2]");
  reads("a.tsv", "x;y;z\n1\t2\n", "1[x;y;z]2[1|2]");
}

static void refuses(const char *text, const char *where, const char *what)
{
  struct plm_csv_file *file;
  struct plm_csv_row row;
  struct plm_error error = {0};
  assert_int_equal(plm_csv_open(write_file("bad.csv", text, strlen(text)), &file, NULL), PLM_OK);
  plm_status status;
  do status = plm_csv_next(file, &row, &error);
  while (status == PLM_OK && row.count != 0);
  assert_int_equal(status, PLM_FORMAT);
  if (strstr(error.what, what) == NULL || strstr(error.where, where) == NULL)
    fail_msg("%s: %s", error.where, error.what);
  assert_true(error.hint[0] != '\0');
  plm_csv_close(file);
}

static void malformed_rows_are_named(void **state)
{
  (void)state;
  refuses("\xff\xfex,y\n", "", "is text in UTF-16");
  refuses("x,y\n1,\"2\" 3\n", "bad.csv:2", "a quote is not allowed here");
  refuses("x,y\n1,2\n3,4\"5\n", "bad.csv:3", "a quote is not allowed here");
  refuses("x,y\n1,\"2\n3,4\n", "bad.csv:2", "ends inside a quoted field");
}

static bool lacks_memory; /* what libcsv says of the last error */

/* Takes the place of the library's function in this program. */
int csv_error(struct csv_parser *parser)
{
  return lacks_memory ? CSV_ENOMEM : parser->status;
}

static void a_lack_of_memory_is_no_malformed_row(void **state)
{
  struct plm_csv_file *file;
  struct plm_csv_row row;
  (void)state;
  assert_int_equal(plm_csv_open(write_file("bad.csv", "\"2\" 3\n", 6), &file, NULL), PLM_OK);
  lacks_memory = true;
  assert_int_equal(plm_csv_next(file, &row, NULL), PLM_NO_MEMORY);
  lacks_memory = false;
  plm_csv_close(file);
}

/* At the beginning, and at the end of a buffer. */
static void a_stop_signal_ends_reading(void **state)
{
  static char text[1 << 20];
  (void)state;
  for (size_t i = 0; i < sizeof text; i++) text[i] = i % 2 == 0 ? 'x' : '\n';
  for (int late = 0; late < 2; late++) {
    struct plm_csv_file *file;
    struct plm_csv_row row;
    struct plm_error error = {0};
    plm_status status;
    assert_int_equal(plm_csv_open(write_file("x.csv", text, sizeof text), &file, NULL), PLM_OK);
    if (late) assert_int_equal(plm_csv_next(file, &row, NULL), PLM_OK);
    plm_stop_requested = SIGTERM;
    do status = plm_csv_next(file, &row, &error);
    while (status == PLM_OK && row.count != 0);
    plm_stop_requested = 0;
    assert_int_equal(status, PLM_TERMINATED);
    assert_string_equal(error.what, "stopped by SIGTERM while reading");
    plm_csv_close(file);
  }
}

/* A pipe cannot be read twice, so it is copied, into the folder for temporary files. */
static void a_pipe_is_read_twice(void **state)
{
  (void)state;
  static const char text[] = "x,y\r\n1,\"2\n3\"\r\n";
  struct plm_csv_file *file;
  struct plm_error error = {0};
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], text, sizeof text - 1), sizeof text - 1);
  close(ends[1]);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  setenv("TMPDIR", scratch_path("missing"), 1);
  assert_int_equal(plm_csv_open("-", &file, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "missing"));
  setenv("TMPDIR", scratch_directory(), 1);
  const int free_before = dup(ends[0]);
  close(free_before);
  streams_fail = true;
  assert_int_equal(plm_csv_open("-", &file, &error), PLM_NO_MEMORY);
  streams_fail = false;
  const int free_after = dup(ends[0]); /* all that was opened is closed */
  close(free_after);
  assert_int_equal(free_after, free_before);
  reads_from("-", "1[x|y]2[1|2\n3]");
  if (before >= 0) dup2(before, STDIN_FILENO);
  close(before);
  close(ends[0]);
}

/* Every 20 ms; it does not come for ever. */
static void on_tick(int number)
{
  static int ticks;
  (void)number;
  plm_stop_requested = SIGTERM;
  if (++ticks == 3000) abort();
}

/* Also while a pipe has no header yet. */
static void a_stop_signal_ends_the_wait_for_a_header(void **state)
{
  const struct sigaction tick = {.sa_handler = on_tick};
  const struct itimerval often = {{0, 20000}, {0, 20000}}, never = {0};
  struct plm_csv_file *file = NULL;
  struct plm_csv_row row;
  int ends[2];
  (void)state;
  assert_int_equal(pipe(ends), 0);
  const int before = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  sigaction(SIGALRM, &tick, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  plm_status status = plm_csv_open("-", &file, NULL);
  if (status == PLM_OK) status = plm_csv_next(file, &row, NULL);
  setitimer(ITIMER_REAL, &never, NULL);
  plm_stop_requested = 0;
  assert_int_equal(status, PLM_TERMINATED);
  plm_csv_close(file);
  if (before >= 0) dup2(before, STDIN_FILENO);
  close(before);
  close(ends[0]);
  close(ends[1]);
}

static void long_files_cross_buffers(void **state)
{
  (void)state;
  enum { ROWS = 60000 };
  char *text = malloc(ROWS * 32), *at = text;
  struct plm_csv_file *file;
  struct plm_csv_row row;
  assert_non_null(text);
  for (int i = 0; i < ROWS; i++)
    at += sprintf(at, "%d,\"%d\"\"\n\"%s", i, 7 * i, i % 3 ? "\r\n" : "\n");
  assert_int_equal(plm_csv_open(write_file("long.csv", text, (size_t)(at - text)), &file, NULL),
                   PLM_OK);
  for (int i = 0; i < ROWS; i++) {
    char expected[32];
    assert_int_equal(plm_csv_next(file, &row, NULL), PLM_OK);
    assert_int_equal(row.count, 2);
    assert_int_equal(row.line, 2 * i + 1);
    assert_int_equal(atoi(row.fields[0].text), i);
    snprintf(expected, sizeof expected, "%d\"\n", 7 * i);
    assert_string_equal(row.fields[1].text, expected);
  }
  assert_int_equal(plm_csv_next(file, &row, NULL), PLM_OK);
  assert_int_equal(row.count, 0);
  plm_csv_close(file);
  free(text);
}

/* Reads text as a stream that cannot be read again. */
static plm_status read_row(const struct plm_text *text, size_t *fields, struct plm_error *error)
{
  struct plm_byte_stream *stream;
  struct plm_csv_file *file;
  struct plm_csv_row row;
  assert_int_equal(plm_byte_stream_open_memory("m.csv", text->data, text->length, &stream, NULL),
                   PLM_OK);
  assert_int_equal(plm_csv_open_stream(stream, &file, NULL), PLM_OK);
  assert_string_equal(plm_csv_name(file), "m.csv");
  const plm_status status = plm_csv_next(file, &row, error);
  *fields = row.count;
  plm_csv_close(file);
  plm_byte_stream_close(stream);
  return status;
}

/* A row has at most 65536 fields, and at most 32 MiB with the byte that ends each field. */
static void rows_have_limits(void **state)
{
  enum { MOST_FIELDS = 65536, MOST_BYTES = 1 << 25, FIELD = 1 << 20 };
  (void)state;
  for (size_t more = 0; more < 2; more++) {
    struct plm_text many = {0}, large = {0};
    struct plm_error error = {0};
    size_t fields;
    for (size_t i = 1; i < MOST_FIELDS + more; i++) plm_text_puts(&many, ",");
    plm_text_puts(&many, "\n");
    const plm_status status = read_row(&many, &fields, &error);
    assert_int_equal(status, more == 0 ? PLM_OK : PLM_LIMIT);
    if (more == 0) assert_int_equal(fields, MOST_FIELDS);
    if (more != 0) assert_string_equal(error.what, "a row has more than 65536 fields");
    char *field = malloc(FIELD);
    assert_non_null(field);
    memset(field, 'L', FIELD);
    field[FIELD - 1] = ',';
    for (size_t at = FIELD; at < MOST_BYTES; at += FIELD) plm_text_append(&large, field, FIELD);
    plm_text_append(&large, field, FIELD - 1);
    plm_text_puts(&large, more == 0 ? "\n" : "L\n");
    assert_int_equal(read_row(&large, &fields, &error), more == 0 ? PLM_OK : PLM_LIMIT);
    if (more == 0) assert_int_equal(fields, MOST_BYTES / FIELD);
    if (more != 0) assert_string_equal(error.what, "a row has more than 32 MiB");
    if (more != 0) assert_string_equal(error.where, "m.csv:1");
    free(field);
    plm_text_deinit(&many);
    plm_text_deinit(&large);
  }
}

/* A field has at most 16 MiB, to within the memory that the parser takes ahead. */
static void fields_have_a_limit(void **state)
{
  enum { MIB = 1 << 20 };
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer copies the field each time that it grows a little");
  char *part = malloc(MIB);
  assert_non_null(part);
  memset(part, 'L', MIB);
  for (int mib = 15; mib <= 17; mib += 2) {
    struct plm_text text = {0};
    struct plm_error error = {0};
    size_t fields = 0;
    for (int i = 0; i < mib; i++) plm_text_append(&text, part, MIB);
    plm_text_puts(&text, ",x\n");
    assert_int_equal(read_row(&text, &fields, &error), mib < 16 ? PLM_OK : PLM_LIMIT);
    if (mib > 16) assert_string_equal(error.what, "a field has more than 16 MiB");
    plm_text_deinit(&text);
  }
  free(part);
}

static void fields_are_quoted_where_they_must_be(void **state)
{
  (void)state;
  struct plm_text out = {0};
  static const char *const fields[] = {"plain", "a,b", "say \"it\"", "two\nlines", "", " x"};
  for (size_t i = 0; i < 6; i++) {
    if (i != 0) plm_text_puts(&out, ",");
    plm_text_put_csv(&out, fields[i], strlen(fields[i]), ',');
  }
  assert_string_equal(out.data, "plain,\"a,b\",\"say \"\"it\"\"\",\"two\nlines\",, x");
  plm_text_deinit(&out);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_and_fields),
      cmocka_unit_test(quotes),
      cmocka_unit_test(tabs_by_name),
      cmocka_unit_test(the_header_says_what_separates),
      cmocka_unit_test(malformed_rows_are_named),
      cmocka_unit_test(a_stop_signal_ends_reading),
      cmocka_unit_test(a_pipe_is_read_twice),
      cmocka_unit_test(a_stop_signal_ends_the_wait_for_a_header),
      cmocka_unit_test(a_lack_of_memory_is_no_malformed_row),
      cmocka_unit_test(long_files_cross_buffers),
      cmocka_unit_test(rows_have_limits),
      cmocka_unit_test(fields_have_a_limit),
      cmocka_unit_test(fields_are_quoted_where_they_must_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
