/* Prints and reads trainer.json. */
#include "trainer/checkpoint/trainer_state.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"
#include "common/metrics/metrics.h"
#include "common/ops/device.h"
#include "common/plan/batch_history.h"
#include "trainer/optimizer/schedule.h"

enum { STATE_FORMAT = 1, STATE_LIMIT = 1 << 26, STATE_VALUES = 1 << 20 };

/* The table of plain fields: name, member and kind. Checkpoints of earlier builds do not have those
 * of KIND_LATER and KIND_U32_LATER, which are then "" and 1. */
enum kind { KIND_U64, KIND_U32, KIND_BOOL, KIND_DOUBLE, KIND_TEXT, KIND_LATER, KIND_U32_LATER };
struct field {
  const char *section; /* NULL: top level */
  const char *name;
  enum kind kind;
  size_t offset, size;
};
#define FIELD(section, name, kind, member)                           \
  {                                                                  \
    section, name, kind, offsetof(struct plm_trainer_state, member), \
        sizeof(((struct plm_trainer_state *)0)->member)              \
  }
static const struct field fields[] = {
    FIELD(NULL, "step", KIND_U64, step),
    FIELD(NULL, "exact", KIND_BOOL, exact),
    FIELD("counters", "updates", KIND_U64, updates),
    FIELD("counters", "tokens", KIND_U64, tokens),
    FIELD("counters", "skipped_updates", KIND_U64, skipped_updates),
    FIELD("counters", "skipped_in_a_row", KIND_U32, skipped_in_a_row),
    FIELD("metrics", "trainer_jsonl_bytes", KIND_U64, metrics_bytes),
    FIELD("resolved", "device", KIND_TEXT, resolved.device),
    FIELD("resolved", "precision", KIND_TEXT, resolved.precision),
    FIELD("resolved", "isa", KIND_TEXT, resolved.isa),
    FIELD("resolved", "threads", KIND_U32, resolved.threads),
    FIELD("resolved", "ranks", KIND_U32, resolved.ranks),
    FIELD("resolved", "step_chunks", KIND_U32, resolved.step_chunks),
    FIELD("resolved", "micro_batch_chunks", KIND_U32, resolved.micro_chunks),
    FIELD("resolved", "shares", KIND_U32_LATER, resolved.shares),
    FIELD("resolved", "product_flops_per_second", KIND_DOUBLE, resolved.product_flops),
    FIELD("resolved", "processor", KIND_TEXT, resolved.processor),
    FIELD("resolved", "version", KIND_TEXT, resolved.version),
    FIELD("resolved", "level", KIND_LATER, resolved.level),
    FIELD("resolved", "build", KIND_LATER, resolved.build),
    FIELD("resolved", "products", KIND_LATER, resolved.products),
    FIELD("resolved", "bf16_products", KIND_LATER, resolved.bf16_products),
    FIELD("resolved", "kernels", KIND_LATER, resolved.kernels),
    FIELD("resolved", "fallback", KIND_LATER, resolved.fallback),
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

void plm_trainer_state_deinit(struct plm_trainer_state *state)
{
  plm_data_cursor_deinit(&state->cursor);
  cJSON_Delete(state->history);
  free(state->algorithms);
  *state = (struct plm_trainer_state){0};
}

static cJSON *section_of(cJSON *json, const char *name)
{
  if (name == NULL) return json;
  cJSON *section = cJSON_GetObjectItemCaseSensitive(json, name);
  return section != NULL ? section : cJSON_AddObjectToObject(json, name);
}

static void trainer_state_put(cJSON *json, const struct field *field,
                              const struct plm_trainer_state *state)
{
  const void *value = (const char *)state + field->offset;
  cJSON *section = section_of(json, field->section);
  switch (field->kind) {
  case KIND_U64: plm_metrics_integer(section, field->name, *(const uint64_t *)value); break;
  case KIND_U32_LATER:
  case KIND_U32: plm_metrics_integer(section, field->name, *(const uint32_t *)value); break;
  case KIND_BOOL: cJSON_AddBoolToObject(section, field->name, *(const bool *)value); break;
  case KIND_DOUBLE: plm_metrics_number(section, field->name, *(const double *)value); break;
  case KIND_TEXT:
  case KIND_LATER: cJSON_AddStringToObject(section, field->name, value); break;
  }
}

/* An array of strings, one for each line. */
static void put_algorithms(cJSON *json, const char *algorithms)
{
  if (algorithms == NULL) return;
  cJSON *lines = cJSON_AddArrayToObject(section_of(json, "resolved"), "algorithms");
  for (const char *line = algorithms; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    char *copy = plm_strndup(line, length);
    plm_json_append(lines, cJSON_CreateString(copy));
    free(copy);
    line += length + (line[length] == '\n');
  }
}

/* Older checkpoints name the field "plans". */
static plm_status get_algorithms(const cJSON *json, char **algorithms, struct plm_error *error)
{
  const cJSON *resolved = cJSON_GetObjectItemCaseSensitive(json, "resolved");
  const cJSON *lines = cJSON_GetObjectItemCaseSensitive(resolved, "algorithms");
  if (lines == NULL) lines = cJSON_GetObjectItemCaseSensitive(resolved, "plans");
  const cJSON *line;
  struct plm_text text = {0};
  if (lines == NULL) return PLM_OK;
  if (!cJSON_IsArray(lines))
    return plm_error_set(error, PLM_FORMAT, "trainer.json has no valid \"algorithms\"");
  cJSON_ArrayForEach(line, lines)
  {
    if (!cJSON_IsString(line)) {
      plm_text_deinit(&text);
      return plm_error_set(error, PLM_FORMAT, "trainer.json has no valid \"algorithms\"");
    }
    plm_text_printf(&text, "%s\n", line->valuestring);
  }
  *algorithms = text.data;
  return PLM_OK;
}

/* Only for readers of the file; a resume computes them again from the step. */
static void put_schedules(cJSON *json, const struct plm_config *config, uint64_t step)
{
  const uint64_t s = step == 0 ? 0 : step - 1;
  cJSON *schedules = cJSON_AddObjectToObject(json, "schedules");
  plm_metrics_number(
      schedules, "learning_rate_factor",
      plm_schedule_learning_rate(&config->trainer.schedule, config->trainer.steps, s));
  plm_metrics_number(schedules, "mask_rate", plm_schedule_mask_rate(&config->trainer.masking, s));
  plm_metrics_number(schedules, "momentum", plm_schedule_momentum(&config->trainer.optimizer, s));
  plm_metrics_integer(schedules, "window", plm_schedule_window(&config->model, s));
}

char *plm_trainer_state_print(const struct plm_trainer_state *state,
                              const struct plm_config *config, struct plm_hash run_id)
{
  char *yaml = plm_config_print(config), hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(run_id, hex);
  cJSON *json = cJSON_CreateObject();
  cJSON_AddNumberToObject(json, "format", STATE_FORMAT);
  cJSON_AddStringToObject(json, "run_id", hex);
  plm_metrics_integer(json, "seed", config->seed);
  for (size_t i = 0; i < FIELD_COUNT; i++) trainer_state_put(json, &fields[i], state);
  put_algorithms(json, state->algorithms);
  plm_json_put(json, "cursor", plm_data_cursor_to_json(&state->cursor));
  plm_metrics_number(json, "epoch", plm_data_cursor_epochs(&state->cursor)); /* for readers */
  put_schedules(json, config, state->step);
  plm_json_put(json, "history",
               state->history != NULL ? cJSON_Duplicate(state->history, 1) : cJSON_CreateArray());
  cJSON_AddStringToObject(json, "configuration", yaml);
  char *text = plm_json_bytes(json, true);
  cJSON_Delete(json);
  free(yaml);
  return text;
}

static bool get_integer(const cJSON *item, double limit, double *value)
{
  if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > limit) return false;
  *value = item->valuedouble;
  return *value == (double)(uint64_t)*value;
}

