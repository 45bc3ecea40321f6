/* Reads settings, config.json, FASTA, lines of `trace` and safetensors. */
#include "tests/integration/oracle/oracle.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void oracle_die(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  fputs("oracle: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(2);
}

void *oracle_memory(size_t count, size_t size)
{
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) oracle_die("no memory");
  return memory;
}

static char *read_all(const char *path, size_t *size)
{
  FILE *file = fopen(path, "rb");
  if (file == NULL) oracle_die("cannot open %s", path);
  if (fseek(file, 0, SEEK_END) != 0) oracle_die("cannot read %s", path);
  const long length = ftell(file);
  if (length < 0) oracle_die("cannot read %s", path);
  rewind(file);
  char *text = oracle_memory((size_t)length + 1, 1);
  if (fread(text, 1, (size_t)length, file) != (size_t)length) oracle_die("cannot read %s", path);
  fclose(file);
  *size = (size_t)length;
  return text;
}

static const cJSON *member(const cJSON *object, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  if (item == NULL) oracle_die("\"%s\" is missing", name);
  return item;
}

/* ---- settings ------------------------------------------------------------------------------- */

static const cJSON *setting(const struct oracle *o, const char *key)
{
  return member(member(o->settings, key), "value");
}

double oracle_number(const struct oracle *o, const char *key)
{
  const cJSON *item = setting(o, key);
  if (!cJSON_IsNumber(item)) oracle_die("%s is not a number", key);
  return item->valuedouble;
}

/* Index of a setting's value among names, which end with NULL. */
static unsigned choice(const struct oracle *o, const char *key, const char *const *names)
{
  const cJSON *item = setting(o, key);
  if (!cJSON_IsString(item)) oracle_die("%s is not a name", key);
  for (unsigned i = 0; names[i] != NULL; i++)
    if (strcmp(item->valuestring, names[i]) == 0) return i;
  oracle_die("%s is %s, which is not known here", key, item->valuestring);
}

/* In the order of the enumerations in common/config/config.h. */
static const char *const objectives[] = {"mlm", "masked_diffusion", "causal", NULL},
                         *const scopes[] = {"chunk", "batch", NULL},
                         *const optimizers[] = {"muon", "adamw", NULL},
                         *const scales[] = {"match_adamw", "spectral", NULL},
                         *const shapes[] = {"wsd", "linear", "cosine", NULL};

static void read_masking(const struct oracle *o, struct plm_config_masking *masking)
{
  masking->mask_rate = oracle_number(o, "trainer.masking.mask_rate");
  masking->starting_mask_rate = oracle_number(o, "trainer.masking.starting_mask_rate");
  masking->mask_rate_steps = (uint64_t)oracle_number(o, "trainer.masking.mask_rate_steps");
  masking->rate_scope = choice(o, "trainer.masking.rate_scope", scopes);
  masking->random_fraction = oracle_number(o, "trainer.masking.random_fraction");
  masking->keep_fraction = oracle_number(o, "trainer.masking.keep_fraction");
  masking->mlm_warmup_steps = (uint64_t)oracle_number(o, "trainer.masking.mlm_warmup_steps");
}

static void read_optimizer(const struct oracle *o, struct plm_config_optimizer *optimizer)
{
  const cJSON *betas = setting(o, "trainer.optimizer.betas");
  optimizer->name = choice(o, "trainer.optimizer.name", optimizers);
  optimizer->lr_hidden = oracle_number(o, "trainer.optimizer.lr_hidden");
  optimizer->lr_embed = oracle_number(o, "trainer.optimizer.lr_embed");
  optimizer->lr_head = oracle_number(o, "trainer.optimizer.lr_head");
  optimizer->lr_scalar = oracle_number(o, "trainer.optimizer.lr_scalar");
  optimizer->momentum = oracle_number(o, "trainer.optimizer.momentum");
  optimizer->momentum_warmup_steps =
      (uint64_t)oracle_number(o, "trainer.optimizer.momentum_warmup_steps");
  optimizer->scale = choice(o, "trainer.optimizer.scale", scales);
  optimizer->weight_decay = oracle_number(o, "trainer.optimizer.weight_decay");
  for (int i = 0; i < 2; i++) optimizer->betas[i] = cJSON_GetArrayItem(betas, i)->valuedouble;
}

