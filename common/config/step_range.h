/* A range of steps as text: "10-12", or "10" for one step. */
#ifndef PLM_COMMON_CONFIG_STEP_RANGE_H
#define PLM_COMMON_CONFIG_STEP_RANGE_H

#include "common/config/settings.h"

enum { PLM_MAX_PROFILE_STEPS = 100, PLM_STEP_RANGE_MESSAGE = 512 };

/* Reads a range. If it returns false, *steps is unchanged and the message says why. */
bool plm_step_range_parse(const char *text, struct plm_step_range *steps,
                          char message[PLM_STEP_RANGE_MESSAGE]);
/* The same for a value of a configuration, where null is no step. */
bool plm_step_range_store(const struct plm_scalar *scalar, struct plm_step_range *steps,
                          char message[PLM_STEP_RANGE_MESSAGE]);

#endif
