/* The memory plan, and `plm-trainer --dry-run`. */
#include "trainer/memory_plan.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/size.h"
#include "common/model/masks.h"
#include "common/ops/open.h"
#include "trainer/share_sums.h"
#include "trainer/step_chunks.h"
#include "trainer/trainer.h"

static plm_status count_parameters(const struct plm_config *config, uint64_t *parameters,
                                   uint64_t *arena_bytes, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t count, arena;
  PLM_TRY(plm_model_parameters(&config->model, &table, &count, &arena, error));
  *parameters = 0;
  for (size_t i = 0; i < count; i++) *parameters += table[i].count;
  *arena_bytes = (uint64_t)arena * sizeof(float);
  free(table);
  return PLM_OK;
}

static plm_status count_inputs(const struct plm_config *config, uint32_t shares,
                               uint32_t micro_chunks, uint64_t *device, uint64_t *host,
                               struct plm_error *error)
{
  struct plm_objective_state objective;
  const uint32_t step_chunks = plm_trainer_step_chunks(config);
  PLM_TRY(plm_objective_init(&objective, config, step_chunks, 0, error));
  const struct plm_step_shape shape = {.model = &config->model,
                                       .objective = &objective,
                                       .step_chunks = step_chunks,
                                       .micro_chunks = micro_chunks,
                                       .max_length = config->data.max_length,
                                       .shares = shares};
  plm_step_memory(&shape, device, host);
  plm_objective_deinit(&objective);
  *host *= PLM_INPUT_RING;
  return PLM_OK;
}

plm_status plm_memory_plan(const struct plm_config *config, const struct plm_ops *ops,
                           uint32_t shares, uint32_t micro_chunks, struct plm_memory_plan *plan,
                           struct plm_error *error)
{
  struct plm_model_memory memory;
  uint64_t optimizer = 0, scratch = 0, arena_bytes = 0, device_inputs = 0, host_inputs = 0;
  const struct plm_model_options options = {
      .max_chunks = micro_chunks, .training = true, .recompute = config->trainer.recompute};
  *plan = (struct plm_memory_plan){0};
  PLM_TRY(plm_model_memory(&config->model, ops->act_bytes, &options, &memory, error));
  PLM_TRY(plm_optimizer_memory(config, ops, NULL, &optimizer, &scratch, error));
  PLM_TRY(count_parameters(config, &plan->parameters, &arena_bytes, error));
  PLM_TRY(count_inputs(config, shares, micro_chunks, &device_inputs, &host_inputs, error));
  const uint64_t masks =
      plm_masks_values(&config->model, micro_chunks, config->data.max_length) * sizeof(int32_t);
  const uint64_t moments = optimizer - scratch;
  const struct plm_memory_row rows[] = {
      {"parameters", "parameters, fp32", memory.parameters, false},
      {"weights", "weights, as products read them", memory.weights, false},
      {"gradients", "gradients, fp32", memory.gradients, false},
      {"shares", "sums of shares, fp32", plm_share_levels(shares) * arena_bytes, false},
      {"optimizer", "moments and average", moments, false},
      {"scratch", "optimizer scratch", scratch, false},
      {"activations", "activations", memory.activations, false},
      {"workspace", "workspace", memory.workspace, false},
      {"masks", "attention masks", masks, false},
      {"inputs", "inputs of two steps", device_inputs, false},
      {"inputs_host", "inputs and masks, host", host_inputs + masks, true},
      {"snapshot", "snapshot for checkpoints, host", arena_bytes + moments, true},
      {"credit", "chunks in flight (at most), host", config->network.credit_bytes, true},
  };
  plan->count = sizeof rows / sizeof *rows;
  for (size_t i = 0; i < plan->count; i++) {
    plan->rows[i] = rows[i];
    uint64_t *total = rows[i].host ? &plan->host_bytes : &plan->device_bytes;
    *total = plm_size_sum(*total, rows[i].bytes);
  }
  if (plm_size_sum(plan->device_bytes, plan->host_bytes) == SIZE_MAX)
    return plm_error_set(error, PLM_LIMIT,
                         "the memory for micro-batches of %u chunks is larger than the address "
                         "space",
                         micro_chunks);
  return PLM_OK;
}

