/* common/metrics: numbers read back equal, lines are complete, incomplete ones are cut off. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "common/metrics/metrics.h"
#include "tests/support/harness/scratch.h"

static void numbers_read_back_equal(void **state)
{
  (void)state;
  for (uint32_t i = 0; i < 20000; i++) {
    const struct plm_philox_words draw = plm_philox(7, i, 0, 99);
    uint64_t bits = (uint64_t)draw.w[0] << 32 | draw.w[1];
    double value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    cJSON *line = plm_metrics_line();
    plm_metrics_number(line, "x", value);
    plm_metrics_integer(line, "n", bits);
    char *text = cJSON_PrintUnformatted(line);
    const char *x = strstr(text, "\"x\":"), *n = strstr(text, "\"n\":");
    assert_non_null(x);
    assert_non_null(n);
    assert_true(strtod(x + 4, NULL) == value);
    assert_true(strtoull(n + 4, NULL, 10) == bits);
    free(text);
    cJSON_Delete(line);
  }
}

static void non_finite_numbers_become_null(void **state)
{
  (void)state;
  cJSON *line = plm_metrics_line();
  plm_metrics_number(line, "a", NAN);
  plm_metrics_number(line, "b", -INFINITY);
  plm_metrics_number(line, "c", DBL_MIN);
  char *text = cJSON_PrintUnformatted(line);
  assert_string_equal(text, "{\"v\":1,\"a\":null,\"b\":null,\"c\":2.2250738585072014e-308}");
  free(text);
  cJSON_Delete(line);
}

static plm_status write_step(struct plm_metrics_file *file, uint64_t step)
{
  cJSON *line = plm_metrics_line();
  plm_metrics_integer(line, "step", step);
  return plm_metrics_write(file, line, NULL);
}

static void incomplete_lines_are_cut(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_metrics_file *file;
  const char *path = scratch_path("torn.jsonl");
  char *bytes;
  size_t size;
  /* a complete line, then an incomplete one longer than the part that is searched at a time */
  FILE *out = fopen(path, "w");
  fputs("{\"v\":1,\"step\":1}\n{\"v\":1,\"text\":\"", out);
  for (int i = 0; i < 10000; i++) fputc('x', out);
  fclose(out);
  assert_int_equal(plm_metrics_open(path, &file, &error), PLM_OK);
  assert_int_equal(plm_metrics_size(file), 17);
  assert_int_equal(write_step(file, 2), PLM_OK);
  const uint64_t kept = plm_metrics_size(file);
  assert_int_equal(write_step(file, 3), PLM_OK);
  assert_int_equal(plm_metrics_cut(file, kept, &error), PLM_OK);
  assert_int_equal(plm_metrics_cut(file, kept + 1, &error), PLM_CORRUPT);
  assert_int_equal(write_step(file, 4), PLM_OK);
  assert_int_equal(plm_metrics_sync(file, &error), PLM_OK);
  plm_metrics_close(file);
  assert_int_equal(plm_file_read(path, 1000, &bytes, &size, &error), PLM_OK);
  assert_string_equal(bytes, "{\"v\":1,\"step\":1}\n{\"v\":1,\"step\":2}\n{\"v\":1,\"step\":4}\n");
  free(bytes);
}

static uint64_t size_after_opening(const char *bytes, size_t size)
{
  const char *path = scratch_path("opened.jsonl");
  struct plm_metrics_file *file;
  char *left;
  size_t kept;
  scratch_write(path, bytes, size);
  assert_int_equal(plm_metrics_open(path, &file, NULL), PLM_OK);
  const uint64_t counted = plm_metrics_size(file);
  plm_metrics_close(file);
  assert_int_equal(plm_file_read(path, 1 << 20, &left, &kept, NULL), PLM_OK);
  assert_int_equal(kept, counted);
  assert_memory_equal(left, bytes, kept);
  free(left);
  return counted;
}

