/* What becomes of a configuration: its problems, or the values of some settings. */
#ifndef PLM_TESTS_SUPPORT_EXPECTED_CONFIG_OUTCOME_H
#define PLM_TESTS_SUPPORT_EXPECTED_CONFIG_OUTCOME_H

#include <stddef.h>

#include "common/config/config.h"

struct config_outcome {
  const char *text, *keys; /* the file, and settings with spaces between them */
  /* Each problem in a line; without any, the lines "KEY: VALUE". The test's folder is DIR. */
  const char *expected;
};

/* Loads each text as pipeline.yaml, with the check of the schedule, and compares what becomes of
 * it. */
void expect_config_outcomes(const struct config_outcome *cases, size_t count);

/* The same of one text (NULL: no file) with values from the command line. */
void expect_config_outcome(const struct config_outcome *one,
                           const struct plm_config_override *overrides, size_t count);

#endif
