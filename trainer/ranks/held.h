/* What a rank holds of the optimizer's state: the parameters that it owns, and those of all. */
#ifndef PLM_TRAINER_RANKS_HELD_H
#define PLM_TRAINER_RANKS_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLM_OWNED_BY_ALL UINT32_MAX
#define PLM_OWNED_BY_NONE (UINT32_MAX - 1) /* it is frozen */

/* NULL means everything. */
struct plm_held {
  const uint32_t *owners; /* by parameter: a rank, or all or none; borrowed */
  uint32_t rank;
};

static inline bool plm_is_held(const struct plm_held *held, size_t parameter)
{
  if (held == NULL) return true;
  return held->owners[parameter] == held->rank || held->owners[parameter] == PLM_OWNED_BY_ALL;
}

/* Whether exactly one rank updates what has this owner. */
static inline bool plm_has_owner(uint32_t owner)
{
  return owner != PLM_OWNED_BY_ALL && owner != PLM_OWNED_BY_NONE;
}

/* The rank whose numbers count for a parameter that has this owner. */
static inline uint32_t plm_speaker(uint32_t owner)
{
  return plm_has_owner(owner) ? owner : 0;
}

#endif
