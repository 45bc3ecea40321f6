/* Writes the messages of TensorBoard's plugin "hparams".
 *
 * Sources: tensorboard/plugins/hparams/plugin_data.proto (HParamsPluginData: 1 version,
 * 2 experiment, 3 session_start_info, 4 session_end_info; SessionStartInfo: 1 hparams, a map to
 * Value, 5 start_time_secs; SessionEndInfo: 1 status, 2 end_time_secs), api.proto (Experiment:
 * 4 hparam_infos, 5 metric_infos; HParamInfo: 1 name, 4 type; MetricInfo: 1 name, 3 display_name,
 * 5 dataset_type; MetricName: 2 tag), summary.proto (SummaryMetadata: 1 plugin_data, 4 data_class;
 * PluginData: 1 plugin_name, 2 content), google/protobuf/struct.proto (Value: 2 number, 3 string,
 * 4 bool), tensor.proto (TensorProto: 1 dtype, 2 shape; shape: 2 dim; dim: 1 size).
 */
#include "evaluator/watch/hparams.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/settings.h"
#include "common/metrics/event_record.h"

enum {
  MESSAGE_BYTES = 1 << 16,
  SMALL_BYTES = 1024,
  VALUE_BYTES = 512, /* of a text; the rest is cut off */
  TYPE_STRING = 1,
  TYPE_BOOL = 2,
  TYPE_NUMBER = 3,
  STATUS_SUCCESS = 1,
  DATASET_VALIDATION = 2,
  CLASS_TENSOR = 2,
  FLOAT = 1,
};

/* The settings that describe an experiment; a section ends with a dot. */
static const char *const shown[] = {
    "seed",
    "corpus",
    "data.max_length",
    "data.sampling",
    "model.",
    "trainer.steps",
    "trainer.batch_tokens",
    "trainer.objective",
    "trainer.precision",
    "trainer.masking.",
    "trainer.loss.",
    "trainer.optimizer.",
    "trainer.schedule.",
    "trainer.clip.",
    "trainer.ema",
    "trainer.init_from",
    "trainer.freeze.",
    "trainer.lora.",
};

static bool is_shown(const struct plm_setting *setting)
{
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
    const size_t length = strlen(shown[i]);
    if (shown[i][length - 1] == '.' ? strncmp(setting->key, shown[i], length) == 0
                                    : strcmp(setting->key, shown[i]) == 0)
      return true;
  }
  return false;
}

/* The same for all values of a setting: one that may be a word instead of a number is a text. */
static unsigned type_of(const struct plm_setting *setting)
{
  switch (setting->type) {
  case PLM_SETTING_BOOL: return TYPE_BOOL;
  case PLM_SETTING_U32:
  case PLM_SETTING_U64: return setting->word == NULL ? TYPE_NUMBER : TYPE_STRING;
  case PLM_SETTING_DOUBLE: return TYPE_NUMBER;
  default: return TYPE_STRING;
  }
}

/* One entry of the map: the key and its Value. */
static void put_setting(struct plm_message *start, const struct plm_setting *setting,
                        const struct plm_config *config)
{
  uint8_t of_value[SMALL_BYTES], of_entry[SMALL_BYTES];
  struct plm_message value = {.bytes = of_value, .capacity = sizeof of_value},
                     entry = {.bytes = of_entry, .capacity = sizeof of_entry};
  char *text = plm_setting_print(setting, config);
  const size_t length = strlen(text);
  const bool quoted = length >= 2 && text[0] == '"' && text[length - 1] == '"';
  switch (type_of(setting)) {
  case TYPE_BOOL: plm_message_integer(&value, 4, strcmp(text, "true") == 0); break;
  case TYPE_NUMBER: plm_message_double(&value, 2, strtod(text, NULL)); break;
  default: {
    size_t size = 0; /* whole characters; bytes that are not UTF-8 end the text */
    const char *begin = text + quoted;
    const size_t most = length - 2 * (size_t)quoted;
    for (size_t next;
         size < most &&
         (next = plm_utf8_length((const unsigned char *)begin + size, most - size)) > 0 &&
         size + next <= VALUE_BYTES;)
      size += next;
    plm_message_bytes(&value, 3, begin, size);
  }
  }
  free(text);
  plm_message_string(&entry, 1, setting->key);
  plm_message_nested(&entry, 2, &value);
  plm_message_nested(start, 1, &entry);
}

static void put_start(struct plm_message *start, const struct plm_config *config)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++)
    if (is_shown(&table[i])) put_setting(start, &table[i], config);
  plm_message_double(start, 5, plm_clock_wall_s());
}

static void put_metric(struct plm_message *experiment, const char *subject, const char *metric)
{
  uint8_t of_name[SMALL_BYTES], of_info[SMALL_BYTES];
  char text[256];
  struct plm_message name = {.bytes = of_name, .capacity = sizeof of_name},
                     info = {.bytes = of_info, .capacity = sizeof of_info};
  snprintf(text, sizeof text, "%s/%s", subject, metric);
  plm_message_string(&name, 2, text);
  plm_message_nested(&info, 1, &name);
  snprintf(text, sizeof text, "%s %s", subject, metric);
  plm_message_string(&info, 3, text);
  plm_message_integer(&info, 5, DATASET_VALIDATION);
  plm_message_nested(experiment, 5, &info);
}

