/* common/metrics/prometheus: the exact text for lines of metrics. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/metrics/metrics.h"
#include "common/metrics/prometheus.h"
#include "tests/support/expected/expected_file.h"

static void prometheus_add(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                           const char *instance, const char *text, bool counted)
{
  cJSON *line = cJSON_Parse(text);
  assert_non_null(line);
  plm_prometheus_line(metrics, stage, instance, line, counted);
  cJSON_Delete(line);
}

static const char step_one[] =
    "{\"v\":1,\"step\":1,\"loss\":3.25,\"step_ms\":1500,\"data_wait_ms\":"
    "250,\"checkpoint_ms\":0,\"grad_norm\":null,\"time\":7,\"exact\":"
    "false,\"other\":9,\"weight_norms\":{\"0\":1.5,\"he\\\"ad\":null,"
    "\"text\":\"x\"}}";

static void each_name_has_its_head_once(void **state)
{
  (void)state;
  struct plm_prometheus *metrics;
  struct plm_text text = {0};
  metrics = plm_prometheus_open("a \"run\"\\");
  plm_prometheus_print(metrics, &text);
  assert_int_equal(text.length, 0);
  plm_prometheus_started(metrics, PLM_STAGE_TRAINER, "0");
  plm_prometheus_set(metrics, PLM_STAGE_TRAINER, "0", "ready", 1);
  plm_prometheus_set(metrics, PLM_STAGE_TRAINER, "0", "restarts_total", 2);
  plm_prometheus_set(metrics, PLM_STAGE_TRAINER, "0", "no_such_name", 3);
  plm_prometheus_set(metrics, PLM_STAGE_TRAINER, "0", "standby", 3); /* only a packer's */
  prometheus_add(metrics, PLM_STAGE_TRAINER, "0", "{\"step\":9,\"step_ms\":5000}", false);
  prometheus_add(metrics, PLM_STAGE_TRAINER, "0", step_one, true);
  prometheus_add(
      metrics, PLM_STAGE_TRAINER, "0",
      "{\"step\":2,\"loss\":3,\"loss_by_source\":{\"a\":2.5,\"b\":null},\"step_ms\":500}", true);
  plm_prometheus_started(metrics, PLM_STAGE_EVALUATOR, "0");
  prometheus_add(
      metrics, PLM_STAGE_EVALUATOR, "0",
      "{\"step\":2,\"split\":\"valid\",\"loss\":2.5,\"seconds\":4,\"loss_by_mask_rate\":{\"0.15\":"
      "2},\"loss_by_length\":{\"<64\":1},\"attention_entropy\":{\"1\":0.5},"
      "\"rmse_by_label\":{\"Tm\":0.5}}",
      true);
  prometheus_add(metrics, PLM_STAGE_EVALUATOR, "0",
                 "{\"step\":2,\"set\":\"refseq\",\"split\":\"test\",\"loss\":2.75,\"seconds\":2,"
                 "\"loss_by_length\":{\"<64\":1.5}}",
                 true);
  prometheus_add(metrics, PLM_STAGE_EVALUATOR, "0",
                 "{\"step\":3,\"skipped\":\"why\",\"seconds\":9}", true);
  for (int i = 0; i < 2; i++) {
    const char *instance = i == 0 ? "0" : "host 1";
    plm_prometheus_started(metrics, PLM_STAGE_PACKER, instance);
    plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "tokens_total", 1e15 + i);
    plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "standby",
                       i == 0 ? INFINITY : -INFINITY);
    prometheus_add(
        metrics, PLM_STAGE_PACKER, instance,
        "{\"windows\":5,\"documents_per_second\":7,\"tokens_per_second\":0.1,\"packer\":\"x\"}",
        true);
  }
  plm_prometheus_print(metrics, &text);
  expected_file("common/metrics/prometheus/all_stages", text.data);
  /* the trainer starts again, one packer is gone, and so is the evaluator */
  plm_prometheus_started(metrics, PLM_STAGE_TRAINER, "0");
  plm_prometheus_forget(metrics, PLM_STAGE_PACKER, "0");
  plm_prometheus_forget(metrics, PLM_STAGE_EVALUATOR, NULL);
  plm_text_clear(&text);
  plm_prometheus_print(metrics, &text);
  expected_file("common/metrics/prometheus/after_a_restart", text.data);
  plm_text_deinit(&text);
  plm_prometheus_close(metrics);
  plm_prometheus_close(NULL);
}

