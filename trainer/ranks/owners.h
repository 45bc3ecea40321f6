/* Which rank updates which parameter.
 *
 * A parameter of PLM_OWNED_ELEMENTS elements or more has one owner, which keeps its fp32 values,
 * its moments and its average, and updates it. Whole parameters are given away because Muon needs
 * whole matrices. Smaller ones are updated by every rank. The largest costs are given away first,
 * each to the rank with the least so far. The result depends on the parameters and on the number of
 * ranks only. It has no influence on the bits of a run. See doc/ranks.md#owners. */
#ifndef PLM_TRAINER_RANKS_OWNERS_H
#define PLM_TRAINER_RANKS_OWNERS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/model/model.h"
#include "trainer/ranks/held.h"

enum { PLM_OWNED_ELEMENTS = 65536 };

/* Fills owners (count) with ranks, PLM_OWNED_BY_ALL, or PLM_OWNED_BY_NONE for what is frozen. With
 * one rank, that is the owner of all others. */
void plm_owners_assign(const struct plm_config_trainer *trainer, const struct plm_parameter *table,
                       size_t count, uint32_t ranks, uint32_t *owners);

/* The cost of updating a parameter, in multiplications: of Muon's five Newton-Schulz iterations for
 * a matrix with sides s <= l, 20 s^2 l + 10 s^3; of Adam, one for each element. */
double plm_update_cost(const struct plm_config_trainer *trainer,
                       const struct plm_parameter *parameter);
/* Costs of what the ranks own: the largest divided by the mean. 1 if nothing has an owner. */
double plm_owners_imbalance(const struct plm_config_trainer *trainer,
                            const struct plm_parameter *table, size_t count, uint32_t ranks,
                            const uint32_t *owners);

#endif