static void put_experiment(struct plm_message *experiment, const struct plm_hparams *hparams)
{
  static const char *const metrics[] = {"loss", "accuracy", "perplexity"};
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    uint8_t bytes[SMALL_BYTES];
    struct plm_message info = {.bytes = bytes, .capacity = SMALL_BYTES};
    if (!is_shown(&table[i])) continue;
    plm_message_string(&info, 1, table[i].key);
    plm_message_integer(&info, 4, type_of(&table[i]));
    plm_message_nested(experiment, 4, &info);
  }
  for (size_t i = 0; i < hparams->subject_count; i++)
    for (size_t j = 0; j < sizeof metrics / sizeof *metrics; j++)
      put_metric(experiment, hparams->subjects[i], metrics[j]);
}

static void append_event(struct plm_text *file, const struct plm_message *event)
{
  uint8_t *record = plm_alloc(event->size + PLM_RECORD_FRAME);
  uint32_t table[256];
  plm_record_table(table);
  plm_record_put(record, table, event->bytes, event->size);
  plm_text_append(file, record, event->size + PLM_RECORD_FRAME);
  free(record);
}

/* Appends a record with one event: a value with the tag, no numbers, and `data` as field `field` of
 * HParamsPluginData. */
static plm_status put_record(struct plm_text *file, const char *tag, unsigned field,
                             const struct plm_message *data, struct plm_error *error)
{
  static const uint8_t no_numbers[] = {1 << 3, FLOAT, 2 << 3 | 2, 4, 2 << 3 | 2, 2, 1 << 3, 0};
  enum { LAYERS = 6 };
  uint8_t *memory = plm_alloc((size_t)LAYERS * MESSAGE_BYTES);
  struct plm_message layers[LAYERS];
  for (size_t i = 0; i < LAYERS; i++)
    layers[i] =
        (struct plm_message){.bytes = memory + i * MESSAGE_BYTES, .capacity = MESSAGE_BYTES};
  struct plm_message *content = &layers[0], *plugin = &layers[1], *metadata = &layers[2],
                     *value = &layers[3], *summary = &layers[4], *event = &layers[5];
  plm_message_nested(content, field, data); /* the version is 0, which is not written */
  plm_message_string(plugin, 1, "hparams");
  plm_message_nested(plugin, 2, content);
  plm_message_nested(metadata, 1, plugin);
  plm_message_integer(metadata, 4, CLASS_TENSOR);
  plm_message_string(value, 1, tag);
  plm_message_bytes(value, 8, no_numbers, sizeof no_numbers);
  plm_message_nested(value, 9, metadata);
  plm_message_nested(summary, 1, value);
  plm_event_begin(event, 0);
  plm_message_nested(event, 5, summary);
  plm_status status = PLM_OK;
  if (event->full)
    status = plm_error_set(error, PLM_LIMIT,
                           "the settings are too long for TensorBoard: more than "
                           "%d bytes",
                           MESSAGE_BYTES);
  else
    append_event(file, event);
  free(memory);
  return status;
}

static void put_version(struct plm_text *file)
{
  uint8_t bytes[SMALL_BYTES];
  struct plm_message event = {.bytes = bytes, .capacity = SMALL_BYTES};
  plm_event_version(&event);
  append_event(file, &event);
}

plm_status plm_hparams_write(const char *directory, const struct plm_hparams *hparams,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_text file = {0};
  uint8_t *bytes = plm_alloc(2 * (size_t)MESSAGE_BYTES);
  struct plm_message experiment = {.bytes = bytes, .capacity = MESSAGE_BYTES},
                     start = {.bytes = bytes + MESSAGE_BYTES, .capacity = MESSAGE_BYTES};
  put_version(&file);
  put_experiment(&experiment, hparams);
  put_start(&start, hparams->config);
  plm_status status = put_record(&file, "_hparams_/experiment", 2, &experiment, error);
  if (status == PLM_OK)
    status = put_record(&file, "_hparams_/session_start_info", 3, &start, error);
  if (status == PLM_OK) status = plm_path_join(path, directory, PLM_HPARAMS_FILE, error);
  if (status == PLM_OK) status = plm_file_replace(path, file.data, file.length, 0644, error);
  plm_text_deinit(&file);
  free(bytes);
  return status;
}

plm_status plm_hparams_end(const char *directory, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  uint8_t bytes[SMALL_BYTES];
  struct plm_text file = {0};
  struct plm_message end = {.bytes = bytes, .capacity = SMALL_BYTES};
  plm_message_integer(&end, 1, STATUS_SUCCESS);
  plm_message_double(&end, 2, plm_clock_wall_s());
  PLM_TRY(plm_path_join(path, directory, PLM_HPARAMS_FILE, error));
  plm_status status = put_record(&file, "_hparams_/session_end_info", 4, &end, error);
  PLM_ASSERT(status == PLM_OK); /* it is short */
  const int descriptor = plm_descriptors_open(path, O_WRONLY | O_APPEND, 0);
  if (descriptor < 0)
    status = plm_error_errno(error, "cannot open %s", path);
  else
    status = plm_file_write_all(descriptor, file.data, file.length, path, error);
  if (descriptor >= 0) close(descriptor);
  plm_text_deinit(&file);
  return status;
}
