/* Places the ranks on hosts as mpirun does, assigns owners, and counts. */
#include "trainer/ranks/rank_needs.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/ranks/gradient_exchange.h"

static uint32_t largest_power_of_two(uint32_t divides)
{
  return divides & -divides;
}

/* mpirun fills the slots of one host after the other. */
static void rank_needs_place(const struct plm_config *config, struct plm_rank_needs *needs)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  needs->ranks = trainer->ranks;
  needs->on_first_host = plm_config_ranks_here(config);
  needs->hosts = 1;
  needs->group_size = largest_power_of_two(needs->on_first_host);
  for (uint32_t left = trainer->ranks - needs->on_first_host; left > 0; needs->hosts++) {
    const uint32_t slots = plm_config_slots(trainer, needs->hosts);
    const uint32_t here = slots < left ? slots : left;
    const uint32_t group = largest_power_of_two(here);
    if (group < needs->group_size) needs->group_size = group;
    left -= here;
  }
}

/* Bytes of the fp32 values that a rank updates. */
static uint64_t count_updated(const struct plm_parameter *table, size_t count,
                              const struct plm_held *held)
{
  uint64_t elements = 0;
  for (size_t i = 0; i < count; i++)
    if (plm_is_held(held, i))
      elements += plm_size_round_up(table[i].count, PLM_PARAMETER_ALIGNMENT);
  return elements * sizeof(float);
}

/* Bytes of the fp32 values that a rank keeps. */
static plm_status count_parameters(const struct plm_config *config, const struct plm_ops *ops,
                                   const struct plm_held *held, size_t count, uint64_t *bytes,
                                   struct plm_error *error)
{
  struct plm_model_memory memory;
  bool *kept = plm_alloc_zeroed(count, sizeof *kept);
  for (size_t i = 0; i < count; i++) kept[i] = plm_is_held(held, i);
  const struct plm_model_options options = {
      .max_chunks = 1,
      .training = true,
      .kept = held != NULL ? kept : NULL,
      .freeze = plm_config_freeze(&config->trainer, &config->model)};
  const plm_status status =
      plm_model_memory(&config->model, ops->act_bytes, &options, &memory, error);
  free(kept);
  if (status == PLM_OK) *bytes = memory.parameters;
  return status;
}

static plm_status find_largest(const struct plm_config *config, const struct plm_ops *ops,
                               const struct plm_parameter *table, const uint32_t *owners,
                               size_t count, struct plm_rank_needs *needs, struct plm_error *error)
{
  for (uint32_t r = 0; r < needs->ranks; r++) {
    const struct plm_held part = {owners, r}, *held = needs->ranks == 1 ? NULL : &part;
    uint64_t parameters = 0, optimizer, scratch;
    PLM_TRY(plm_optimizer_memory(&config->trainer, &config->model, ops, held, &optimizer, &scratch,
                                 error));
    PLM_TRY(count_parameters(config, ops, held, count, &parameters, error));
    if (r > 0 && parameters + optimizer <= needs->parameters + needs->optimizer) continue;
    needs->parameters = parameters;
    needs->updated = count_updated(table, count, &part);
    needs->optimizer = optimizer;
    needs->optimizer_scratch = scratch;
  }
  return PLM_OK;
}

static plm_status rank_needs_count(const struct plm_config *config, const struct plm_ops *ops,
                                   const struct plm_parameter *table, size_t parameters,
                                   uint32_t *owners, struct plm_rank_needs *needs,
                                   struct plm_error *error)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  plm_owners_assign(trainer, table, parameters, needs->ranks, owners);
  needs->imbalance = plm_owners_imbalance(trainer, table, parameters, needs->ranks, owners);
  PLM_TRY(find_largest(config, ops, table, owners, parameters, needs, error));
  const struct plm_bucket_request request = {.table = table,
                                             .count = parameters,
                                             .owners = owners,
                                             .ranks = needs->ranks,
                                             .act_bytes = ops->act_bytes};
  struct plm_exchange_bytes bytes;
  plm_exchange_count(&request, needs->group_size, trainer->compress, &bytes);
  needs->exchange = bytes.device;
  needs->sent_in_group = bytes.sent_in_group;
  needs->sent_on_rail = bytes.sent_on_rail;
  return PLM_OK;
}

plm_status plm_rank_needs(const struct plm_config *config, const struct plm_ops *ops,
                          struct plm_rank_needs *needs, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t parameters, arena;
  *needs = (struct plm_rank_needs){0};
  rank_needs_place(config, needs);
  PLM_TRY(plm_model_parameters(&config->model, &table, &parameters, &arena, error));
  const struct plm_freeze freeze = plm_config_freeze(&config->trainer, &config->model);
  plm_parameters_freeze(table, parameters, &freeze);
  uint32_t *owners = plm_alloc_zeroed(parameters, sizeof *owners);
  const plm_status status = rank_needs_count(config, ops, table, parameters, owners, needs, error);
  free(owners);
  free(table);
  return status;
}