static bool on_cpu(const struct plm_ops *ops)
{
  return strcmp(ops->name, "cpu") == 0;
}

/* Bytes needed of the memory that ops->memory_size reports. */
static uint64_t needed(const struct plm_memory_plan *plan, const struct plm_ops *ops)
{
  return plan->device_bytes + (on_cpu(ops) ? plan->host_bytes : 0);
}

plm_status plm_memory_largest(const struct plm_config *config, const struct plm_ops *ops,
                              uint32_t shares, uint64_t bytes, uint32_t *micro_chunks,
                              struct plm_error *error)
{
  *micro_chunks = 0;
  const uint32_t share_chunks = plm_trainer_step_chunks(config) / shares;
  for (uint32_t chunks = 1; chunks <= share_chunks; chunks++) {
    if (share_chunks % chunks != 0) continue;
    struct plm_memory_plan plan;
    PLM_TRY(plm_memory_plan(config, ops, shares, chunks, &plan, error));
    if (needed(&plan, ops) > bytes) break;
    *micro_chunks = chunks;
  }
  return PLM_OK;
}

static double gigabytes(uint64_t bytes)
{
  return 1e-9 * (double)bytes;
}

/* What to change so that it fits. */
static void remedy(const struct plm_config *config, uint32_t largest, char text[256])
{
  const char *recompute = config->trainer.recompute == PLM_RECOMPUTE_BLOCK
                              ? ""
                              : "trainer.recompute: block takes less memory";
  if (largest > 0)
    snprintf(text, 256, "trainer.micro_batch_tokens: %llu fits%s%s",
             (unsigned long long)largest * config->data.max_length, *recompute != '\0' ? "; " : "",
             recompute);
  else if (*recompute != '\0')
    snprintf(text, 256, "no micro-batch fits; %s", recompute);
  else
    snprintf(text, 256, "no micro-batch fits: the model is too large for this device");
}

plm_status plm_memory_check(const struct plm_config *config, struct plm_ops *ops, uint32_t shares,
                            uint32_t micro_chunks, struct plm_error *error)
{
  struct plm_memory_plan plan;
  uint64_t free_bytes, total_bytes;
  uint32_t largest;
  char hint[256];
  ops->memory_size(ops, &free_bytes, &total_bytes);
  if (free_bytes == 0) return PLM_OK; /* unknown */
  PLM_TRY(plm_memory_plan(config, ops, shares, micro_chunks, &plan, error));
  if (needed(&plan, ops) <= free_bytes) return PLM_OK;
  PLM_TRY(plm_memory_largest(config, ops, shares, free_bytes, &largest, error));
  remedy(config, largest, hint);
  const double gb = gigabytes(needed(&plan, ops));
  if (on_cpu(ops)) {
    plm_warning(
        "training takes %.2f GB, but only %.2f GB are free: the system may swap or kill it (%s)",
        gb, gigabytes(free_bytes), hint);
    return PLM_OK;
  }
  const struct plm_memory_row *most = &plan.rows[0];
  for (size_t i = 1; i < plan.count; i++)
    if (!plan.rows[i].host && plan.rows[i].bytes > most->bytes) most = &plan.rows[i];
  plm_error_set(
      error, PLM_NO_MEMORY,
      "training takes %.2f GB of the device's memory (%s: %.2f GB), but only %.2f of %.2f "
      "GB are free",
      gb, most->title, gigabytes(most->bytes), gigabytes(free_bytes), gigabytes(total_bytes));
  return plm_error_hint(error, "%s; `plm-pipeline up --dry-run` shows the whole memory plan", hint);
}

/* ---- --dry-run ----------------------------------------------------------------------------- */

struct outlook {
  const struct plm_config *config;
  struct plm_ops_plan backend;
  struct plm_memory_plan plan;
  uint64_t free_bytes, total_bytes; /* 0 if unknown; the backend's own memory is not free */
  uint32_t largest;                 /* chunks of the largest micro-batch that fits */
};

