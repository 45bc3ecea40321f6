/* Reads, checks and prints evaluator.tasks. */
#include "common/config/setting_tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/setting_sets.h"

const char *const plm_task_kind_names[] = {"probe", "assays", "contacts", NULL};
const char *const plm_task_label_names[] = {"auto", "regression", "classification", "residues",
                                            NULL};

#define AT(member) (ptrdiff_t) offsetof(struct plm_config_task, member)
#define TEXT(name, member)                                                       \
  {                                                                              \
    .key = (name), .type = PLM_SETTING_STRING, .offset = AT(member), .unit = "", \
    .flags = PLM_SETTING_NULLABLE                                                \
  }

static const struct plm_setting keys[] = {
    {.key = "name", .type = PLM_SETTING_STRING, .offset = AT(name), .unit = ""},
    {.key = "path", .type = PLM_SETTING_PATH, .offset = AT(path), .unit = ""},
    {.key = "kind",
     .type = PLM_SETTING_CHOICE,
     .offset = AT(kind),
     .unit = "",
     .choices = plm_task_kind_names},
    {.key = "every",
     .type = PLM_SETTING_U64,
     .offset = AT(every),
     .unit = "",
     .min = 1,
     .max = 1000000},
    {.key = "reference",
     .type = PLM_SETTING_PATH,
     .offset = AT(reference),
     .unit = "",
     .flags = PLM_SETTING_NULLABLE},
    {.key = "ids",
     .type = PLM_SETTING_NAMES,
     .offset = AT(ids),
     .unit = "",
     .count_offset = AT(id_count),
     .count_min = 1,
     .count_max = PLM_MAX_TASK_IDS},
    {.key = "max_variants",
     .type = PLM_SETTING_U64,
     .offset = AT(max_variants),
     .unit = "",
     .min = 1,
     .max = 0x1p40,
     .word = "null"},
    TEXT("target", target),
    TEXT("split", split),
    TEXT("sequence_column", column),
    {.key = "task",
     .type = PLM_SETTING_CHOICE,
     .offset = AT(labels),
     .unit = "",
     .choices = plm_task_label_names},
};
static const struct plm_config_task initial = {.every = 1};
static const struct plm_yaml_records records = {.setting = "evaluator.tasks",
                                                .one = "task",
                                                .many = "tasks",
                                                .form = "{name: NAME, kind: KIND, path: PATH}",
                                                .keys = keys,
                                                .key_count = sizeof keys / sizeof *keys,
                                                .required = 2,
                                                .distinct = true,
                                                .most = PLM_MAX_TASKS,
                                                .initial = &initial,
                                                .size = sizeof initial,
                                                .accepts = plm_config_set_name_accepts};

/* What a kind needs, and what belongs to another. NULL: nothing is wrong. */
static const char *find_mismatch(const struct plm_config_task *task)
{
  const bool assays = task->kind == PLM_TASK_ASSAYS;
  if (assays && task->reference == NULL)
    return "assays need the file that lists them, reference: FILE";
  if (!assays && (task->reference != NULL || task->id_count > 0 || task->max_variants > 0))
    return "reference, ids and max_variants belong to kind: assays";
  if (task->kind == PLM_TASK_PROBE)
    return task->target == NULL ? "a probe needs the column to predict, target: COLUMN" : NULL;
  return task->target != NULL || task->split != NULL || task->column != NULL || task->labels != 0
             ? "target, split, sequence_column and task belong to kind: probe"
             : NULL;
}

bool plm_config_tasks_read(struct plm_loader *loader, const struct plm_yaml_list *list)
{
  struct plm_config_evaluator *evaluator = &loader->config->evaluator;
  struct plm_place places[PLM_MAX_TASKS];
  plm_config_tasks_release(evaluator);
  bool good = plm_yaml_records_read(loader, &records, list, evaluator->tasks,
                                    &evaluator->task_count, places);
  for (uint32_t i = 0; i < evaluator->task_count; i++) {
    const struct plm_config_task *task = &evaluator->tasks[i];
    const char *mismatch = find_mismatch(task);
    if (mismatch != NULL)
      plm_problems_add(loader->problems, places[i], "evaluator.tasks: \"%s\": %s", task->name,
                       mismatch);
    good &= mismatch == NULL;
  }
  return good;
}

void plm_config_tasks_release(struct plm_config_evaluator *evaluator)
{
  for (uint32_t i = 0; i < evaluator->task_count; i++) {
    struct plm_config_task *task = &evaluator->tasks[i];
    free(task->name);
    free(task->path);
    free(task->reference);
    for (uint32_t k = 0; k < task->id_count; k++) free(task->ids[k]);
    free(task->target);
    free(task->split);
    free(task->column);
  }
  evaluator->task_count = 0;
}

static void put_text(struct plm_text *text, const char *key, const char *value)
{
  if (value == NULL) return;
  plm_text_printf(text, ", %s: ", key);
  plm_setting_put_string(text, value);
}

static void put_assays(struct plm_text *text, const struct plm_config_task *task)
{
  put_text(text, "reference", task->reference);
  for (uint32_t k = 0; k < task->id_count; k++) {
    plm_text_puts(text, k == 0 ? ", ids: [" : ", ");
    plm_setting_put_string(text, task->ids[k]);
  }
  if (task->id_count > 0) plm_text_puts(text, "]");
  if (task->max_variants > 0)
    plm_text_printf(text, ", max_variants: %llu", (unsigned long long)task->max_variants);
}

void plm_config_tasks_print(const struct plm_config_evaluator *evaluator, struct plm_text *text)
{
  plm_text_puts(text, "[");
  for (uint32_t i = 0; i < evaluator->task_count; i++) {
    const struct plm_config_task *task = &evaluator->tasks[i];
    plm_text_printf(text, "%s{name: \"%s\", kind: %s", i > 0 ? ", " : "", task->name,
                    plm_task_kind_names[task->kind]);
    put_text(text, "path", task->path);
    put_assays(text, task);
    put_text(text, "target", task->target);
    put_text(text, "split", task->split);
    put_text(text, "sequence_column", task->column);
    if (task->kind == PLM_TASK_PROBE)
      plm_text_printf(text, ", task: %s", plm_task_label_names[task->labels]);
    plm_text_printf(text, ", every: %llu}", (unsigned long long)task->every);
  }
  plm_text_puts(text, "]");
}