/* The parts of an object are distinguished by what they are. */
static void parts_have_labels(void **state)
{
  static const struct {
    enum plm_metric_stage stage;
    const char *field, *label;
  } rows[] = {
      {PLM_STAGE_TRAINER, "loss_by_source", "source"},
      {PLM_STAGE_TRAINER, "tokens_by_source", "source"},
      {PLM_STAGE_TRAINER, "gradient_norms", "layer"},
      {PLM_STAGE_TRAINER, "weight_norms", "layer"},
      {PLM_STAGE_TRAINER, "update_norms", "layer"},
      {PLM_STAGE_EVALUATOR, "loss_by_length", "length"},
      {PLM_STAGE_EVALUATOR, "loss_by_mask_rate", "mask_rate"},
      {PLM_STAGE_EVALUATOR, "attention_entropy", "layer"},
      {PLM_STAGE_EVALUATOR, "rmse_by_label", "column"},
      {PLM_STAGE_EVALUATOR, "spearman_by_assay", "assay"},
      {PLM_STAGE_EVALUATOR, "low", "measure"},
      {PLM_STAGE_EVALUATOR, "high", "measure"},
      {PLM_STAGE_EVALUATOR, "baseline", "measure"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_prometheus *metrics = plm_prometheus_open("run");
    struct plm_text text = {0};
    char line[128], expected[64];
    assert_non_null(plm_metric_find(rows[i].stage, rows[i].field));
    plm_prometheus_started(metrics, rows[i].stage, "0");
    snprintf(line, sizeof line, "{\"step\":1,\"split\":\"valid\",\"%s\":{\"part\":4.5}}",
             rows[i].field);
    prometheus_add(metrics, rows[i].stage, "0", line, true);
    plm_prometheus_print(metrics, &text);
    snprintf(expected, sizeof expected, ",%s=\"part\"} 4.5\n", rows[i].label);
    if (strstr(text.data, expected) == NULL) fail_msg("%s: %s", expected, text.data);
    plm_text_deinit(&text);
    plm_prometheus_close(metrics);
  }
}

/* More samples than the table holds: the further ones are left out, and the others stay. */
static void the_table_has_a_limit(void **state)
{
  (void)state;
  enum { SAMPLES = 8192 };
  struct plm_prometheus *metrics;
  struct plm_text text = {0};
  size_t lines = 0;
  metrics = plm_prometheus_open("run");
  for (int i = 0; i <= SAMPLES; i++) {
    char instance[16];
    snprintf(instance, sizeof instance, "i%d", i);
    plm_prometheus_set(metrics, PLM_STAGE_PACKER, instance, "ready", i);
  }
  plm_prometheus_set(metrics, PLM_STAGE_PACKER, "i8191", "ready", 5);
  plm_prometheus_started(metrics, PLM_STAGE_TRAINER, "0");
  prometheus_add(metrics, PLM_STAGE_TRAINER, "0", step_one, true);
  plm_prometheus_print(metrics, &text);
  for (const char *c = text.data; *c != '\0'; c++) lines += *c == '\n';
  assert_int_equal(lines, 2 + SAMPLES);
  assert_non_null(strstr(text.data, "instance=\"i8191\",run=\"run\"} 5\n"));
  plm_text_deinit(&text);
  plm_prometheus_close(metrics);
}

/* The text of a label replaces the one before, so that only the last cause is shown. */
static void a_text_replaces_the_one_before(void **state)
{
  (void)state;
  struct plm_prometheus *metrics;
  struct plm_text text = {0};
  char second[256], sample[512]; /* the longest text */
  memset(second, 'x', sizeof second - 1);
  second[sizeof second - 1] = '\0';
  snprintf(
      sample, sizeof sample,
      "plm_trainer_failed_time_seconds{stage=\"trainer\",instance=\"0\",run=\"run\",cause=\"%s\"}"
      " 7\n",
      second);
  metrics = plm_prometheus_open("run");
  plm_prometheus_set(metrics, PLM_STAGE_TRAINER, "1", "ready", 1);
  for (int i = 0; i < 2; i++) {
    plm_prometheus_set_text(metrics, PLM_STAGE_TRAINER, "0", "failed_time_seconds", "cause",
                            i == 0 ? "first" : second, 6 + i);
    plm_prometheus_set_text(metrics, PLM_STAGE_TRAINER, "1", "failed_time_seconds", "cause",
                            i == 0 ? "other" : "x", 8 + i);
  }
  plm_prometheus_set_text(metrics, PLM_STAGE_TRAINER, "0", "no_such_name", "cause", "third", 8);
  plm_prometheus_print(metrics, &text);
  const char *end = strrchr(text.data, '#');
  assert_non_null(end);
  assert_memory_equal(strchr(end, '\n') + 1, sample, strlen(sample));
  assert_string_equal(
      strchr(end, '\n') + 1 + strlen(sample),
      "plm_trainer_failed_time_seconds{stage=\"trainer\",instance=\"1\",run=\"run\",cause=\"x\"} "
      "9\n");
  plm_text_deinit(&text);
  plm_prometheus_close(metrics);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_name_has_its_head_once),
      cmocka_unit_test(parts_have_labels),
      cmocka_unit_test(the_table_has_a_limit),
      cmocka_unit_test(a_text_replaces_the_one_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