static void print_table(const struct outlook *o)
{
  const struct plm_ops *ops = o->backend.ops;
  char hint[256];
  printf("%-36s %15llu\n", "parameters (number)", (unsigned long long)o->plan.parameters);
  for (size_t i = 0; i < o->plan.count; i++) {
    const struct plm_memory_row *row = &o->plan.rows[i];
    if (o->backend.partial && strcmp(row->name, "scratch") == 0) continue;
    printf("%-36s %12.1f MB\n", row->title, 1e-6 * (double)row->bytes);
  }
  if (o->backend.own_bytes > 0)
    printf("%-36s %12.1f MB\n", "the CUDA backend's own memory",
           1e-6 * (double)o->backend.own_bytes);
  if (on_cpu(ops)) {
    printf("%-36s %12.1f MB\n", "total", 1e-6 * (double)needed(&o->plan, ops));
  } else {
    printf("%-36s %12.1f MB\n", "total on the device",
           1e-6 * (double)(o->plan.device_bytes + o->backend.own_bytes));
    printf("%-36s %12.1f MB\n", "total on the host", 1e-6 * (double)o->plan.host_bytes);
  }
  if (o->backend.partial)
    printf(
        "not counted, because the CUDA backend was not found: optimizer scratch and the backend's "
        "own memory\n");
  if (o->total_bytes == 0) {
    plm_print(stdout, "the size of the device's memory is unknown: %s\n", o->backend.why.what);
    return;
  }
  printf("%-36s %12.1f MB of %.1f\n", "free", 1e-6 * (double)o->free_bytes,
         1e-6 * (double)o->total_bytes);
  if (needed(&o->plan, ops) > o->free_bytes) {
    remedy(o->config, o->largest, hint);
    printf("this does not fit: %s\n", hint);
  } else {
    printf("largest trainer.micro_batch_tokens that fits: %llu\n",
           (unsigned long long)o->largest * o->config->data.max_length);
  }
}

static plm_status print_json(const struct outlook *o, struct plm_error *error)
{
  const struct plm_memory_plan *plan = &o->plan;
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "device", o->backend.ops->name);
  cJSON_AddNumberToObject(object, "parameter_count", (double)plan->parameters);
  for (size_t i = 0; i < plan->count; i++)
    cJSON_AddNumberToObject(object, plan->rows[i].name, (double)plan->rows[i].bytes);
  cJSON_AddNumberToObject(object, "backend", (double)o->backend.own_bytes);
  cJSON_AddNumberToObject(object, "device_bytes",
                          (double)(plan->device_bytes + o->backend.own_bytes));
  cJSON_AddNumberToObject(object, "host_bytes", (double)plan->host_bytes);
  cJSON_AddNumberToObject(object, "total",
                          (double)(plan->device_bytes + plan->host_bytes + o->backend.own_bytes));
  cJSON_AddBoolToObject(object, "partial", o->backend.partial);
  if (o->total_bytes == 0) {
    cJSON_AddStringToObject(object, "unknown", o->backend.why.what);
    return plm_json_print(object, error);
  }
  cJSON_AddNumberToObject(object, "free_bytes", (double)o->free_bytes);
  cJSON_AddNumberToObject(object, "total_bytes", (double)o->total_bytes);
  cJSON_AddBoolToObject(object, "fits", needed(plan, o->backend.ops) <= o->free_bytes);
  cJSON_AddNumberToObject(object, "largest_micro_batch_tokens",
                          (double)o->largest * o->config->data.max_length);
  return plm_json_print(object, error);
}

plm_status plm_trainer_dry_run(const struct plm_config *config, bool json, struct plm_error *error)
{
  struct outlook o = {.config = config};
  const struct plm_ops_request request = {.device = config->trainer.device,
                                          .precision = config->trainer.precision,
                                          .threads = config->trainer.threads};
  PLM_TRY(plm_objective_check(config, error));
  PLM_TRY(plm_ops_plan(&request, &o.backend, error));
  struct plm_ops *ops = o.backend.ops;
  const uint32_t shares = plm_trainer_new_shares(config);
  ops->memory_size(ops, &o.free_bytes, &o.total_bytes);
  plm_status status = plm_memory_plan(config, ops, shares, plm_trainer_micro_chunks(config, shares),
                                      &o.plan, error);
  if (status == PLM_OK)
    status = plm_memory_largest(config, ops, shares, o.free_bytes, &o.largest, error);
  if (status == PLM_OK && json)
    status = print_json(&o, error);
  else if (status == PLM_OK)
    print_table(&o);
  ops->close(ops);
  return status;
}
