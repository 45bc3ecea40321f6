/* What --dry-run prints, as text and as JSON: each field is that of the memory estimate. The bytes
 * themselves are compared by test_dry_run.sh. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "common/ops/open.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/input/step_chunks.h"
#include "trainer/memory_estimate.h"
#include "trainer/trainer.h"

struct scene {
  struct plm_config config;
  struct plm_ops_preview backend;
  struct plm_memory_estimate estimate;
  uint64_t largest; /* if any memory suffices */
};

static void open_scene(struct scene *scene, const char *trainer)
{
  char text[512];
  struct plm_error error = {0};
  snprintf(text, sizeof text,
           "data: {max_length: 128}\n"
           "model: {architecture: transformer, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 2}\n"
           "trainer: {batch_tokens: 3072, micro_batch_tokens: 256, %s}\n",
           trainer);
  *scene = (struct scene){0};
  if (plm_config_load_text(text, strlen(text), &scene->config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  const struct plm_ops_request request = {.device = scene->config.trainer.device,
                                          .precision = scene->config.trainer.precision,
                                          .threads = scene->config.trainer.threads};
  assert_int_equal(plm_ops_preview(&request, &scene->backend, NULL), PLM_OK);
  struct plm_ops *ops = scene->backend.ops;
  const uint32_t shares = scene->config.trainer.ranks;
  uint32_t largest;
  assert_int_equal(plm_memory_estimate(&scene->config, ops, shares,
                                       plm_trainer_micro_chunks(&scene->config, shares),
                                       &scene->estimate, NULL),
                   PLM_OK);
  assert_int_equal(plm_memory_largest(&scene->config, ops, shares, UINT64_MAX, &largest, NULL),
                   PLM_OK);
  scene->largest = (uint64_t)largest * 128;
}

static void close_scene(struct scene *scene)
{
  scene->backend.ops->close(scene->backend.ops);
  plm_config_deinit(&scene->config);
}

static const char *printed(const struct scene *scene, bool json)
{
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_trainer_dry_run(&scene->config, json, NULL);
  fflush(stdout);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  return said;
}

static void put_mb(struct plm_text *text, const char *title, uint64_t bytes)
{
  plm_text_printf(text, "%-36s %12.1f MB\n", title, 1e-6 * (double)bytes);
}

/* The text up to what the machine decides. Rows without bytes are left out if they are `exchange`
 * of one rank, `reserve`, or `scratch` of a backend that was not found. */
static void put_rows(struct plm_text *text, const struct scene *scene)
{
  const struct plm_memory_estimate *estimate = &scene->estimate;
  const struct plm_rank_needs *ranks = &estimate->ranks;
  if (ranks->ranks > 1) {
    plm_text_printf(text, "%-36s %15u on %u host%s, in groups of %u\n", "ranks", ranks->ranks,
                    ranks->hosts, ranks->hosts == 1 ? "" : "s", ranks->group_size);
    plm_text_printf(text, "%-36s %15.2f times the mean\n", "largest part of Muon's work",
                    ranks->imbalance);
    plm_text_printf(text, "%-36s %12.1f MB in a step\n", "sent by a rank within its group",
                    1e-6 * (double)ranks->sent_in_group);
    plm_text_printf(text, "%-36s %12.1f MB in a step\n", "sent by a rank to other groups",
                    1e-6 * (double)ranks->sent_on_rail);
  }
  plm_text_printf(text, "%-36s %15llu\n", "parameters (number)",
                  (unsigned long long)estimate->parameters);
  if (estimate->trained != estimate->parameters)
    plm_text_printf(text, "%-36s %15llu\n", "of these, trained",
                    (unsigned long long)estimate->trained);
  for (size_t i = 0; i < estimate->count; i++) {
    const char *name = estimate->rows[i].name;
    if (strcmp(name, "exchange") == 0 && ranks->ranks == 1) continue;
    if (strcmp(name, "reserve") == 0 && !scene->backend.partial) continue;
    if (strcmp(name, "scratch") == 0 && scene->backend.partial) continue;
    put_mb(text, estimate->rows[i].title, estimate->rows[i].bytes);
  }
}

static void of_the_cpu(const char *trainer)
{
  struct scene scene;
  struct plm_text expected = {0};
  double free_mb, total_mb;
  char rest[200] = "", wanted[200];
  open_scene(&scene, trainer);
  put_rows(&expected, &scene);
  put_mb(&expected, scene.estimate.ranks.ranks == 1 ? "total" : "total of the ranks on a host",
         plm_memory_needed(&scene.estimate, scene.backend.ops));
  const char *text = printed(&scene, false);
  if (strncmp(text, expected.data, expected.length) != 0)
    fail_msg("%s\ninstead of\n%s", text, expected.data);
  assert_int_equal(
      sscanf(text + expected.length, "free %lf MB of %lf\n%199[^\n]", &free_mb, &total_mb, rest),
      3);
  assert_true(0 < free_mb && free_mb <= total_mb);
  snprintf(wanted, sizeof wanted, "largest trainer.micro_batch_tokens that fits: %llu",
           (unsigned long long)scene.largest);
  assert_string_equal(rest, wanted);
  plm_text_deinit(&expected);
  close_scene(&scene);
}

static void the_text_of_the_cpu(void **state)
{
  (void)state;
  of_the_cpu("device: cpu");
  of_the_cpu("device: cpu, freeze: {blocks: 1}");
  of_the_cpu("device: cpu, ranks: 2");
  of_the_cpu("device: cpu, ranks: 4, hosts: ['a:2', 'b:2']");
}

static void the_text_without_a_backend(void **state)
{
  (void)state;
  static const char *const trainers[] = {"device: cuda",
                                         "device: cuda, ranks: 4, hosts: ['a:2', 'b:2']"};
  for (int i = 0; i < 2; i++) {
    struct scene scene;
    struct plm_text expected = {0};
    open_scene(&scene, trainers[i]);
    assert_true(scene.backend.partial && scene.backend.own_bytes == 0);
    put_rows(&expected, &scene);
    put_mb(&expected, "total on the device", scene.estimate.device_bytes);
    put_mb(&expected, "total on the host", scene.estimate.host_bytes);
    plm_text_puts(&expected, "not counted, because the CUDA backend was not found: optimizer "
                             "scratch and the backend's own memory\n"
                             "the size of the device's memory is unknown: the CUDA backend was "
                             "not found\n");
    assert_string_equal(printed(&scene, false), expected.data);
    plm_text_deinit(&expected);
    close_scene(&scene);
  }
}

static void expect_number(const cJSON *json, const char *name, double value)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
  if (!cJSON_IsNumber(item) || item->valuedouble != value)
    fail_msg("%s is not %.17g: %s", name, value, cJSON_PrintUnformatted(json));
}

static void expect_text(const cJSON *json, const char *name, const char *value)
{
  const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, name));
  if (text == NULL) fail_msg("there is no %s", name);
  assert_string_equal(text, value);
}

