/* The names of the rows. */
#include "common/metrics/measure_table.h"

#include <string.h>

const char *const plm_measure_names[PLM_MEASURES] = {
    PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME) PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME)};

bool plm_measure_falls(const char *measure)
{
  return strcmp(measure, plm_measure_names[PLM_MEASURE_RMSE]) == 0 || strcmp(measure, "loss") == 0;
}
