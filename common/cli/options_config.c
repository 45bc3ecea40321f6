/* Loads the configuration that command-line options select, as all four programs do first. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/cli/options.h"

static plm_status split_set(const char *text, struct plm_config_override *override,
                            struct plm_error *error)
{
  const char *equals = strchr(text, '=');
  if (equals == NULL || equals == text) {
    return plm_error_set(error, PLM_USAGE, "option \"--set\" needs KEY=VALUE, not \"%.80s\"", text);
  }
  override->key = plm_strndup(text, (size_t)(equals - text));
  override->value = equals + 1;
  return PLM_OK;
}

plm_status plm_arguments_overrides(const struct plm_arguments *arguments,
                                   struct plm_config_override **overrides, size_t *count,
                                   struct plm_error *error)
{
  plm_status status = PLM_OK;
  *count = 0;
  *overrides = plm_alloc_zeroed(arguments->value_count, sizeof **overrides);
  for (size_t i = 0; i < arguments->value_count && status == PLM_OK; i++) {
    const struct plm_option_value *value = &arguments->values[i];
    struct plm_config_override *next = &(*overrides)[*count];
    if (strcmp(value->option->name, "run") == 0) {
      *next = (struct plm_config_override){.key = plm_strdup("run"), .value = value->value};
    } else if (strcmp(value->option->name, "set") == 0) {
      status = split_set(value->value, next, error);
    } else {
      continue;
    }
    if (status == PLM_OK) (*count)++;
  }
  if (status != PLM_OK) {
    plm_arguments_overrides_free(*overrides, *count);
    *overrides = NULL;
    *count = 0;
  }
  return status;
}

void plm_arguments_overrides_free(struct plm_config_override *overrides, size_t count)
{
  for (size_t i = 0; overrides != NULL && i < count; i++) free((char *)overrides[i].key);
  free(overrides);
}

const char *plm_environment_config(void)
{
  const char *file = getenv("PLM_CONFIG");
  return file != NULL && file[0] != '\0' ? file : NULL;
}

plm_status plm_arguments_load_config(const struct plm_arguments *arguments, const char *file,
                                     bool required, struct plm_config *config,
                                     struct plm_error *error)
{
  struct plm_config_override *overrides;
  struct plm_config_problems *problems = NULL;
  size_t count;
  if (file == NULL) file = plm_arguments_get(arguments, "config");
  if (file == NULL) file = plm_environment_config();
  if (file == NULL) {
    file = "./pipeline.yaml";
    if (!required && !plm_file_exists(file)) file = NULL;
  }
  PLM_TRY(plm_arguments_overrides(arguments, &overrides, &count, error));
  const plm_status status = plm_config_load(file, overrides, count, config, &problems, error);
  if (problems != NULL) {
    plm_config_problems_print(problems);
    plm_error_set(error, status, "%s", "");
  }
  plm_config_problems_free(problems);
  plm_arguments_overrides_free(overrides, count);
  return status;
}

void plm_arguments_log(const struct plm_arguments *arguments, const char *program)
{
  enum plm_log_level level = PLM_LOG_INFO;
  if (plm_arguments_has(arguments, "quiet")) level = PLM_LOG_WARNING;
  if (plm_arguments_has(arguments, "verbose")) level = PLM_LOG_DEBUG;
  plm_log_init(program, level);
}
