/* All that is wrong with a configuration, collected before anything is said. */
#ifndef PLM_COMMON_CONFIG_PROBLEMS_H
#define PLM_COMMON_CONFIG_PROBLEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/config/settings.h"

/* Where a value stands: a place in the file, a variable, a flag; {0} for a default. */
struct plm_place {
  const char *source; /* "pipeline.yaml", "PLM_TRAINER_STEPS", "--set trainer.steps" */
  uint32_t line, column;
};

struct plm_config_problems {
  struct plm_problem {
    uint32_t line, column; /* for the order */
    char *text;
  } * list;
  size_t count;
};

struct plm_config_problems *plm_problems_new(void);
/* "SOURCE:LINE:COLUMN: text"; beyond 1,000 problems the rest is dropped. */
void plm_problems_add(struct plm_config_problems *problems, struct plm_place place,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));
void plm_problems_sort(struct plm_config_problems *problems);

/* What config_load.c and config_check.c share while a configuration is being made. */
struct plm_loader {
  struct plm_config *config;
  struct plm_config_problems *problems;
  struct plm_place *places; /* one a setting */
  bool *bad;                /* one a setting: its value was refused, so cross-checks skip it */
};

/* Cross-checks between settings (model.md, operations.md), reported at the value's place. */
void plm_config_check(struct plm_loader *loader);

#endif
