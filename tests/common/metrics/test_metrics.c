/* common/metrics: numbers read back equal, lines are complete, incomplete ones are cut off. */
#include "tests/support/cmocka_all.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/philox.h"
#include "common/metrics/metrics.h"
#include "tests/support/scratch.h"

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
  /* a complete line, then an incomplete one longer than the piece that is searched at a time */
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
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_read_back_equal),
      cmocka_unit_test(non_finite_numbers_become_null),
      cmocka_unit_test(incomplete_lines_are_cut),
      cmocka_unit_test(a_full_disk_leaves_complete_lines),
      cmocka_unit_test(the_table_names_each_field_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
