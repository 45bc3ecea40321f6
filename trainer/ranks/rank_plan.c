/* Places the ranks on hosts as mpirun does, assigns owners, and counts. */
#include "trainer/ranks/rank_plan.h"

#include <stdlib.h>

#include "trainer/optimizers.h"
#include "trainer/ranks/gradient_exchange.h"

static uint32_t largest_power_of_two(uint32_t divides)
{
  return divides & -divides;
}

/* mpirun fills the slots of one host after the other. */
static void place(const struct plm_config *config, struct plm_rank_plan *plan)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  plan->ranks = trainer->ranks;
  plan->on_first_host = plm_config_ranks_here(config);
  plan->hosts = 1;
  plan->group_size = largest_power_of_two(plan->on_first_host);
  for (uint32_t left = trainer->ranks - plan->on_first_host; left > 0; plan->hosts++) {
    const uint32_t slots = plm_config_slots(trainer, plan->hosts);
    const uint32_t here = slots < left ? slots : left;
    const uint32_t group = largest_power_of_two(here);
    if (group < plan->group_size) plan->group_size = group;
    left -= here;
  }
}

static plm_status most_of_optimizer(const struct plm_config *config, const struct plm_ops *ops,
                                    const uint32_t *owners, struct plm_rank_plan *plan,
                                    struct plm_error *error)
{
  for (uint32_t r = 0; r < plan->ranks; r++) {
    const struct plm_held held = {owners, r};
    uint64_t bytes, scratch;
    PLM_TRY(plm_optimizer_memory(config, ops, plan->ranks == 1 ? NULL : &held, &bytes, &scratch,
                                 error));
    if (bytes <= plan->optimizer) continue;
    plan->optimizer = bytes;
    plan->optimizer_scratch = scratch;
  }
  return PLM_OK;
}

static plm_status count(const struct plm_config *config, const struct plm_ops *ops,
                        const struct plm_parameter *table, size_t parameters, uint32_t *owners,
                        struct plm_rank_plan *plan, struct plm_error *error)
{
  const struct plm_config_trainer *trainer = &config->trainer;
  PLM_TRY(plm_owners_assign(trainer, table, parameters, plan->ranks, owners, error));
  PLM_TRY(plm_owners_imbalance(trainer, table, parameters, plan->ranks, owners, &plan->imbalance,
                               error));
  PLM_TRY(most_of_optimizer(config, ops, owners, plan, error));
  struct plm_exchange_bytes bytes;
  PLM_TRY(plm_exchange_count(table, parameters, owners, plan->ranks, plan->group_size,
                             trainer->compress, &bytes, error));
  plan->exchange = bytes.device;
  plan->sent_in_group = bytes.sent_in_group;
  plan->sent_on_rail = bytes.sent_on_rail;
  return PLM_OK;
}

plm_status plm_rank_plan(const struct plm_config *config, const struct plm_ops *ops,
                         struct plm_rank_plan *plan, struct plm_error *error)
{
  struct plm_parameter *table = NULL;
  size_t parameters, arena;
  *plan = (struct plm_rank_plan){0};
  place(config, plan);
  PLM_TRY(plm_model_parameters(&config->model, &table, &parameters, &arena, error));
  uint32_t *owners = calloc(parameters, sizeof *owners);
  const plm_status status =
      owners == NULL ? plm_error_set(error, PLM_NO_MEMORY,
                                     "no memory for the owners of %zu tensors", parameters)
                     : count(config, ops, table, parameters, owners, plan, error);
  free(owners);
  free(table);
  return status;
}
