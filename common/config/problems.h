/* The list of everything that is wrong with a configuration. It is collected in full before any of
 * it is printed. */
#ifndef PLM_COMMON_CONFIG_PROBLEMS_H
#define PLM_COMMON_CONFIG_PROBLEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"
#include "common/config/settings.h"

/* Where a value comes from: a place in the file, a variable or a flag; {0} for a default. */
struct plm_place {
  const char *input; /* "pipeline.yaml", "PLM_TRAINER_STEPS", "--set trainer.steps" */
  uint32_t file;     /* of a file: its number in config->files */
  uint32_t line, column;
};

struct plm_config_problems {
  struct plm_problem {
    struct plm_place place; /* for sorting; its input may be gone */
    char *text;
  } * list;
  size_t count;
  bool no_memory; /* something could not be read because memory ran out; it may be right */
  struct plm_error no_descriptors; /* the same, if a file could not be opened for that reason */
};

struct plm_config_problems *plm_problems_new(void);
/* Adds "INPUT:LINE:COLUMN: text". The same problem is not added twice, as it would be for a file
 * that is included twice. After 200 problems, further ones are dropped. */
void plm_problems_add(struct plm_config_problems *problems, struct plm_place place,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Adds "WHATerror", unless the error says that the process lacks memory or descriptors, which is no
 * fault of the configuration. */
void plm_problems_add_error(struct plm_config_problems *problems, struct plm_place place,
                            const char *what, const struct plm_error *error);
/* PLM_NO_MEMORY or PLM_NO_DESCRIPTORS if the process lacked that, so that something was not read.
 */
plm_status plm_problems_lack(const struct plm_config_problems *problems, struct plm_error *error);
bool plm_problems_full(const struct plm_config_problems *problems);
/* Sorts by file, then line, then column; problems without a line keep their place. */
void plm_problems_sort(struct plm_config_problems *problems);

/* State that config_load.c and config_check.c share while a configuration is loaded. */
struct plm_loader {
  void (*more)(struct plm_loader *loader); /* further checks of the caller; or NULL */
  struct plm_config *config;
  struct plm_config_problems *problems;
  struct plm_place *places;                        /* of each setting */
  struct plm_place source_places[PLM_MAX_SOURCES]; /* of each entry of `corpus` */
  bool *bad; /* of each setting: its value was refused, so checks must not use it */
};

/* plm_config_load with further checks, which add to the same list of problems. They see the
 * configuration as far as it could be read. */
plm_status plm_config_load_with(const char *path, const struct plm_config_override *overrides,
                                size_t override_count, void (*more)(struct plm_loader *loader),
                                struct plm_config *config, struct plm_config_problems **problems,
                                struct plm_error *error);

/* Checks that the warm-up and the cool-down of the learning rate fit into the run. Not a part of
 * plm_config_check: runs whose schedule does not fit exist, and can be resumed and shown. */
void plm_config_check_schedule(struct plm_loader *loader);

/* Checks settings that depend on each other and reports mistakes at the value's place. */
void plm_config_check(struct plm_loader *loader);

#endif