static void read_schedule(const struct oracle *o, struct plm_config_schedule *schedule)
{
  schedule->name = choice(o, "trainer.schedule.name", shapes);
  schedule->warmup_steps = (uint64_t)oracle_number(o, "trainer.schedule.warmup_steps");
  schedule->cooldown_steps = (uint64_t)oracle_number(o, "trainer.schedule.cooldown_steps");
  schedule->min_lr_fraction = oracle_number(o, "trainer.schedule.min_lr_fraction");
}

void oracle_read_settings(struct oracle *o, const char *path)
{
  size_t size;
  char *text = read_all(path, &size);
  o->settings = cJSON_Parse(text);
  if (o->settings == NULL) oracle_die("%s is not JSON", path);
  free(text);
  struct plm_config_trainer *trainer = &o->config.trainer;
  o->config.seed = (uint64_t)oracle_number(o, "seed");
  trainer->steps = (uint64_t)oracle_number(o, "trainer.steps");
  trainer->objective = choice(o, "trainer.objective", objectives);
  trainer->clip_norm = oracle_number(o, "trainer.clip.norm");
  trainer->ema = oracle_number(o, "trainer.ema");
  read_masking(o, &trainer->masking);
  read_optimizer(o, &trainer->optimizer);
  read_schedule(o, &trainer->schedule);
  o->rules.config = &o->config;
}

/* ---- config.json ---------------------------------------------------------------------------- */

static uint32_t whole(const cJSON *object, const char *name)
{
  return (uint32_t)member(object, name)->valuedouble;
}

static uint8_t attention_kinds(const char *entry)
{
  unsigned kinds = PLM_ATTENTION_DOCUMENT; /* always included */
  if (strstr(entry, "causal") != NULL) kinds |= PLM_ATTENTION_CAUSAL;
  if (strstr(entry, "local") != NULL) kinds |= PLM_ATTENTION_LOCAL;
  if (strstr(entry, "block") != NULL) kinds |= PLM_ATTENTION_BLOCK;
  return (uint8_t)kinds;
}

void oracle_read_model(struct oracle *o)
{
  char path[4096];
  size_t size;
  snprintf(path, sizeof path, "%s/checkpoints/step_00000000/config.json", o->run);
  char *text = read_all(path, &size);
  cJSON *json = cJSON_Parse(text);
  if (json == NULL) oracle_die("%s is not JSON", path);
  free(text);
  struct plm_model_config *model = &o->config.model;
  const char *architecture = member(json, "architecture")->valuestring;
  model->architecture = strcmp(architecture, "transformer") == 0 ? PLM_TRANSFORMER
                        : strcmp(architecture, "unet") == 0      ? PLM_UNET
                                                                 : PLM_PATCH_UNET;
  model->hidden_size = whole(json, "hidden_size");
  model->num_attention_heads = whole(json, "num_attention_heads");
  model->num_hidden_layers = whole(json, "num_hidden_layers");
  model->num_unet_layers = whole(json, "num_unet_layers");
  model->num_extra_layers = whole(json, "num_extra_layers");
  model->expansion_ratio = member(json, "expansion_ratio")->valuedouble;
  model->soft_logit_cap = member(json, "soft_logit_cap")->valuedouble;
  model->tie_embeddings = cJSON_IsTrue(member(json, "tie_embeddings"));
  model->token_dropout = cJSON_IsTrue(member(json, "token_dropout"));
  model->max_length = whole(json, "max_length");
  model->vocab_size = whole(json, "vocab_size");
  const cJSON *attention = member(json, "attention"), *window = member(attention, "window"), *entry;
  cJSON_ArrayForEach(entry, member(attention, "pattern")) model->pattern[model->pattern_count++] =
      attention_kinds(entry->valuestring);
  model->window_start = whole(window, "start");
  model->window_end = whole(window, "end");
  model->window_steps = whole(window, "steps");
  model->block = whole(attention, "block");
  cJSON_Delete(json);
}

