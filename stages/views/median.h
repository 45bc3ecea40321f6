/* The median of values that are shown. */
#ifndef PLM_STAGES_VIEWS_MEDIAN_H
#define PLM_STAGES_VIEWS_MEDIAN_H

#include <stddef.h>

/* Sorts the values, of which there is at least one. Of an even number, the greater of the two in
 * the middle. */
double plm_median(double *values, size_t count);

#endif
