/* A run with frozen parameters: they stay as they were, have no state of the optimizer and no part
 * of the metrics; a run that is stopped and resumed ends the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/trainer_scene.h"

enum { MOST = 64 /* parameters */ };

static const char settings[] = "steps: 4, ema: 0.9, checkpoint: {every: 2, keep_last: 9}, "
                               "freeze: {embeddings: true}";
static struct {
  char *name;
  bool frozen;
} parameters[MOST];
static size_t parameter_count;

static void make(struct trainer_scene *scene)
{
  trainer_scene_make(scene, settings, "metrics: {norms: 1}\n");
}

static struct plm_safetensors *file_of(const struct trainer_scene *scene, int step,
                                       const char *name)
{
  char path[PLM_PATH_SIZE];
  struct plm_safetensors *file;
  snprintf(path, sizeof path, "%.3000s/checkpoints/step_%08d/%s", scene->run, step, name);
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  return file;
}

static void only_trained_values_change(const struct trainer_scene *scene, const char *name)
{
  struct plm_safetensors *first = file_of(scene, 0, name), *last = file_of(scene, 4, name);
  for (size_t i = 0; i < parameter_count; i++) {
    const struct plm_tensor_info *a = plm_safetensors_find(first, parameters[i].name),
                                 *b = plm_safetensors_find(last, parameters[i].name);
    assert_true(a != NULL && b != NULL && a->bytes == b->bytes);
    if ((memcmp(a->data, b->data, a->bytes) == 0) != parameters[i].frozen)
      fail_msg("%s of %s %s", parameters[i].name, name,
               parameters[i].frozen ? "has changed" : "is the same");
  }
  plm_safetensors_close(first);
  plm_safetensors_close(last);
}

static void only_trained_parameters_have_moments(const struct trainer_scene *scene)
{
  static const char *const suffixes[] = {"momentum", "first_moment", "second_moment"};
  struct plm_safetensors *file = file_of(scene, 4, "optimizer.safetensors");
  for (size_t i = 0; i < parameter_count; i++) {
    int found = 0;
    for (size_t k = 0; k < sizeof suffixes / sizeof *suffixes; k++) {
      char *name = plm_format("%s.%s", parameters[i].name, suffixes[k]);
      found += plm_safetensors_find(file, name) != NULL;
      free(name);
    }
    if ((found == 0) != parameters[i].frozen)
      fail_msg("%s has %d moments", parameters[i].name, found);
  }
  plm_safetensors_close(file);
}

/* The norms of each line are those of some layers, without a layer of frozen parameters. Those of
 * the gradient make up the whole norm. */
static void only_trained_layers_are_measured(const struct trainer_scene *scene)
{
  static const char *const names[] = {"gradient_norms", "weight_norms", "update_norms"};
  cJSON *lines = trainer_scene_lines(scene);
  assert_int_equal(cJSON_GetArraySize(lines), 4);
  for (int i = 0; i < 4; i++)
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
      const cJSON *layers = cJSON_GetObjectItem(cJSON_GetArrayItem(lines, i), names[k]), *layer;
      assert_true(cJSON_IsObject(layers) && cJSON_GetArraySize(layers) > 0);
      double sum = 0;
      cJSON_ArrayForEach(layer, layers)
      {
        if (strstr(layer->string, "embed") != NULL) fail_msg("%s of %s", names[k], layer->string);
        sum += layer->valuedouble * layer->valuedouble;
      }
      const double norm = trainer_scene_number(cJSON_GetArrayItem(lines, i), "grad_norm");
      if (k == 0) assert_true(norm > 0 && fabs(sqrt(sum) / norm - 1) < 1e-4);
    }
  cJSON_Delete(lines);
}

static void frozen_parameters_stay(void **state)
{
  (void)state;
  struct trainer_scene scene, other;
  struct plm_error error;
  int frozen = 0;
  make(&scene);
  if (trainer_scene_open(&scene, 0, &error) != PLM_OK) fail_msg("%s", error.what);
  const struct plm_parameter *table = plm_model_table(scene.trainer.model, &parameter_count);
  assert_in_range(parameter_count, 1, MOST);
  for (size_t i = 0; i < parameter_count; i++) {
    parameters[i].name = plm_strdup(table[i].name);
    parameters[i].frozen = table[i].frozen;
    frozen += table[i].frozen;
  }
  assert_in_range(frozen, 1, parameter_count - 1);
  if (trainer_scene_run(&scene, &error) != PLM_OK) fail_msg("%s", error.what);
  trainer_scene_close(&scene);
  only_trained_values_change(&scene, "model.safetensors");
  only_trained_values_change(&scene, "ema.safetensors");
  only_trained_parameters_have_moments(&scene);
  only_trained_layers_are_measured(&scene);

  make(&other);
  trainer_scene_trains(&other, 1, false);
  trainer_scene_trains(&other, 0, true);
  for (uint64_t step = 2; step <= 4; step += 2) {
    const struct plm_hash a = trainer_scene_identity(&scene, step),
                          b = trainer_scene_identity(&other, step);
    assert_true(plm_hash_equal(a, b));
  }
  for (size_t i = 0; i < parameter_count; i++) free(parameters[i].name);
  plm_config_deinit(&scene.config);
  plm_config_deinit(&other.config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frozen_parameters_stay),
  };
  return cmocka_run_group_tests(tests, trainer_scene_corpora, NULL);
}
