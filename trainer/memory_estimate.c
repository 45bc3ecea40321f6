/* The memory estimate of a configuration. */
#include "trainer/memory_estimate.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/log/log.h"
#include "common/base/numbers/size.h"
#include "common/model/masks.h"
#include "common/ops/device.h"
#include "trainer/input/input.h"
#include "trainer/input/step_chunks.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/optimizer/share_sums.h"
#include "trainer/step/step.h"
#include "trainer/trainer_options.h"

/* Kept free on a device: the driver loads kernels when they first run, and graphs take memory when
 * they are made. */
enum { DEVICE_RESERVE = 1000 * 1000 * 1000 };

/* parameters[1]: how many of them are trained */
static plm_status count_parameters(const struct plm_config *config, uint64_t parameters[2],
                                   uint64_t *arena_bytes, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t count, arena;
  PLM_TRY(plm_model_parameters(&config->model, &table, &count, &arena, error));
  const struct plm_freeze freeze = plm_config_freeze(&config->trainer, &config->model);
  *arena_bytes = plm_parameters_freeze(table, count, &freeze) * sizeof(float);
  parameters[0] = parameters[1] = 0;
  for (size_t i = 0; i < count; i++) {
    parameters[0] += table[i].count;
    if (!table[i].frozen) parameters[1] += table[i].count;
  }
  free(table);
  return PLM_OK;
}

/* shares: of one rank */
static plm_status count_inputs(const struct plm_config *config, uint32_t shares,
                               uint32_t micro_chunks, uint64_t *device, uint64_t *host,
                               struct plm_error *error)
{
  struct plm_objective_state objective;
  uint64_t device_losses = 0, host_losses = 0;
  const uint32_t step_chunks = plm_trainer_step_chunks(config);
  const struct plm_objective_options options = plm_objective_options_of(config);
  PLM_TRY(plm_objective_init(&objective, &options, step_chunks, 0, error));
  const struct plm_step_shape shape = {.model = &config->model,
                                       .objective = &objective,
                                       .step_chunks = step_chunks / config->trainer.ranks,
                                       .micro_chunks = micro_chunks,
                                       .max_length = config->data.max_length,
                                       .shares = shares};
  plm_step_memory(&shape, device, host);
  plm_objective_deinit(&objective);
  if (config->source_count > 0)
    plm_chunk_losses_memory(config->trainer.ranks, shape.step_chunks, micro_chunks, &device_losses,
                            &host_losses);
  *device += device_losses;
  *host = *host * PLM_INPUT_RING + host_losses;
  return PLM_OK;
}

plm_status plm_memory_estimate(const struct plm_config *config, const struct plm_ops *ops,
                               uint32_t shares, uint32_t micro_chunks,
                               struct plm_memory_estimate *estimate, struct plm_error *error)
{
  struct plm_model_memory memory;
  uint64_t optimizer = 0, scratch = 0, arena_bytes = 0, device_inputs = 0, host_inputs = 0;
  uint64_t counts[2];
  const uint32_t own_shares = shares / config->trainer.ranks;
  const struct plm_model_options options = {
      .max_chunks = micro_chunks,
      .training = true,
      .recompute = config->trainer.recompute,
      .freeze = plm_config_freeze(&config->trainer, &config->model)};
  *estimate = (struct plm_memory_estimate){0};
  PLM_TRY(plm_model_memory(&config->model, ops->act_bytes, &options, &memory, error));
  PLM_TRY(plm_optimizer_memory(&config->trainer, &config->model, ops, NULL, &optimizer, &scratch,
                               error));
  const uint64_t all_moments = optimizer - scratch;
  PLM_TRY(plm_rank_needs(config, ops, &estimate->ranks, error));
  optimizer = estimate->ranks.optimizer;
  scratch = estimate->ranks.optimizer_scratch;
  PLM_TRY(count_parameters(config, counts, &arena_bytes, error));
  estimate->parameters = counts[0];
  estimate->trained = counts[1];
  PLM_TRY(count_inputs(config, own_shares, micro_chunks, &device_inputs, &host_inputs, error));
  const uint64_t masks =
      plm_masks_values(&config->model, micro_chunks, config->data.max_length) * sizeof(int32_t);
  const uint64_t moments = optimizer - scratch;
  const uint64_t workspace =
      plm_size_sum(memory.workspace, plm_model_widened(&config->model, ops, micro_chunks));
  const uint64_t norms = config->norms > 0 ? estimate->ranks.updated : 0;
  const uint64_t frozen = (estimate->parameters - estimate->trained) * sizeof(float);
  const bool cpu = plm_device_is_cpu(ops->name), copies = config->trainer.ranks > 1 && !cpu;
  const struct plm_memory_row rows[] = {
      {"parameters", "parameters, fp32", estimate->ranks.parameters, false, false},
      {"weights", "weights, as products read them", memory.weights, false, false},
      {"gradients", "gradients, fp32", memory.gradients, false, false},
      {"shares", "sums of shares, fp32", plm_share_levels(own_shares) * arena_bytes, false, false},
      {"exchange", "exchange between ranks", estimate->ranks.exchange, false, false},
      {"optimizer", "moments and average", moments, false, false},
      {"scratch", "optimizer scratch", scratch, false, false},
      {"norms", "copy of parameters, for norms", norms, false, false},
      {"activations", "activations", memory.activations, false, false},
      {"workspace", "workspace", workspace, false, false},
      {"masks", "attention masks", masks, false, false},
      {"inputs", "inputs of two steps", device_inputs, false, false},
      {"reserve", "kept free for kernels and graphs", cpu ? 0 : DEVICE_RESERVE, false, false},
      {"inputs_host", "inputs and masks, host", host_inputs + masks, true, false},
      {"transfers", "transfers between ranks, host", copies ? PLM_RANK_ROOM : 0, true, false},
      {"snapshot", "snapshot for checkpoints, host", arena_bytes + all_moments + frozen, true,
       true},
      {"credit", "chunks in flight (at most), host", config->network.credit_bytes, true, true},
  };
  estimate->count = sizeof rows / sizeof *rows;
  for (size_t i = 0; i < estimate->count; i++) {
    estimate->rows[i] = rows[i];
    uint64_t *total = rows[i].host ? &estimate->host_bytes : &estimate->device_bytes;
    *total = plm_size_sum(*total, rows[i].bytes);
    if (rows[i].first_rank)
      estimate->first_rank_bytes = plm_size_sum(estimate->first_rank_bytes, rows[i].bytes);
  }
  if (plm_size_sum(estimate->device_bytes, estimate->host_bytes) == SIZE_MAX)
    return plm_error_set(error, PLM_LIMIT,
                         "the memory for micro-batches of %u chunks is larger than the address "
                         "space",
                         micro_chunks);
  return PLM_OK;
}

