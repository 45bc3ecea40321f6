/* The value of a row as YAML. */
#include "common/base/text/text.h"
#include "common/config/config_corpora.h"
#include "common/config/setting_tasks.h"
#include "common/config/settings.h"

static const void *setting_print_field(const struct plm_setting *setting,
                                       const struct plm_config *config)
{
  return (const char *)config + setting->offset;
}

static void print_choices(const struct plm_setting *setting, uint32_t bits, struct plm_text *text)
{
  const char *before = "[";
  for (uint32_t i = 0; setting->choices[i] != NULL; i++) {
    if ((bits >> i & 1) == 0) continue;
    plm_text_puts(text, before);
    plm_text_puts(text, setting->choices[i]);
    before = ", ";
  }
  plm_text_puts(text, bits == 0 ? "[]" : "]");
}

static void print_list(const struct plm_setting *setting, const struct plm_config *config,
                       struct plm_text *text)
{
  const void *values = setting_print_field(setting, config);
  if (setting->type == PLM_SETTING_CHOICES) {
    print_choices(setting, *(const uint32_t *)values, text);
    return;
  }
  const uint32_t count = setting->count_offset == PLM_NO_OFFSET
                             ? setting->count_max
                             : *(const uint32_t *)((const char *)config + setting->count_offset);
  plm_text_puts(text, "[");
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) plm_text_puts(text, ", ");
    if (setting->type == PLM_SETTING_DOUBLES) {
      plm_setting_print_number(text, ((const double *)values)[i]);
    } else if (setting->type == PLM_SETTING_PATTERN) {
      char name[64];
      plm_attention_kind_name(((const uint8_t *)values)[i], name);
      plm_text_puts(text, name);
    } else if (setting->type == PLM_SETTING_HOSTS || setting->type == PLM_SETTING_NAMES) {
      plm_setting_put_string(text, ((char *const *)values)[i]);
    } else {
      plm_text_puts(text, ((char *const *)values)[i]);
    }
  }
  plm_text_puts(text, "]");
}

static void print_steps(struct plm_step_range steps, struct plm_text *text)
{
  if (steps.last == 0)
    plm_text_puts(text, "null");
  else
    plm_text_printf(text, "%llu-%llu", (unsigned long long)steps.first,
                    (unsigned long long)steps.last);
}

char *plm_setting_print(const struct plm_setting *setting, const struct plm_config *config)
{
  const void *value = setting_print_field(setting, config);
  struct plm_text text = {0};
  uint64_t whole = 0;
  switch (setting->type) {
  case PLM_SETTING_BOOL: plm_text_puts(&text, *(const bool *)value ? "true" : "false"); break;
  case PLM_SETTING_U32:
  case PLM_SETTING_U64:
    whole = setting->type == PLM_SETTING_U32 ? *(const uint32_t *)value : *(const uint64_t *)value;
    if (whole == 0 && setting->word != NULL)
      plm_text_puts(&text, setting->word);
    else
      plm_text_printf(&text, "%llu", (unsigned long long)whole);
    break;
  case PLM_SETTING_DOUBLE: plm_setting_print_number(&text, *(const double *)value); break;
  case PLM_SETTING_CHOICE: plm_text_puts(&text, setting->choices[*(const int *)value]); break;
  case PLM_SETTING_CORPUS:
    if (config->source_count > 0)
      plm_sources_print(config, &text);
    else
      plm_setting_put_string(&text, config->corpus);
    break;
  case PLM_SETTING_STRING:
  case PLM_SETTING_PATH:
  case PLM_SETTING_ADDRESS:
  case PLM_SETTING_ENDPOINT: plm_setting_put_string(&text, *(char *const *)value); break;
  case PLM_SETTING_STEPS: print_steps(*(const struct plm_step_range *)value, &text); break;
  case PLM_SETTING_SETS: plm_config_sets_print(&config->evaluator, &text); break;
  case PLM_SETTING_TASKS: plm_config_tasks_print(&config->evaluator, &text); break;
  default: print_list(setting, config, &text); break;
  }
  return text.data;
}
