/* Bootstrap replicates: how often each unit is drawn. */
#ifndef PLM_EVALUATOR_MEASURES_BOOTSTRAP_H
#define PLM_EVALUATOR_MEASURES_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

enum { PLM_BOOTSTRAP_REPLICATES = 1000 };

/* Fills drawn (units): draw i of a replicate takes unit floor(w * units / 2^32), where w is word
 * i % 4 of Philox (seed 0, x = i / 4, y = replicate). units < 2^32. */
void plm_bootstrap_draw(uint32_t replicate, size_t units, double *drawn);

/* The 2.5 % and 97.5 % percentiles of the values that are no NaN, interpolated linearly; NaN if
 * they are fewer than half of all. Sorts values (PLM_BOOTSTRAP_REPLICATES). */
void plm_bootstrap_interval(double *values, double *low, double *high);

#endif