static void expect_estimate(const cJSON *json, const struct scene *scene)
{
  const struct plm_memory_estimate *estimate = &scene->estimate;
  const struct plm_rank_needs *ranks = &estimate->ranks;
  expect_number(json, "parameter_count", (double)estimate->parameters);
  expect_number(json, "trained_count", (double)estimate->trained);
  expect_number(json, "ranks", ranks->ranks);
  expect_number(json, "hosts", ranks->hosts);
  expect_number(json, "group_size", ranks->group_size);
  expect_number(json, "owner_imbalance", ranks->imbalance);
  expect_number(json, "sent_in_group", (double)ranks->sent_in_group);
  expect_number(json, "sent_on_rail", (double)ranks->sent_on_rail);
  for (size_t i = 0; i < estimate->count; i++)
    expect_number(json, estimate->rows[i].name, (double)estimate->rows[i].bytes);
  expect_number(json, "backend", 0);
  expect_number(json, "device_bytes", (double)estimate->device_bytes);
  expect_number(json, "host_bytes", (double)estimate->host_bytes);
  expect_text(json, "precision", scene->backend.ops->act_bytes == 4 ? "fp32" : "bf16");
}

static cJSON *json_of(const struct scene *scene)
{
  cJSON *json = cJSON_Parse(printed(scene, true));
  assert_non_null(json);
  return json;
}