static bool trainer_state_get(const cJSON *json, const struct field *field,
                              struct plm_trainer_state *state)
{
  void *value = (char *)state + field->offset;
  const cJSON *section =
      field->section == NULL ? json : cJSON_GetObjectItemCaseSensitive(json, field->section);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(section, field->name);
  double number;
  switch (field->kind) {
  case KIND_U64:
    if (!get_integer(item, 0x1p53, &number)) return false;
    *(uint64_t *)value = (uint64_t)number;
    return true;
  case KIND_U32_LATER:
    *(uint32_t *)value = 1;
    if (item == NULL) return true;
    /* fall through */
  case KIND_U32:
    if (!get_integer(item, UINT32_MAX, &number)) return false;
    *(uint32_t *)value = (uint32_t)number;
    return true;
  case KIND_BOOL: *(bool *)value = cJSON_IsTrue(item); return cJSON_IsBool(item);
  case KIND_DOUBLE:
    if (!cJSON_IsNumber(item)) return false;
    *(double *)value = item->valuedouble;
    return true;
  case KIND_LATER:
    if (item == NULL) return true;
    /* fall through */
  case KIND_TEXT:
    return cJSON_IsString(item) &&
           snprintf(value, field->size, "%s", item->valuestring) < (int)field->size;
  }
  return false;
}

/* Earlier builds do not say how a CPU multiplied bf16 operands: they only had bf16 instructions. */
static void name_bf16_products(struct plm_resolved *resolved)
{
  if (resolved->bf16_products[0] == '\0' && plm_device_is_cpu(resolved->device) &&
      strcmp(resolved->precision, plm_precision_name(PLM_PRECISION_BF16)) == 0)
    snprintf(resolved->bf16_products, sizeof resolved->bf16_products, "%s",
             plm_bf16_products_names[PLM_BF16_NATIVE]);
}

