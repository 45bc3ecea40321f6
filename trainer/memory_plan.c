/* What a configuration would take, before anything is taken. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/json.h"
#include "trainer/trainer.h"

struct row {
  const char *name, *title;
  uint64_t bytes;
};

static plm_status plan(const struct plm_config *config, struct row rows[], size_t *count,
                       uint64_t *parameters, struct plm_error *error)
{
  struct plm_ops *ops = NULL;
  struct plm_model_memory memory;
  struct plm_parameter *table = NULL;
  uint64_t optimizer = 0, scratch = 0;
  size_t parameter_count, arena;
  const uint32_t micro = plm_trainer_micro_chunks(config);
  const struct plm_model_options options = {
      .max_chunks = micro, .training = true, .recompute = config->trainer.recompute};
  PLM_TRY(plm_ops_cpu_open(config->trainer.precision, config->trainer.threads, NULL, &ops, error));
  plm_status status = plm_model_memory(&config->model, ops->act_bytes, &options, &memory, error);
  if (status == PLM_OK) status = plm_optimizer_memory(config, ops, &optimizer, &scratch, error);
  ops->close(ops);
  if (status != PLM_OK) return status;
  PLM_TRY(plm_model_parameters(&config->model, &table, &parameter_count, &arena, error));
  *parameters = 0;
  for (size_t i = 0; i < parameter_count; i++) *parameters += table[i].count;
  free(table);
  struct plm_objective_state objective;
  PLM_TRY(plm_objective_init(&objective, config, plm_trainer_step_chunks(config), 0, error));
  const struct plm_step_shape shape = {.model = &config->model,
                                       .objective = &objective,
                                       .step_chunks = plm_trainer_step_chunks(config),
                                       .micro_chunks = micro,
                                       .max_length = config->data.max_length};
  uint64_t step_device, step_host;
  plm_step_memory(&shape, &step_device, &step_host);
  plm_objective_deinit(&objective);
  const uint64_t arena_bytes = (uint64_t)arena * sizeof(float);
  const struct row planned[] = {
      {"parameters", "parameters, fp32", memory.parameters},
      {"weights", "weights as used", memory.weights},
      {"gradients", "gradients, fp32", memory.gradients},
      {"activations", "activations", memory.activations},
      {"workspace", "workspace", memory.workspace},
      {"optimizer", "optimizer, average and scratch", optimizer},
      {"snapshot", "snapshot for checkpoints (at most)", arena_bytes + optimizer - scratch},
      {"inputs", "inputs of steps", step_device + PLM_INPUT_RING * step_host},
      {"credit", "chunks on their way (at most)", config->network.credit_bytes},
  };
  *count = sizeof planned / sizeof *planned;
  for (size_t i = 0; i < *count; i++) rows[i] = planned[i];
  return PLM_OK;
}

plm_status plm_trainer_dry_run(const struct plm_config *config, bool json, struct plm_error *error)
{
  struct row rows[16];
  size_t count;
  uint64_t parameters, total = 0;
  PLM_TRY(plm_objective_check(config, error));
  PLM_TRY(plan(config, rows, &count, &parameters, error));
  for (size_t i = 0; i < count; i++) total += rows[i].bytes;
  if (!json) {
    printf("%-36s %15llu\n", "parameters (number)", (unsigned long long)parameters);
    for (size_t i = 0; i < count; i++)
      printf("%-36s %12.1f MB\n", rows[i].title, 1e-6 * (double)rows[i].bytes);
    printf("%-36s %12.1f MB\n", "total", 1e-6 * (double)total);
    return PLM_OK;
  }
  cJSON *object = cJSON_CreateObject();
  cJSON_AddNumberToObject(object, "parameter_count", (double)parameters);
  for (size_t i = 0; i < count; i++)
    cJSON_AddNumberToObject(object, rows[i].name, (double)rows[i].bytes);
  cJSON_AddNumberToObject(object, "total", (double)total);
  return plm_json_print(object, error);
}
