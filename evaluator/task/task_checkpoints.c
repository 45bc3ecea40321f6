/* Tasks over several checkpoints. */
#include "evaluator/task/task_checkpoints.h"

#include <string.h>

#include "common/base/text/json.h"
#include "common/metrics/metrics.h"

size_t plm_task_checkpoint_count(const struct plm_arguments *arguments)
{
  size_t count = 0;
  for (size_t i = 0; i < arguments->value_count; i++)
    count += strcmp(arguments->values[i].option->name, "checkpoint") == 0;
  return count;
}

plm_status plm_task_each_checkpoint(const struct plm_arguments *arguments, uint32_t batch_tokens,
                                    struct plm_ops *ops,
                                    plm_status (*each)(void *context, const char *checkpoint,
                                                       struct plm_inference *inference,
                                                       struct plm_error *error),
                                    void *context, struct plm_error *error)
{
  for (size_t i = 0; i < arguments->value_count; i++) {
    const char *checkpoint = arguments->values[i].value;
    struct plm_inference *inference;
    if (strcmp(arguments->values[i].option->name, "checkpoint") != 0) continue;
    PLM_TRY(plm_inference_open_trunk(checkpoint, plm_arguments_get(arguments, "weights"), ops,
                                     batch_tokens, &inference, NULL, error));
    const plm_status status = each(context, checkpoint, inference, error);
    plm_inference_close(inference);
    PLM_TRY(status);
  }
  return PLM_OK;
}

cJSON *plm_task_checkpoint_object(cJSON *line, size_t checkpoints, const char *checkpoint,
                                  const struct plm_inference *inference)
{
  cJSON *object = line;
  if (checkpoints > 1) {
    cJSON *array = cJSON_GetObjectItemCaseSensitive(line, "checkpoints");
    if (array == NULL) array = cJSON_AddArrayToObject(line, "checkpoints");
    object = cJSON_CreateObject();
    plm_json_append(array, object);
  }
  plm_metrics_string(object, "checkpoint", checkpoint);
  plm_metrics_string(object, "weights", inference->weights);
  return object;
}
