/* Names and shapes of a configuration's parameters, and their initial values (Philox purpose 3). */
#include "tests/integration/oracle/oracle.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_PARAMETERS = 512 };

static void add(struct oracle *o, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a parameter; with rows 0 a vector. */
static void add(struct oracle *o, int64_t rows, int64_t cols, const char *format, ...)
{
  if (o->parameter_count == MAX_PARAMETERS) oracle_die("too many parameters");
  struct oracle_parameter *p = &o->parameters[o->parameter_count++];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(p->name, sizeof p->name, format, arguments);
  va_end(arguments);
  p->vector = rows == 0;
  p->rows = rows == 0 ? 1 : rows;
  p->cols = cols;
  p->count = p->rows * p->cols;
  double **const arrays[] = {&p->value, &p->gradient, &p->first, &p->second, &p->average};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    *arrays[i] = oracle_memory((size_t)p->count, sizeof(double));
  p->initial = oracle_memory((size_t)p->count, sizeof(float));
}

/* ---- the table of names --------------------------------------------------------------------- */

struct block_kind {
  bool attention, input_mix, value_mix;
};
static const struct block_kind plain = {true, false, false}, full = {true, true, true},
                               bottleneck = {false, true, false};

static void add_block(struct oracle *o, const char *part, int i, int64_t width,
                      struct block_kind kind)
{
  static const char *const products[] = {"query", "key", "value", "output"};
  const int64_t D = o->config.model.hidden_size;
  const int64_t F =
      256 * (int64_t)ceil(floor(o->config.model.expansion_ratio * (double)width) / 256);
  for (int j = 0; kind.attention && j < 4; j++)
    add(o, width, width, "plm.%s.%d.attention.%s.weight", part, i, products[j]);
  if (kind.value_mix) add(o, 0, 2, "plm.%s.%d.attention.value_mix", part, i);
  if (kind.input_mix) add(o, 0, 2, "plm.%s.%d.input_mix", part, i);
  if (kind.input_mix && width != D) add(o, width, D, "plm.%s.%d.input_projection.weight", part, i);
  add(o, F, width, "plm.%s.%d.mlp.up.weight", part, i);
  add(o, width, F, "plm.%s.%d.mlp.down.weight", part, i);
}

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

/* unit * ceil(D (n-1+k) / ((n-1) unit)), at most the largest multiple of unit <= 128 H */
static int64_t level_width(const struct plm_model_config *model, int64_t k)
{
  const int64_t D = model->hidden_size, H = model->num_attention_heads;
  const int64_t n = model->num_unet_layers / 2, unit = 64 / greatest_common_divisor(64, H) * H;
  if (n == 1) return D;
  const int64_t below = (n - 1) * unit, wanted = unit * ((D * (n - 1 + k) + below - 1) / below);
  const int64_t most = 128 * H / unit * unit;
  return wanted < most ? wanted : most;
}

static void list_patch_unet(struct oracle *o)
{
  const struct plm_model_config *model = &o->config.model;
  const int n = (int)model->num_unet_layers / 2;
  int v = 0; /* the level at which a chunk is one position */
  while (model->max_length >> v > 1) v++;
  for (int i = 0; i < n; i++) {
    const int deeper = i < v ? i : v, mirrored = n - 1 - i;
    const int level = mirrored < v ? mirrored : v;
    add_block(o, "encoder", i, level_width(model, deeper), i < v ? full : bottleneck);
    add_block(o, "decoder", i, level_width(model, level), mirrored < v ? full : bottleneck);
    if (i < v)
      add(o, model->vocab_size, level_width(model, deeper),
          "plm.encoder_value_embeddings.%d.weight", i);
    if (mirrored < v)
      add(o, model->vocab_size, level_width(model, level), "plm.decoder_value_embeddings.%d.weight",
          i);
  }
  for (int k = 0; k + 1 < n && k < v; k++) {
    const int64_t here = level_width(model, k), below = level_width(model, k + 1);
    add(o, below, 2 * here, "plm.merge.%d.weight", k);
    add(o, 2 * here, below, "plm.expand.%d.weight", k);
  }
  add(o, 0, n, "plm.skip_weights");
  for (int i = 0; i < (int)model->num_extra_layers; i++)
    add_block(o, "layers", i, model->hidden_size, plain);
}

static void list_unet(struct oracle *o)
{
  const int n = (int)o->config.model.num_hidden_layers / 2;
  for (int i = 0; i < n; i++) {
    add_block(o, "encoder", i, o->config.model.hidden_size, full);
    add_block(o, "decoder", i, o->config.model.hidden_size, full);
    add(o, o->config.model.vocab_size, o->config.model.hidden_size,
        "plm.value_embeddings.%d.weight", i);
  }
  add(o, 0, n, "plm.skip_weights");
}

void oracle_list_parameters(struct oracle *o)
{
  const struct plm_model_config *model = &o->config.model;
  const int64_t V = model->vocab_size, D = model->hidden_size;
  o->parameters = oracle_memory(MAX_PARAMETERS, sizeof *o->parameters);
  add(o, V, D, "plm.embeddings.weight");
  if (model->architecture == PLM_PATCH_UNET)
    list_patch_unet(o);
  else if (model->architecture == PLM_UNET)
    list_unet(o);
  else
    for (int i = 0; i < (int)model->num_hidden_layers; i++) add_block(o, "layers", i, D, plain);
  add(o, D, D, "lm_head.dense.weight");
  if (!model->tie_embeddings) add(o, V, D, "lm_head.decoder.weight");
  add(o, 0, V, "lm_head.bias");
}

/* ---- initial values ------------------------------------------------------------------------- */

static double uniform(uint64_t seed, const char *name, int64_t element)
{
  const uint32_t y = XXH32(name, strlen(name), 0);
  const uint32_t word = reference_philox(seed, (uint32_t)(element / 4), y, 3).w[element % 4];
  return ((word >> 8) + 0.5) * 0x1p-24;
}

static double normal(uint64_t seed, const char *name, int64_t element)
{
  const int64_t even = element - element % 2;
  const double r = sqrt(-2 * log(uniform(seed, name, even)));
  const double angle = 2 * M_PI * uniform(seed, name, even + 1);
  return element == even ? r * cos(angle) : r * sin(angle);
}

static bool ends(const char *name, const char *with)
{
  const size_t length = strlen(name), tail = strlen(with);
  return length >= tail && strcmp(name + length - tail, with) == 0;
}

static double initial_value(uint64_t seed, const struct oracle_parameter *p, int64_t element)
{
  if (ends(p->name, "value_mix")) return 0.5;
  if (ends(p->name, "input_mix")) return element == 0;
  if (ends(p->name, "skip_weights")) return 1;
  if (ends(p->name, "bias") || ends(p->name, "attention.output.weight") ||
      ends(p->name, "mlp.down.weight"))
    return 0;
  if (strstr(p->name, "embeddings") != NULL) return normal(seed, p->name, element);
  return 1 / sqrt((double)p->cols) * (2 * uniform(seed, p->name, element) - 1);
}

void oracle_initialise(struct oracle *o, uint64_t seed)
{
  for (size_t i = 0; i < o->parameter_count; i++) {
    struct oracle_parameter *p = &o->parameters[i];
    for (int64_t e = 0; e < p->count; e++) {
      p->initial[e] = (float)initial_value(seed, p, e);
      p->value[e] = p->average[e] = p->initial[e];
    }
  }
}
