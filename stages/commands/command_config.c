/* `plm-pipeline config`: the resolved configuration with each value's origin, or a description of
 * all keys (--manual for a terminal, --reference as the page doc/configuration.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"
#include "common/config/settings.h"
#include "stages/commands/command.h"

static void origin_text(const struct plm_config *config, size_t i, char text[PLM_PATH_SIZE])
{
  char variable[96];
  const struct plm_setting *setting = &plm_settings(NULL)[i];
  const struct plm_config_origin *origin = &config->origins[i];
  switch (origin->kind) {
  case PLM_ORIGIN_FILE:
    snprintf(text, PLM_PATH_SIZE, "%s:%u:%u",
             origin->file > 0 ? config->files[origin->file] : strrchr(config->path, '/') + 1,
             origin->line, origin->column);
    break;
  case PLM_ORIGIN_ENVIRONMENT:
    plm_setting_variable(setting->key, variable);
    snprintf(text, PLM_PATH_SIZE, "%s", variable);
    break;
  case PLM_ORIGIN_FLAG:
    snprintf(text, PLM_PATH_SIZE, "%s", strcmp(setting->key, "run") == 0 ? "--run" : "--set");
    break;
  case PLM_ORIGIN_PRESET:
    snprintf(text, PLM_PATH_SIZE, "model.preset %s", plm_preset_names[config->model_preset]);
    break;
  case PLM_ORIGIN_DEFAULT: snprintf(text, PLM_PATH_SIZE, "default"); break;
  }
}

/* plm_config_print writes one line for each key, in the table's order; each gets a comment. */
static void print_yaml(const struct plm_config *config)
{
  enum { COMMENT_COLUMN = 48 };
  char *yaml = plm_config_print(config), *rest = yaml, *line, origin[PLM_PATH_SIZE];
  size_t i = 0;
  while ((line = strsep(&rest, "\n")) != NULL && rest != NULL) {
    const size_t length = strlen(line);
    if (length == 0 || line[length - 1] == ':') { /* the heading of a section */
      plm_print(stdout, "%s\n", line);
      continue;
    }
    origin_text(config, i++, origin);
    plm_print(stdout, "%-*s # %s\n", COMMENT_COLUMN, line, origin);
  }
  free(yaml);
}

static void config_print_json(const struct plm_config *config)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  cJSON *object = cJSON_CreateObject();
  for (size_t i = 0; i < count; i++) {
    char origin[PLM_PATH_SIZE];
    char *value = plm_setting_print(&table[i], config);
    cJSON *entry = cJSON_AddObjectToObject(object, table[i].key);
    /* numbers, booleans, null and quoted strings are JSON already; plain words (also 8M) are not */
    cJSON *parsed = cJSON_ParseWithOpts(value, NULL, true);
    if (cJSON_IsNumber(parsed)) { /* digit by digit: a double cannot hold every seed */
      cJSON_Delete(parsed);
      parsed = cJSON_CreateRaw(value);
    }
    plm_json_put(entry, "value", parsed != NULL ? parsed : cJSON_CreateString(value));
    origin_text(config, i, origin);
    cJSON_AddStringToObject(entry, "origin", origin);
    free(value);
  }
  char *text = plm_json_text(object, true);
  cJSON_Delete(object);
  puts(text);
  free(text);
}

/* Every key with its type, unit, default, range, and what changing it means on resume. */
static void print_manual(void)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    char type[256], variable[96];
    plm_setting_describe(&table[i], type);
    const bool settable = plm_setting_variable(table[i].key, variable);
    printf("%s\n    ", table[i].key);
    plm_help_text(table[i].help, 4);
    printf("    %s%s%s; default %s", type, table[i].unit[0] != '\0' ? ", in " : "", table[i].unit,
           table[i].fallback);
    if (table[i].max > table[i].min) {
      char least[40], most[40];
      plm_setting_limit(&table[i], false, least);
      plm_setting_limit(&table[i], true, most);
      printf("; %s %s, %s %s", (table[i].flags & PLM_SETTING_ABOVE_MIN) != 0 ? "above" : "from",
             least, (table[i].flags & PLM_SETTING_BELOW_MAX) != 0 ? "below" : "to", most);
    }
    printf("\n    %s%son resume: %s\n", variable, settable ? "; " : "",
           plm_on_resume_name(table[i].resume));
  }
}

static void print_reference(void)
{
  struct plm_text text = {0};
  plm_settings_reference(&text);
  fputs(text.data, stdout);
  plm_text_deinit(&text);
}

static plm_status show_config(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config;
  const struct plm_arguments *arguments = context->arguments;
  PLM_TRY(plm_command_operands(context, 1, error));
  if (plm_arguments_has(arguments, "manual")) {
    print_manual();
    return PLM_OK;
  }
  if (plm_arguments_has(arguments, "reference")) {
    print_reference();
    return PLM_OK;
  }
  const char *file = arguments->positionals[0]; /* or NULL */
  PLM_TRY(plm_arguments_load_config(arguments, file, false, &config, error));
  if (context->json)
    config_print_json(&config);
  else
    print_yaml(&config);
  plm_config_deinit(&config);
  return PLM_OK;
}

static const struct plm_option options[] = {
    {.name = "manual",
     .help = "describe every key: meaning, type, default, range, effect on resume"},
    {.name = "reference", .help = "the same as a Markdown page: doc/configuration.md"},
    {0},
};

const struct plm_command plm_command_config = {
    .name = "config",
    .sets = true,
    .operands = "[FILE]",
    .summary = "show the resolved configuration and where each value comes from",
    .details = "A value comes from an option (--set, --run), a PLM_* environment variable, the "
               "file, a file that it includes, model.preset or the default; the first of these "
               "that gives one wins. The "
               "output is itself a valid configuration. --json prints an object that maps each key "
               "to {\"value\", \"origin\"}.",
    .options = options,
    .run = show_config,
};