static void numbers_of_the_cpu(void **state)
{
  (void)state;
  static const char *const trainers[] = {
      "device: cpu, precision: fp32", "device: cpu, precision: bf16, freeze: {blocks: 1}",
      "device: cpu, precision: fp32, ranks: 4, hosts: ['a:2', 'b:2']"};
  for (int i = 0; i < 3; i++) {
    struct scene scene;
    open_scene(&scene, trainers[i]);
    cJSON *json = json_of(&scene);
    expect_estimate(json, &scene);
    expect_number(json, "total", (double)plm_memory_needed(&scene.estimate, scene.backend.ops));
    expect_text(json, "device", "cpu");
    expect_text(json, "level", plm_ops_cpu_level());
    expect_text(json, "products", scene.backend.ops->products);
    expect_text(json, "bf16_gain", plm_ops_cpu_bf16_gain());
    expect_text(json, "int8_gain", plm_ops_cpu_int8_gain(&(bool){false}));
    assert_int_equal(cJSON_HasObjectItem(json, "bf16_products"),
                     scene.backend.ops->bf16_products != NULL);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "partial")));
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "fits")));
    expect_number(json, "largest_micro_batch_tokens", (double)scene.largest);
    const double free_bytes = cJSON_GetObjectItem(json, "free_bytes")->valuedouble;
    assert_true(0 < free_bytes &&
                free_bytes <= cJSON_GetObjectItem(json, "total_bytes")->valuedouble);
    assert_false(cJSON_HasObjectItem(json, "unknown"));
    cJSON_Delete(json);
    close_scene(&scene);
  }
}

static void numbers_without_a_backend(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene, "device: cuda, ranks: 2");
  cJSON *json = json_of(&scene);
  expect_estimate(json, &scene);
  expect_number(json, "total", (double)(scene.estimate.device_bytes + scene.estimate.host_bytes));
  expect_text(json, "device", "cuda");
  expect_text(json, "unknown", "the CUDA backend was not found");
  assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "partial")));
  static const char *const missing[] = {"level",      "products",    "bf16_gain", "int8_gain",
                                        "free_bytes", "total_bytes", "fits"};
  for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
    assert_false(cJSON_HasObjectItem(json, missing[i]));
  cJSON_Delete(json);
  close_scene(&scene);
}

/* Of a model that no machine has memory for. */
static void what_does_not_fit(void **state)
{
  (void)state;
  struct scene scene;
  open_scene(&scene, "device: cpu");
  scene.config.network.credit_bytes = 1ull << 50;
  assert_non_null(strstr(
      printed(&scene, false),
      "\nthis does not fit: no micro-batch fits; trainer.recompute: block takes less memory\n"));
  cJSON *json = json_of(&scene);
  assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "fits")));
  expect_number(json, "largest_micro_batch_tokens", 0);
  cJSON_Delete(json);
  close_scene(&scene);
}

/* The corpora need not be here; labels that are no labels are an error. */
static void labels_are_counted_where_they_are(void **state)
{
  (void)state;
  struct scene scene;
  struct plm_error error = {0};
  open_scene(&scene, "device: cpu, objective: classification, labels: family");
  free(scene.config.corpus);
  scene.config.corpus = strdup("/nowhere");
  assert_int_equal(plm_trainer_dry_run(&scene.config, true, &error), PLM_OK);
  free(scene.config.corpus);
  scene.config.corpus = strdup("/dev/null");
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_trainer_dry_run(&scene.config, false, &error);
  assert_string_equal(captured_end(), "");
  assert_int_not_equal(status, PLM_OK);
  close_scene(&scene);
}

/* Of a rank's 24, 12 or 8 chunks, a micro-batch has as many as fit and divide them. */
static void a_micro_batch_divides_a_share(void **state)
{
  static const uint32_t rows[][3] = {{0, 1, 1}, {1, 1, 1}, {5, 1, 4}, {24, 1, 24},
                                     {5, 2, 4}, {5, 3, 4}, {9, 3, 8}, {7, 3, 4}};
  struct plm_config config = {.data.max_length = 128, .trainer.batch_tokens = 24 * 128};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    config.trainer.micro_batch_tokens = 128 * rows[i][0];
    assert_int_equal(plm_trainer_micro_chunks(&config, rows[i][1]), rows[i][2]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_text_of_the_cpu),
      cmocka_unit_test(the_text_without_a_backend),
      cmocka_unit_test(numbers_of_the_cpu),
      cmocka_unit_test(numbers_without_a_backend),
      cmocka_unit_test(what_does_not_fit),
      cmocka_unit_test(labels_are_counted_where_they_are),
      cmocka_unit_test(a_micro_batch_divides_a_share),
  };
  setenv("PLM_CUDA_LIBRARY", scratch_path("none/libplm_cuda.so"), 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