/* The end of the last line is searched for in parts of 4096 bytes. */
static void what_is_kept_ends_with_a_newline(void **state)
{
  (void)state;
  static char bytes[3 * 4096];
  assert_int_equal(size_after_opening("", 0), 0);
  assert_int_equal(size_after_opening("no line", 7), 0);
  assert_int_equal(size_after_opening("\n", 1), 1);
  assert_int_equal(size_after_opening("one\ntwo\n", 8), 8);
  assert_int_equal(size_after_opening("one\ntw", 6), 4);
  memset(bytes, 'x', sizeof bytes);
  assert_int_equal(size_after_opening(bytes, sizeof bytes), 0);
  static const size_t places[] = {0, 1, 4095, 4096, 4097, 8191, 8192, sizeof bytes - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    bytes[places[i]] = '\n';
    assert_int_equal(size_after_opening(bytes, sizeof bytes), places[i] + 1);
    assert_int_equal(size_after_opening(bytes, places[i] + 1), places[i] + 1);
    assert_int_equal(size_after_opening(bytes, 8193), i < 7 ? places[i] + 1 : 0);
    bytes[places[i]] = 'x';
  }
}

struct visited {
  double steps[8];
  size_t count, most;
};

static bool visit(void *context, const cJSON *line)
{
  struct visited *visited = context;
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
  visited->steps[visited->count++] = cJSON_IsNumber(step) ? step->valuedouble : -1;
  return visited->count < visited->most;
}

static void complete_objects_are_visited(void **state)
{
  (void)state;
  static const char lines[] =
      "{\"step\":1}\nno json\n[2]\n\n{\"step\":3}\n{\"step\":4}\n{\"step\":5}";
  const char *path = scratch_path("visited.jsonl");
  struct visited visited = {.most = 8};
  struct plm_error error = {0};
  scratch_write(path, lines, sizeof lines - 1);
  assert_int_equal(plm_metrics_each(path, visit, &visited, &error), PLM_OK);
  assert_int_equal(visited.count, 3);
  assert_true(visited.steps[0] == 1 && visited.steps[1] == 3 && visited.steps[2] == 4);
  visited = (struct visited){.most = 2};
  assert_int_equal(plm_metrics_each(path, visit, &visited, &error), PLM_OK);
  assert_int_equal(visited.count, 2);
  visited = (struct visited){.most = 2};
  assert_int_equal(plm_metrics_each(scratch_path("none.jsonl"), visit, &visited, &error), PLM_OK);
  assert_int_equal(visited.count, 0);
  assert_int_equal(plm_metrics_each(scratch_directory(), visit, &visited, &error), PLM_IO);
  scratch_write(path, "", 0);
  assert_int_equal(plm_metrics_each(scratch_path("visited.jsonl/x"), visit, &visited, &error),
                   PLM_IO); /* ENOTDIR, not ENOENT */
}

/* The step of the last complete line; -1 if there is none. */
static int last_step(const char *bytes, size_t size)
{
  const char *path = scratch_path("last.jsonl");
  struct plm_error error = {0};
  cJSON *line;
  scratch_write(path, bytes, size);
  if (plm_metrics_last(path, &line, &error) != PLM_OK) {
    assert_int_equal(error.status, PLM_NOT_FOUND);
    assert_null(line);
    return -1;
  }
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
  const int found = cJSON_IsNumber(step) ? step->valueint : -2;
  cJSON_Delete(line);
  return found;
}

/* Only the last 64 KiB are read. */
static void the_last_complete_line_counts(void **state)
{
  (void)state;
  enum { TAIL = 1 << 16 };
  static char bytes[TAIL + 64];
  cJSON *line;
  assert_int_equal(last_step("", 0), -1);
  assert_int_equal(last_step("{\"step\":1}", 10), -1);
  assert_int_equal(last_step("{\"step\":1}\n", 11), 1);
  assert_int_equal(last_step("{\"step\":1}\n{\"step\":2}", 21), 1);
  assert_int_equal(last_step("{\"step\":1}\n{\"step\":2}\n", 22), 2);
  assert_int_equal(plm_metrics_last(scratch_path("missing"), &line, NULL), PLM_NOT_FOUND);
  const char end[] = "\n{\"step\":3}\n";
  for (int shift = 0; shift < 3; shift++) { /* shorter, as long, and longer than what is read */
    const size_t size = (size_t)(TAIL - 1 + shift);
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes + size - (sizeof end - 1), end, sizeof end - 1);
    assert_int_equal(last_step(bytes, size), 3);
  }
}

