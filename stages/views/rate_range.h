/* A learning-rate range test: the loss while the rate grows from step to step, and the rates that
 * it suggests.
 *
 * Sources: Smith 2017, "Cyclical learning rates for training neural networks"; the two suggestions
 * and the bound on divergence are those of fast.ai's learning-rate finder. */
#ifndef PLM_STAGES_VIEWS_RATE_RANGE_H
#define PLM_STAGES_VIEWS_RATE_RANGE_H

#include <stdbool.h>
#include <stddef.h>

/* Caller-owned; {0} is empty. */
struct plm_rate_range {
  double *rates, *smoothed; /* (count) the mean of the losses so far, recent ones weighing more */
  size_t count, capacity;
  double mean;   /* the same without the correction for its first values */
  size_t best;   /* where smoothed is least */
  bool diverged; /* a loss was not finite, or smoothed exceeded four times its least value */
};

/* Adds a step. Once the test has diverged, further steps are ignored. */
void plm_rate_range_add(struct plm_rate_range *range, double rate, double loss);
void plm_rate_range_deinit(struct plm_rate_range *range);

struct plm_rate_suggestion {
  double steepest; /* the rate at which smoothed falls fastest, before its least value */
  double tenth;    /* a tenth of the rate at the least value */
};
/* False if there are too few steps, or if the loss did not fall after the first tenth of them. */
bool plm_rate_range_suggest(const struct plm_rate_range *range,
                            struct plm_rate_suggestion *suggestion);

#endif
