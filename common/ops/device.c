/* The names by which files and options call devices and precisions. */
#include "common/ops/device.h"

#include <stddef.h>
#include <string.h>

const char *const plm_device_names[] = {"auto", "cpu", "cuda", NULL};
const char *const plm_precision_names[] = {"auto", "fp32", "bf16", "int8", NULL};
const char *const plm_training_precision_names[] = {"auto", "fp32", "bf16", NULL};

const char *const plm_bf16_products_names[] = {"auto", "native", "fp32", NULL};

const char *plm_precision_name(enum plm_precision precision)
{
  return plm_precision_names[precision];
}

bool plm_device_is_cpu(const char *name)
{
  return strcmp(name, plm_device_names[PLM_DEVICE_CPU]) == 0;
}
