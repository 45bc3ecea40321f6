/* The grid of a sweep: `--set KEY=A,B` of several keys, and a run for each combination of values.
 */
#ifndef PLM_STAGES_COMMANDS_SWEEP_GRID_H
#define PLM_STAGES_COMMANDS_SWEEP_GRID_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

enum { PLM_SWEEP_NAME_SIZE = 200, PLM_SWEEP_MOST_RUNS = 1000 };

/* A key and its values, of which there is at least one. */
struct plm_sweep_axis {
  const char *key; /* borrowed */
  char **values;
  size_t count;
};

/* Caller-owned; {0} is empty. */
struct plm_sweep_grid {
  struct plm_sweep_axis *axes; /* in the order in which they were given */
  size_t axis_count;
  size_t runs; /* the product of the counts */
};

/* Splits the value of each --set at the commas outside brackets, braces and quotes, so that
 * [0.1,0.2],[0.3] are two lists. Borrows the keys. PLM_USAGE: a value is empty or there twice, a
 * key is there twice, or there are too many runs. *grid is to be deinitialised even then. */
plm_status plm_sweep_grid_make(const struct plm_config_override *sets, size_t count,
                               struct plm_sweep_grid *grid, struct plm_error *error);
void plm_sweep_grid_deinit(struct plm_sweep_grid *grid);

/* The value of an axis in run i; the last axis varies fastest. */
const char *plm_sweep_value(const struct plm_sweep_grid *grid, size_t run, size_t axis);
/* The name of run i: the last words of the keys that vary, each with its value, such as
 * "lr_hidden=0.001,hidden_size=256". Characters that are awkward in a path become "_"; a name that
 * would be too long or that of another run ends with the run's number instead. */
void plm_sweep_name(const struct plm_sweep_grid *grid, size_t run, char name[PLM_SWEEP_NAME_SIZE]);

#endif