static plm_status trainer_state_parse(const cJSON *json, struct plm_trainer_state *state,
                                      char **configuration, struct plm_error *error)
{
  const cJSON *format = cJSON_GetObjectItemCaseSensitive(json, "format");
  const cJSON *yaml = cJSON_GetObjectItemCaseSensitive(json, "configuration");
  const cJSON *history = cJSON_GetObjectItemCaseSensitive(json, "history");
  if (!cJSON_IsNumber(format) || format->valueint != STATE_FORMAT)
    return plm_error_set(error, PLM_FORMAT, "trainer.json is not of format %d", STATE_FORMAT);
  for (size_t i = 0; i < FIELD_COUNT; i++)
    if (!trainer_state_get(json, &fields[i], state))
      return plm_error_set(error, PLM_FORMAT, "trainer.json has no valid \"%s\"", fields[i].name);
  name_bf16_products(&state->resolved);
  if (!cJSON_IsString(yaml) || !cJSON_IsArray(history))
    return plm_error_set(error, PLM_FORMAT, "trainer.json has no configuration or no history");
  PLM_TRY(get_algorithms(json, &state->algorithms, error));
  PLM_TRY(plm_data_cursor_from_json(&state->cursor,
                                    cJSON_GetObjectItemCaseSensitive(json, "cursor"), error));
  state->history = cJSON_Duplicate(history, 1);
  *configuration = plm_strdup(yaml->valuestring);
  return PLM_OK;
}

plm_status plm_trainer_state_parse(const char *text, size_t size, struct plm_trainer_state *state,
                                   char **configuration, struct plm_error *error)
{
  cJSON *json = plm_json_bounded(text, size, STATE_VALUES);
  if (json == NULL && plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for trainer.json");
  const plm_status status = trainer_state_parse(json, state, configuration, error);
  cJSON_Delete(json);
  return status;
}

plm_status plm_trainer_state_read(const char *directory, struct plm_trainer_state *state,
                                  char **configuration, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, "trainer.json", error));
  PLM_TRY(plm_file_read(path, STATE_LIMIT, &text, &size, error));
  const plm_status status = plm_trainer_state_parse(text, size, state, configuration, error);
  free(text);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  return status;
}

/* Appends an entry to the history. */
static cJSON *add_entry(struct plm_trainer_state *state, uint64_t step)
{
  if (state->history == NULL) state->history = cJSON_CreateArray();
  cJSON *entry = cJSON_CreateObject();
  cJSON_AddItemToArray(state->history, entry);
  cJSON_AddNumberToObject(entry, "step", (double)step); /* it is read in this process, too */
  return entry;
}

void plm_trainer_state_remember(struct plm_trainer_state *state, const char *changes,
                                uint32_t before, uint32_t now)
{
  cJSON *entry = add_entry(state, state->step);
  cJSON *lines = cJSON_AddArrayToObject(entry, "changes");
  for (const char *line = changes; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    char copy[512];
    snprintf(copy, sizeof copy, "%.*s", (int)length, line);
    plm_json_append(lines, cJSON_CreateString(copy));
    line += length + (line[length] == '\n');
  }
  if (before == now) return;
  cJSON *chunks = cJSON_AddObjectToObject(entry, PLM_HISTORY_CHUNKS);
  cJSON_AddNumberToObject(chunks, "before", before);
  cJSON_AddNumberToObject(chunks, "now", now);
}

void plm_trainer_state_remember_failure(struct plm_trainer_state *state, uint64_t step,
                                        const char *why)
{
  cJSON_AddStringToObject(add_entry(state, step), "failed", why);
}

/* Virtual machines may hide the model name, so the numbers behind it are added. The keys are those
 * of x86-64 and aarch64; only the first processor's are read. */
void plm_processor_name(char name[128])
{
  static const char *const keys[] = {"model name", "cpu family",      "model",      "stepping",
                                     "CPU part",   "CPU implementer", "CPU variant"};
  enum { KEYS = sizeof keys / sizeof *keys };
  struct utsname machine;
  char line[512];
  size_t length = 0;
  snprintf(name, 128, "%s", uname(&machine) == 0 ? machine.machine : "unknown");
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL && line[0] != '\n') {
    char *colon = strchr(line, ':');
    if (colon == NULL) continue;
    const size_t key = strcspn(line, "\t:");
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t i = 0; i < KEYS && length < 127; i++)
      if (strlen(keys[i]) == key && strncmp(line, keys[i], key) == 0) {
        const int put = snprintf(name + length, 128 - length, "%s%.*s", length == 0 ? "" : ", ",
                                 (int)strcspn(value, "\n"), value);
        length += put > 0 ? (size_t)put : 0;
      }
  }
  fclose(file);
}