uint64_t plm_memory_needed(const struct plm_memory_estimate *estimate, const struct plm_ops *ops)
{
  if (!plm_device_is_cpu(ops->name)) return estimate->device_bytes;
  const uint64_t each = estimate->device_bytes + estimate->host_bytes - estimate->first_rank_bytes;
  return plm_size_sum(plm_size_product(each, estimate->ranks.on_first_host),
                      estimate->first_rank_bytes);
}

plm_status plm_memory_largest(const struct plm_config *config, const struct plm_ops *ops,
                              uint32_t shares, uint64_t bytes, uint32_t *micro_chunks,
                              struct plm_error *error)
{
  *micro_chunks = 0;
  const uint32_t share_chunks = plm_trainer_step_chunks(config) / shares;
  for (uint32_t chunks = 1; chunks <= share_chunks; chunks++) {
    if (share_chunks % chunks != 0) continue;
    struct plm_memory_estimate estimate;
    PLM_TRY(plm_memory_estimate(config, ops, shares, chunks, &estimate, error));
    if (plm_memory_needed(&estimate, ops) > bytes) break;
    *micro_chunks = chunks;
  }
  return PLM_OK;
}

static double gigabytes(uint64_t bytes)
{
  return 1e-9 * (double)bytes;
}

void plm_memory_remedy(const struct plm_config *config, uint32_t largest, char text[256])
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
  struct plm_memory_estimate estimate;
  uint64_t free_bytes, total_bytes;
  uint32_t largest;
  char hint[256];
  ops->memory_size(ops, &free_bytes, &total_bytes);
  if (free_bytes == 0) return PLM_OK; /* unknown */
  PLM_TRY(plm_memory_estimate(config, ops, shares, micro_chunks, &estimate, error));
  if (plm_memory_needed(&estimate, ops) <= free_bytes) return PLM_OK;
  PLM_TRY(plm_memory_largest(config, ops, shares, free_bytes, &largest, error));
  plm_memory_remedy(config, largest, hint);
  const double gb = gigabytes(plm_memory_needed(&estimate, ops));
  if (plm_device_is_cpu(ops->name)) {
    plm_warning(
        "training takes %.2f GB, but only %.2f GB are free: the system may swap or kill it (%s)",
        gb, gigabytes(free_bytes), hint);
    return PLM_OK;
  }
  const uint64_t used_bytes = total_bytes - free_bytes;
  const struct plm_memory_row *most = &estimate.rows[0];
  for (size_t i = 1; i < estimate.count; i++)
    if (!estimate.rows[i].host && estimate.rows[i].bytes > most->bytes) most = &estimate.rows[i];
  plm_error_set(
      error, PLM_NO_MEMORY,
      "training takes %.2f GB of the device's memory (%s: %.2f GB), but only %.2f of %.2f "
      "GB are free",
      gb, most->title, gigabytes(most->bytes), gigabytes(free_bytes), gigabytes(total_bytes));
  if (used_bytes > total_bytes / 10) /* much more than this process has so far */
    return plm_error_hint(
        error,
        "%.2f GB are in use, most of it by other processes (nvidia-smi shows "
        "them); or %s; `plm-pipeline up --dry-run` shows the whole memory estimate",
        gigabytes(used_bytes), hint);
  return plm_error_hint(error, "%s; `plm-pipeline up --dry-run` shows the whole memory estimate",
                        hint);
}
