/* What a rank holds of the optimizer's state: the parameters that it owns, and those of all. */
#ifndef PLM_TRAINER_RANKS_HELD_H
#define PLM_TRAINER_RANKS_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLM_OWNED_BY_ALL UINT32_MAX

/* NULL means everything. */
struct plm_held {
  const uint32_t *owners; /* by parameter: a rank or PLM_OWNED_BY_ALL; borrowed */
  uint32_t rank;
};

static inline bool plm_is_held(const struct plm_held *held, size_t parameter)
{
  if (held == NULL) return true;
  return held->owners[parameter] == held->rank || held->owners[parameter] == PLM_OWNED_BY_ALL;
}

#endif
