/* Opens the backend in bf16 and prints, as a line of JSON, which kernels it uses and why it does
 * not use others.
 *
 *   gpu_probe
 *
 * `make gpu-check` runs it before any other program that uses the device. The kernels for sm_90a
 * are checked in a child only if the first backend of a process is in bf16. A process that begins
 * in fp32 checks them itself, and a fault there is the end of it. */
#include <stdio.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/ops/open.h"

static plm_status print(const struct plm_ops *ops, struct plm_error *error)
{
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "name", ops->name);
  cJSON_AddStringToObject(json, "isa", ops->isa);
  cJSON_AddStringToObject(json, "kernels", ops->kernels == NULL ? "" : ops->kernels);
  cJSON_AddStringToObject(json, "fallback", ops->fallback == NULL ? "" : ops->fallback);
  return plm_json_print(json, error);
}

int main(void)
{
  const struct plm_ops_request request = {.device = PLM_DEVICE_CUDA,
                                          .precision = PLM_PRECISION_BF16};
  struct plm_error error = {0};
  struct plm_ops *ops;
  plm_status status = plm_ops_open(&request, &ops, &error);
  if (status == PLM_OK) {
    status = print(ops, &error);
    ops->close(ops);
  }
  if (status == PLM_OK) return 0;
  plm_error_print("gpu_probe", &error);
  return plm_status_exit_code(status);
}