static void a_line_says_what_it_is_about(void **state)
{
  (void)state;
  static const struct {
    const char *line, *set, *subject;
    bool extra;
  } cases[] = {{"{}", "corpus", "", false},
               {"{\"split\":\"valid\"}", "corpus", "valid", false},
               {"{\"set\":\"corpus\",\"split\":\"test\"}", "corpus", "test", false},
               {"{\"set\":\"refseq\",\"split\":\"test\"}", "refseq", "refseq t", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char subject[9];
    cJSON *line = cJSON_Parse(cases[i].line);
    assert_string_equal(plm_metrics_set(line), cases[i].set);
    assert_int_equal(plm_metrics_is_extra(line), cases[i].extra);
    plm_metrics_subject(line, subject, sizeof subject);
    assert_string_equal(subject, cases[i].subject);
    cJSON_Delete(line);
  }
}

static void a_full_disk_leaves_complete_lines(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_metrics_file *file;
  if (plm_metrics_open("/dev/full", &file, &error) != PLM_OK) {
    skip("there is no /dev/full");
    return;
  }
  cJSON *line = plm_metrics_line();
  assert_int_equal(plm_metrics_write(file, line, &error), PLM_NO_SPACE);
  plm_metrics_close(file);
}

/* A file that cannot be cut at its last complete line is not written to. */
static void a_file_that_cannot_be_opened_is_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_metrics_file *file;
  char path[64];
  assert_int_equal(plm_metrics_open(scratch_directory(), &file, &error), PLM_IO);
  assert_non_null(strstr(error.what, ": Is a directory"));
  const int sealed = memfd_create("metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(write(sealed, "{}\n{\"a\":", 8), 8);
  assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", sealed);
  assert_int_equal(plm_metrics_open(path, &file, &error), PLM_IO);
  assert_memory_equal(error.what, "cannot cut /proc/self/fd/", 25);
  close(sealed);
}

static void the_table_names_each_field_once(void **state)
{
  (void)state;
  size_t count;
  const struct plm_metric_field *table = plm_metric_table(&count);
  for (size_t i = 0; i < count; i++) {
    assert_ptr_equal(plm_metric_find(table[i].stage, table[i].name), &table[i]);
    assert_true(strlen(table[i].help) > 5);
  }
  assert_int_equal(plm_metric_find(PLM_STAGE_TRAINER, "loss")->kind, PLM_METRIC_EXACT);
  assert_int_equal(plm_metric_find(PLM_STAGE_TRAINER, "step_ms")->kind, PLM_METRIC_MEASURED);
  assert_int_equal(plm_metric_find(PLM_STAGE_PACKER, "packer")->kind, PLM_METRIC_TEXT);
  assert_null(plm_metric_find(PLM_STAGE_TRAINER, "perplexity"));
  assert_null(plm_metric_find(PLM_STAGE_TRAINER, "los"));
  assert_null(plm_metric_find(PLM_STAGE_TRAINER, "losses"));
  assert_string_equal(plm_metric_find(PLM_STAGE_TRAINER, "loss_by_source/2")->name,
                      "loss_by_source"); /* one of several */
}

/* A key may name a value of an object. */
static void values_are_found(void **state)
{
  (void)state;
  cJSON *line = cJSON_Parse("{\"loss\": 1, \"norms\": {\"a\": 2, \"b/c\": 3}, \"Loss\": 4}");
  assert_non_null(line);
  assert_true(plm_metrics_value(line, "loss")->valuedouble == 1);
  assert_true(plm_metrics_value(line, "Loss")->valuedouble == 4);
  assert_true(plm_metrics_value(line, "norms/a")->valuedouble == 2);
  assert_true(plm_metrics_value(line, "norms/b/c")->valuedouble == 3);
  assert_true(cJSON_IsObject(plm_metrics_value(line, "norms")));
  assert_null(plm_metrics_value(line, "norms/b"));
  assert_null(plm_metrics_value(line, "loss/a"));
  assert_null(plm_metrics_value(line, "other/a"));
  cJSON_Delete(line);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_read_back_equal),
      cmocka_unit_test(non_finite_numbers_become_null),
      cmocka_unit_test(incomplete_lines_are_cut),
      cmocka_unit_test(what_is_kept_ends_with_a_newline),
      cmocka_unit_test(complete_objects_are_visited),
      cmocka_unit_test(the_last_complete_line_counts),
      cmocka_unit_test(a_line_says_what_it_is_about),
      cmocka_unit_test(a_full_disk_leaves_complete_lines),
      cmocka_unit_test(a_file_that_cannot_be_opened_is_an_error),
      cmocka_unit_test(the_table_names_each_field_once),
      cmocka_unit_test(values_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
