/* Options that several tasks have. */
#include "evaluator/task/task.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/ops/device.h"

static plm_status parse_device(const struct plm_arguments *arguments, enum plm_device *device,
                               struct plm_error *error)
{
  const char *name = plm_arguments_get(arguments, "device");
  if (name == NULL) return PLM_OK;
  const int found = plm_text_find(plm_device_names, name);
  if (found >= 0) {
    *device = (enum plm_device)found;
    return PLM_OK;
  }
  return plm_error_set(error, PLM_USAGE, "--device must be auto, cpu or cuda, not \"%.80s\"", name);
}

static plm_status parse_precision(const struct plm_arguments *arguments,
                                  enum plm_precision *precision, struct plm_error *error)
{
  const char *name = plm_arguments_get(arguments, "precision");
  *precision = PLM_PRECISION_FP32;
  for (int i = PLM_PRECISION_FP32; name != NULL && plm_precision_names[i] != NULL; i++) {
    *precision = (enum plm_precision)i;
    if (strcmp(name, plm_precision_names[i]) == 0) return PLM_OK;
  }
  if (name == NULL) return PLM_OK;
  return plm_error_set(error, PLM_USAGE, "--precision must be fp32, bf16 or int8, not \"%.80s\"",
                       name);
}

/* Warns if int8 gains no time on this processor. */
static void say_gain(void)
{
  bool faster;
  const char *gain = plm_ops_cpu_int8_gain(&faster);
  if (faster)
    plm_info("%s", gain);
  else
    plm_warning("%s", gain);
}

plm_status plm_task_open_ops(const struct plm_arguments *arguments, struct plm_ops_request request,
                             struct plm_ops **ops, struct plm_error *error)
{
  unsigned long long threads;
  PLM_TRY(parse_device(arguments, &request.device, error));
  PLM_TRY(plm_arguments_u64(arguments, "threads", request.threads, &threads, error));
  PLM_TRY(parse_precision(arguments, &request.precision, error));
  request.threads = (uint32_t)threads;
  PLM_TRY(plm_ops_open(&request, ops, error));
  if ((*ops)->int8) say_gain();
  return PLM_OK;
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