/* ---- sequences and trace -------------------------------------------------------------------- */

void oracle_read_sequences(struct oracle *o, const char *fasta)
{
  size_t size, length = 0;
  char *text = read_all(fasta, &size), *residues = oracle_memory(size + 1, 1);
  o->sequences = oracle_memory(size, sizeof *o->sequences);
  for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (*line == '>') {
      length += o->sequence_count > 0; /* past the end of the previous sequence */
      o->sequences[o->sequence_count++] = (struct oracle_sequence){
          strndup(line + 1, strcspn(line + 1, " \t\r")), residues + length};
      continue;
    }
    for (; *line != '\0'; line++)
      if (isalpha((unsigned char)*line)) residues[length++] = (char)toupper((unsigned char)*line);
  }
  free(text);
  if (o->sequence_count == 0) oracle_die("%s has no sequence", fasta);
}

struct cJSON **oracle_read_lines(const char *path, size_t *count)
{
  size_t size;
  char *text = read_all(path, &size);
  cJSON **lines = oracle_memory(size, sizeof *lines);
  *count = 0;
  for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (*line == '\0') continue;
    if ((lines[*count] = cJSON_Parse(line)) == NULL) oracle_die("%s: not JSON: %s", path, line);
    ++*count;
  }
  free(text);
  return lines;
}

void oracle_read_trace(struct oracle *o, const char *path)
{
  o->trace = oracle_read_lines(path, &o->trace_count);
}

/* ---- safetensors ---------------------------------------------------------------------------- */

static float *read_tensor(const cJSON *header, const struct oracle_parameter *parameter,
                          const char *data, size_t size)
{
  const cJSON *entry = member(header, parameter->name), *shape = member(entry, "shape");
  const cJSON *offsets = member(entry, "data_offsets");
  const int rank = cJSON_GetArraySize(shape);
  if (strcmp(member(entry, "dtype")->valuestring, "F32") != 0)
    oracle_die("%s is not F32", parameter->name);
  if (rank != (parameter->vector ? 1 : 2) ||
      (int64_t)cJSON_GetArrayItem(shape, rank - 1)->valuedouble != parameter->cols ||
      (rank == 2 && (int64_t)cJSON_GetArrayItem(shape, 0)->valuedouble != parameter->rows))
    oracle_die("%s has another shape than (%lld, %lld)", parameter->name,
               (long long)parameter->rows, (long long)parameter->cols);
  const size_t begin = (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
  const size_t end = (size_t)cJSON_GetArrayItem(offsets, 1)->valuedouble;
  if (end > size || end < begin || end - begin != (size_t)parameter->count * sizeof(float))
    oracle_die("%s lies outside the file", parameter->name);
  float *values = oracle_memory((size_t)parameter->count, sizeof *values);
  memcpy(values, data + begin, end - begin);
  return values;
}

void oracle_read_weights(const struct oracle *o, unsigned step, const char *file, float **values)
{
  char path[4096];
  size_t size;
  uint64_t header_bytes = 0;
  snprintf(path, sizeof path, "%s/checkpoints/step_%08u/%s", o->run, step, file);
  char *bytes = read_all(path, &size);
  for (int i = 7; i >= 0 && size >= 8; i--)
    header_bytes = header_bytes << 8 | (unsigned char)bytes[i];
  if (size < 8 || header_bytes > size - 8) oracle_die("%s is torn", path);
  cJSON *header = cJSON_ParseWithLength(bytes + 8, header_bytes);
  if (header == NULL) oracle_die("%s has no header", path);
  const int others = cJSON_GetObjectItemCaseSensitive(header, "__metadata__") != NULL;
  if (cJSON_GetArraySize(header) - others != (int)o->parameter_count)
    oracle_die("%s has %d tensors instead of %zu", path, cJSON_GetArraySize(header) - others,
               o->parameter_count);
  for (size_t i = 0; i < o->parameter_count; i++)
    values[i] =
        read_tensor(header, &o->parameters[i], bytes + 8 + header_bytes, size - 8 - header_bytes);
  cJSON_Delete(header);
  free(bytes);
}
