/* The value of evaluator.sets, read and checked. */
#include "common/config/setting_sets.h"

#include <stdio.h>
#include <string.h>

#include "common/config/config_corpora.h"
#include "common/metrics/metrics.h"

#define AT(member) (ptrdiff_t) offsetof(struct plm_config_set, member)

static const struct plm_setting keys[] = {
    {.key = "name", .type = PLM_SETTING_STRING, .offset = AT(name), .unit = ""},
    {.key = "corpus", .type = PLM_SETTING_PATH, .offset = AT(corpus), .unit = ""},
    {.key = "split",
     .type = PLM_SETTING_CHOICE,
     .offset = AT(split),
     .unit = "",
     .choices = plm_split_names},
};
static const struct plm_config_set initial = {.split = PLM_SPLIT_VALID};
static const struct plm_yaml_records records = {.setting = "evaluator.sets",
                                                .one = "set",
                                                .many = "sets",
                                                .form = "{name: NAME, corpus: DIR, split: SPLIT}",
                                                .keys = keys,
                                                .key_count = sizeof keys / sizeof *keys,
                                                .required = 2,
                                                .distinct = true,
                                                .most = PLM_MAX_SETS,
                                                .initial = &initial,
                                                .size = sizeof initial,
                                                .accepts = plm_config_set_name_accepts};

bool plm_config_set_name_accepts(const struct plm_setting *key, const char *text, char message[512])
{
  if (strcmp(key->key, "name") != 0) return true;
  if (!plm_config_is_set_name(text)) {
    snprintf(message, 512,
             "expected 1 to %d letters, digits, dots, hyphens and underscores, found \"%.80s\"",
             PLM_SET_NAME_MOST, text);
    return false;
  }
  if (strcmp(text, PLM_OWN_SET) != 0) return true;
  snprintf(message, 512, "\"%s\" stands for the run's own corpus; choose another name", text);
  return false;
}

bool plm_config_sets_read(struct plm_loader *loader, const struct plm_yaml_list *list)
{
  struct plm_config_evaluator *evaluator = &loader->config->evaluator;
  plm_config_sets_release(evaluator);
  return plm_yaml_records_read(loader, &records, list, evaluator->sets, &evaluator->set_count,
                               NULL);
}
