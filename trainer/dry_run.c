/* `plm-trainer --dry-run`: prints the memory estimate and what ranks exchange. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/base/numbers/size.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/config/label_columns.h"
#include "common/ops/device.h"
#include "common/ops/open.h"
#include "trainer/input/step_chunks.h"
#include "trainer/memory_estimate.h"
#include "trainer/trainer.h"
#include "trainer/trainer_options.h"

struct outlook {
  const struct plm_config *config;
  struct plm_ops_preview backend;
  struct plm_memory_estimate estimate;
  uint64_t free_bytes, total_bytes; /* 0 if unknown; the backend's own memory is not free */
  uint32_t largest;                 /* chunks of the largest micro-batch that fits */
};

static void print_ranks(const struct plm_rank_needs *ranks)
{
  if (ranks->ranks == 1) return;
  printf("%-36s %15u on %u host%s, in groups of %u\n", "ranks", ranks->ranks, ranks->hosts,
         ranks->hosts == 1 ? "" : "s", ranks->group_size);
  printf("%-36s %15.2f times the mean\n", "largest part of Muon's work", ranks->imbalance);
  printf("%-36s %12.1f MB in a step\n", "sent by a rank within its group",
         1e-6 * (double)ranks->sent_in_group);
  printf("%-36s %12.1f MB in a step\n", "sent by a rank to other groups",
         1e-6 * (double)ranks->sent_on_rail);
}

static void dry_run_print_table(const struct outlook *o)
{
  const struct plm_ops *ops = o->backend.ops;
  char hint[256];
  print_ranks(&o->estimate.ranks);
  printf("%-36s %15llu\n", "parameters (number)", (unsigned long long)o->estimate.parameters);
  if (o->estimate.trained < o->estimate.parameters)
    printf("%-36s %15llu\n", "of these, trained", (unsigned long long)o->estimate.trained);
  for (size_t i = 0; i < o->estimate.count; i++) {
    const struct plm_memory_row *row = &o->estimate.rows[i];
    if (o->backend.partial && strcmp(row->name, "scratch") == 0) continue;
    if (row->bytes == 0 && o->estimate.ranks.ranks == 1 && strcmp(row->name, "exchange") == 0)
      continue;
    if (row->bytes == 0 && strcmp(row->name, "reserve") == 0) continue;
    printf("%-36s %12.1f MB\n", row->title, 1e-6 * (double)row->bytes);
  }
  if (o->backend.own_bytes > 0)
    printf("%-36s %12.1f MB\n", "the CUDA backend's own memory",
           1e-6 * (double)o->backend.own_bytes);
  if (plm_device_is_cpu(ops->name)) {
    printf("%-36s %12.1f MB\n",
           o->estimate.ranks.ranks == 1 ? "total" : "total of the ranks on a host",
           1e-6 * (double)plm_memory_needed(&o->estimate, ops));
  } else {
    printf("%-36s %12.1f MB\n", "total on the device",
           1e-6 * (double)(o->estimate.device_bytes + o->backend.own_bytes));
    printf("%-36s %12.1f MB\n", "total on the host", 1e-6 * (double)o->estimate.host_bytes);
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
  if (plm_memory_needed(&o->estimate, ops) > o->free_bytes) {
    plm_memory_remedy(o->config, o->largest, hint);
    printf("this does not fit: %s\n", hint);
  } else {
    printf("largest trainer.micro_batch_tokens that fits: %llu\n",
           (unsigned long long)o->largest * o->config->data.max_length);
  }
}

static void add_ranks(cJSON *object, const struct plm_rank_needs *ranks)
{
  cJSON_AddNumberToObject(object, "ranks", ranks->ranks);
  cJSON_AddNumberToObject(object, "hosts", ranks->hosts);
  cJSON_AddNumberToObject(object, "group_size", ranks->group_size);
  cJSON_AddNumberToObject(object, "owner_imbalance", ranks->imbalance);
  cJSON_AddNumberToObject(object, "sent_in_group", (double)ranks->sent_in_group);
  cJSON_AddNumberToObject(object, "sent_on_rail", (double)ranks->sent_on_rail);
}

static plm_status dry_run_print_json(const struct outlook *o, struct plm_error *error)
{
  const struct plm_memory_estimate *estimate = &o->estimate;
  const uint64_t more =
      plm_device_is_cpu(o->backend.ops->name) ? 0 : estimate->host_bytes; /* not yet in `needed` */
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "device", o->backend.ops->name);
  if (plm_device_is_cpu(o->backend.ops->name)) {
    cJSON_AddStringToObject(object, "level", plm_ops_cpu_level());
    cJSON_AddStringToObject(object, "products", o->backend.ops->products);
    if (o->backend.ops->bf16_products != NULL)
      cJSON_AddStringToObject(object, "bf16_products", o->backend.ops->bf16_products);
    cJSON_AddStringToObject(object, "bf16_gain", plm_ops_cpu_bf16_gain());
    cJSON_AddStringToObject(object, "int8_gain", plm_ops_cpu_int8_gain(&(bool){false}));
  }
  cJSON_AddStringToObject(object, "precision", o->backend.ops->act_bytes == 4 ? "fp32" : "bf16");
  cJSON_AddNumberToObject(object, "parameter_count", (double)estimate->parameters);
  cJSON_AddNumberToObject(object, "trained_count", (double)estimate->trained);
  add_ranks(object, &estimate->ranks);
  for (size_t i = 0; i < estimate->count; i++)
    cJSON_AddNumberToObject(object, estimate->rows[i].name, (double)estimate->rows[i].bytes);
  cJSON_AddNumberToObject(object, "backend", (double)o->backend.own_bytes);
  cJSON_AddNumberToObject(object, "device_bytes",
                          (double)(estimate->device_bytes + o->backend.own_bytes));
  cJSON_AddNumberToObject(object, "host_bytes", (double)estimate->host_bytes);
  cJSON_AddNumberToObject(
      object, "total",
      (double)(plm_memory_needed(estimate, o->backend.ops) + more + o->backend.own_bytes));
  cJSON_AddBoolToObject(object, "partial", o->backend.partial);
  if (o->total_bytes == 0) {
    cJSON_AddStringToObject(object, "unknown", o->backend.why.what);
    return plm_json_print(object, error);
  }
  cJSON_AddNumberToObject(object, "free_bytes", (double)o->free_bytes);
  cJSON_AddNumberToObject(object, "total_bytes", (double)o->total_bytes);
  cJSON_AddBoolToObject(object, "fits",
                        plm_memory_needed(estimate, o->backend.ops) <= o->free_bytes);
  cJSON_AddNumberToObject(object, "largest_micro_batch_tokens",
                          (double)o->largest * o->config->data.max_length);
  return plm_json_print(object, error);
}

