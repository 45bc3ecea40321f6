/* Options that several tasks have. */
#include "evaluator/task/task.h"

#include <stdlib.h>
#include <string.h>

#include "common/ops/device.h"

static plm_status parse_device(const struct plm_arguments *arguments, enum plm_device *device,
                               struct plm_error *error)
{
  const char *name = plm_arguments_get(arguments, "device");
  if (name == NULL) return PLM_OK;
  for (int i = 0; plm_device_names[i] != NULL; i++) {
    if (strcmp(name, plm_device_names[i]) != 0) continue;
    *device = (enum plm_device)i;
    return PLM_OK;
  }
  return plm_error_set(error, PLM_USAGE, "--device must be auto, cpu or cuda, not \"%.80s\"", name);
}

plm_status plm_task_open_ops(const struct plm_arguments *arguments, struct plm_ops_request request,
                             struct plm_ops **ops, struct plm_error *error)
{
  unsigned long long threads;
  const char *precision = plm_arguments_get(arguments, "precision");
  PLM_TRY(parse_device(arguments, &request.device, error));
  PLM_TRY(plm_arguments_u64(arguments, "threads", request.threads, &threads, error));
  if (precision != NULL && strcmp(precision, "fp32") != 0 && strcmp(precision, "bf16") != 0)
    return plm_error_set(error, PLM_USAGE, "--precision must be fp32 or bf16, not \"%.80s\"",
                         precision);
  const bool narrow = precision != NULL && strcmp(precision, "bf16") == 0;
  request.precision = narrow ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32;
  request.threads = (uint32_t)threads;
  return plm_ops_open(&request, ops, error);
}

plm_status plm_task_max_length(const struct plm_arguments *arguments, uint32_t *tokens,
                               struct plm_error *error)
{
  unsigned long long number;
  *tokens = 0;
  if (!plm_arguments_has(arguments, "max-length")) return PLM_OK;
  PLM_TRY(plm_arguments_u64(arguments, "max-length", 0, &number, error));
  if (number == 0 || number > UINT32_MAX)
    return plm_error_set(error, PLM_USAGE, "--max-length %llu is not a number of tokens", number);
  *tokens = (uint32_t)number;
  return PLM_OK;
}

plm_status plm_task_number(const struct plm_arguments *arguments, const char *name, double low,
                           bool low_included, double high, double *value, struct plm_error *error)
{
  const char *text = plm_arguments_get(arguments, name);
  if (text == NULL) return PLM_OK;
  char *end;
  const double number = strtod(text, &end);
  const bool inside = (low_included ? number >= low : number > low) && number <= high;
  if (end == text || *end != '\0' || !inside)
    return plm_error_set(error, PLM_USAGE, "--%s %.80s is not a number in %c%g, %g]", name, text,
                         low_included ? '[' : '(', low, high);
  *value = number;
  return PLM_OK;
}