/* How many outputs a head for labels has, if the corpora are here; otherwise it is the least that
 * the objective allows. */
static plm_status count_outputs(struct plm_config *config, struct plm_error *error)
{
  struct plm_label_choice choice;
  if (!plm_objective_is_labels(config->trainer.objective)) return PLM_OK;
  const plm_status status = plm_config_read_labels(config, &choice, error);
  if (status == PLM_OK) config->model.head.outputs = choice.outputs;
  plm_label_choice_deinit(&choice);
  return status == PLM_NOT_FOUND ? PLM_OK : status;
}

plm_status plm_trainer_dry_run(const struct plm_config *given, bool json, struct plm_error *error)
{
  struct plm_config counted = *given;
  const struct plm_config *config = &counted;
  struct outlook o = {.config = config};
  const struct plm_ops_request request = {.device = config->trainer.device,
                                          .precision = config->trainer.precision,
                                          .threads = config->trainer.threads};
  PLM_TRY(count_outputs(&counted, error));
  PLM_TRY(plm_ops_preview(&request, &o.backend, error));
  struct plm_ops *ops = o.backend.ops;
  const struct plm_resume_options options = plm_resume_options_of(config);
  const uint32_t shares = plm_resume_new_shares(&options);
  ops->memory_size(ops, &o.free_bytes, &o.total_bytes);
  plm_status status = plm_memory_estimate(
      config, ops, shares, plm_trainer_micro_chunks(config, shares), &o.estimate, error);
  if (status == PLM_OK)
    status = plm_memory_largest(config, ops, shares, o.free_bytes, &o.largest, error);
  if (status == PLM_OK && json)
    status = dry_run_print_json(&o, error);
  else if (status == PLM_OK)
    dry_run_print_table(&o);
  ops->close(ops);
  return status;
}
