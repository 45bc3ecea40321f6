/* A model's configuration: its checks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/corpus/tokenizer.h"
#include "common/model/architecture.h"
#include "common/model/model_config.h"

/* Of a LayerNorm. It is computed in fp32, where it must not become 0. */
#define SMALLEST_EPS 1e-20
enum { HEAD_WIDTH_MIN = 16, HEAD_WIDTH_STEP = 8 };

/* ---- checks -------------------------------------------------------------------------------- */

struct checks {
  const struct plm_model_config *model;
  plm_model_key_known *known; /* NULL: all keys are */
  void *context;
  struct plm_model_fault *faults;
  size_t count;
};

static void add_fault(struct checks *checks, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_fault(struct checks *checks, const char *key, const char *format, ...)
{
  PLM_ASSERT(checks->count < PLM_MODEL_MAX_FAULTS);
  struct plm_model_fault *fault = &checks->faults[checks->count++];
  va_list arguments;
  fault->key = key;
  va_start(arguments, format);
  vsnprintf(fault->what, sizeof fault->what, format, arguments);
  va_end(arguments);
}

/* Whether a rule on these keys (up to four, then NULL) can be checked: each value is known, and no
 * other rule has rejected it. */
static bool checkable(const struct checks *checks, const char *const keys[4])
{
  for (size_t k = 0; k < 4 && keys[k] != NULL; k++) {
    if (checks->known != NULL && !checks->known(checks->context, keys[k])) return false;
    for (size_t i = 0; i < checks->count; i++)
      if (strcmp(checks->faults[i].key, keys[k]) == 0) return false;
  }
  return true;
}
#define CHECKABLE(checks, ...) checkable(checks, (const char *const[4]){__VA_ARGS__})

static const struct plm_architecture_rules *rules_of(const struct checks *checks)
{
  return plm_architecture_rules(checks->model->architecture);
}

/* The first check: the others may then compute with the values that passed it. */
static void check_limits(struct checks *checks)
{
  static const struct {
    const char *key;
    size_t offset;
    uint32_t most;
  } limits[] = {
#define LIMIT(name, member, limit) {name, offsetof(struct plm_model_config, member), (limit)}
      LIMIT("hidden_size", hidden_size, PLM_MODEL_MAX_WIDTH),
      LIMIT("num_attention_heads", num_attention_heads, PLM_MODEL_MAX_HEADS),
      LIMIT("num_hidden_layers", num_hidden_layers, PLM_MODEL_MAX_LAYERS),
      LIMIT("num_unet_layers", num_unet_layers, PLM_MODEL_MAX_UNET),
      LIMIT("num_extra_layers", num_extra_layers, PLM_MODEL_MAX_LAYERS),
      LIMIT("max_length", max_length, PLM_MODEL_MAX_LENGTH),
      LIMIT("vocab_size", vocab_size, PLM_MODEL_MAX_VOCABULARY),
      LIMIT("attention.window.start", window_start, PLM_MODEL_MAX_LENGTH),
      LIMIT("attention.window.end", window_end, PLM_MODEL_MAX_LENGTH),
      LIMIT("attention.block", block, PLM_MODEL_MAX_LENGTH),
      LIMIT("intermediate_size", intermediate_size, PLM_MODEL_MAX_INTERMEDIATE),
#undef LIMIT
  };
  const char *model = (const char *)checks->model;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    const uint32_t value = *(const uint32_t *)(model + limits[i].offset);
    if (value > limits[i].most && CHECKABLE(checks, limits[i].key))
      add_fault(checks, limits[i].key, "%u exceeds the limit of %u", value, limits[i].most);
  }
  const double cap = checks->model->soft_logit_cap;
  if (CHECKABLE(checks, "soft_logit_cap") && !(cap >= 0.0 && cap <= PLM_MODEL_MAX_LOGIT_CAP))
    add_fault(checks, "soft_logit_cap", "%g is not a number from 0 to %d", cap,
              PLM_MODEL_MAX_LOGIT_CAP);
}

static void check_sizes(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  if (CHECKABLE(checks, "hidden_size") && model->hidden_size == 0)
    add_fault(checks, "hidden_size", "must be above 0");
  if (CHECKABLE(checks, "num_attention_heads") && model->num_attention_heads == 0)
    add_fault(checks, "num_attention_heads", "must be above 0");
  if (CHECKABLE(checks, "max_length") && !rules_of(checks)->published &&
      (model->max_length < 2 || (model->max_length & (model->max_length - 1)) != 0))
    add_fault(checks, "max_length", "%u is not a power of two", model->max_length);
  if (CHECKABLE(checks, "max_length") && model->max_length == 0)
    add_fault(checks, "max_length", "must be above 0");
  if (CHECKABLE(checks, "vocab_size") && model->vocab_size == 0)
    add_fault(checks, "vocab_size", "must be above 0");
  if (CHECKABLE(checks, "expansion_ratio", "hidden_size") && !rules_of(checks)->published &&
      (!(model->expansion_ratio > 0.0) || model->expansion_ratio * model->hidden_size < 1.0 ||
       model->expansion_ratio > PLM_MODEL_MAX_RATIO))
    add_fault(checks, "expansion_ratio", "%g leaves no MLP, or exceeds %d", model->expansion_ratio,
              PLM_MODEL_MAX_RATIO);
}

static void check_masks(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  unsigned kinds = 0;
  if (!CHECKABLE(checks, "attention.pattern")) return;
  if (model->pattern_count == 0 || model->pattern_count > PLM_MAX_PATTERN) {
    add_fault(checks, "attention.pattern", "has %u entries; 1 to %d are possible",
              model->pattern_count, PLM_MAX_PATTERN);
    return;
  }
  for (uint32_t i = 0; i < model->pattern_count; i++) kinds |= model->pattern[i];
  if ((kinds & PLM_ATTENTION_BLOCK) != 0 && CHECKABLE(checks, "attention.block") &&
      model->block == 0)
    add_fault(checks, "attention.block", "must be above 0, since the pattern has a `block` mask");
  if ((kinds & PLM_ATTENTION_LOCAL) != 0 &&
      CHECKABLE(checks, "attention.window.start", "attention.window.end") &&
      (model->window_start == 0 || model->window_end == 0))
    add_fault(checks, "attention.window.end",
              "start and end must be above 0, since the pattern has a `local` mask");
}

static void check_layers(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  static const char mirror[] = "is not even, but encoder and decoder mirror each other";
  if (!CHECKABLE(checks, "architecture")) return;
  if (rules_of(checks)->merges) {
    if (CHECKABLE(checks, "num_unet_layers") &&
        (model->num_unet_layers < 2 || model->num_unet_layers % 2 != 0))
      add_fault(checks, "num_unet_layers", "%u %s", model->num_unet_layers, mirror);
  } else if (CHECKABLE(checks, "num_hidden_layers")) {
    if (model->num_hidden_layers == 0)
      add_fault(checks, "num_hidden_layers", "must be above 0");
    else if (rules_of(checks)->mirrors && model->num_hidden_layers % 2 != 0)
      add_fault(checks, "num_hidden_layers", "%u %s", model->num_hidden_layers, mirror);
  }
}

static void check_head_width(struct checks *checks, uint32_t width, const char *place)
{
  const uint32_t heads = checks->model->num_attention_heads, head = width / heads;
  if (width % heads != 0 || head % HEAD_WIDTH_STEP != 0 || head < HEAD_WIDTH_MIN ||
      head > PLM_HEAD_WIDTH_MAX)
    add_fault(checks, "hidden_size",
              "%s%u divided by %u heads is not a head width; these are the multiples of %d from %d "
              "to %d",
              place, width, heads, HEAD_WIDTH_STEP, HEAD_WIDTH_MIN, PLM_HEAD_WIDTH_MAX);
}

static void check_patch_widths(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  const uint32_t heads = model->num_attention_heads;
  if (!CHECKABLE(checks, "architecture", "hidden_size", "num_attention_heads") || heads == 0 ||
      !rules_of(checks)->merges)
    return;
  const uint32_t unit = plm_architecture_unit(model);
  if (model->hidden_size % unit != 0)
    add_fault(checks, "hidden_size",
              "%u is not a multiple of %u, the least common multiple of %d and %u heads",
              model->hidden_size, unit, PLM_WIDTH_UNIT, heads);
  else if (model->hidden_size > PLM_HEAD_WIDTH_MAX * heads)
    add_fault(checks, "hidden_size",
              "%u exceeds %d times %u heads; use more heads or a smaller width", model->hidden_size,
              PLM_HEAD_WIDTH_MAX, heads);
  const int levels = (int)(model->num_unet_layers / 2);
  for (int level = 0; level < levels; level++) {
    char place[64];
    if (!CHECKABLE(checks, "hidden_size", "num_unet_layers")) return;
    snprintf(place, sizeof place, "at level %d, width ", level);
    check_head_width(checks, plm_architecture_width(model, level), place);
  }
}

/* A number of elements after which the next row of a matrix or vector still begins at a multiple of
 * PLM_PARAMETER_ALIGNMENT, so that parameters of one product are adjacent. */
static void check_adjacent(struct checks *checks, const char *key, uint32_t value)
{
  enum { ELEMENTS = 16 };
  if (CHECKABLE(checks, key) && (value == 0 || value % ELEMENTS != 0))
    add_fault(checks, key, "%u is not a multiple of %d, which %s needs", value, ELEMENTS,
              plm_architecture_name(checks->model->architecture));
}

/* The keys in which an architecture of published weights leaves no choice. */
static void check_fixed(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  const struct plm_architecture_rules *rules = rules_of(checks);
  const char *name = plm_architecture_name(model->architecture);
  if (CHECKABLE(checks, "soft_logit_cap") && model->soft_logit_cap != 0.0)
    add_fault(checks, "soft_logit_cap", "%s has no cap; use 0", name);
  if (CHECKABLE(checks, "tie_embeddings") && model->tie_embeddings != rules->ties_embeddings)
    add_fault(checks, "tie_embeddings",
              "the embedding table %s the second matrix of the head of %s",
              rules->ties_embeddings ? "is always" : "is never", name);
  if (CHECKABLE(checks, "token_dropout") && model->token_dropout && !rules->token_dropout)
    add_fault(checks, "token_dropout", "%s has none", name);
  if (CHECKABLE(checks, "emb_layer_norm_before") && model->emb_layer_norm_before &&
      rules->embedding_norm_name == NULL)
    add_fault(checks, "emb_layer_norm_before", "%s has none", name);
  for (uint32_t i = 0; i < model->pattern_count; i++)
    if (CHECKABLE(checks, "attention.pattern") && model->pattern[i] != PLM_ATTENTION_DOCUMENT)
      add_fault(checks, "attention.pattern",
                "every layer of %s sees its whole document; use "
                "[document]",
                name);
}

/* The keys that only architectures of published weights have. */
static void check_published(struct checks *checks)
{
  const struct plm_model_config *model = checks->model;
  const double eps = model->layer_norm_eps;
  if (!CHECKABLE(checks, "architecture")) return;
  const struct plm_architecture_rules *rules = rules_of(checks);
  const char *name = plm_architecture_name(model->architecture);
  if (!rules->published) {
    if (CHECKABLE(checks, "intermediate_size") && model->intermediate_size != 0)
      add_fault(checks, "intermediate_size",
                "does not apply to %s, whose MLP follows from expansion_ratio", name);
    if (CHECKABLE(checks, "layer_norm_eps") && eps != 0.0)
      add_fault(checks, "layer_norm_eps", "does not apply to %s, which has RMSNorm", name);
    if (CHECKABLE(checks, "emb_layer_norm_before") && model->emb_layer_norm_before)
      add_fault(checks, "emb_layer_norm_before", "%s has none", name);
    return;
  }
  const uint32_t tokens = plm_tokenizer_of(PLM_TOKENIZER_ESM)->vocab_size;
  check_adjacent(checks, "hidden_size", model->hidden_size);
  check_adjacent(checks, "intermediate_size", model->intermediate_size);
  if (CHECKABLE(checks, "layer_norm_eps") && rules->fixed_eps && eps != rules->layer_norm_eps)
    add_fault(checks, "layer_norm_eps", "%g is not %g, which %s always has", eps,
              rules->layer_norm_eps, name);
  if (CHECKABLE(checks, "layer_norm_eps") && !(eps >= SMALLEST_EPS && eps <= 1.0))
    add_fault(checks, "layer_norm_eps", "%g is not a number from 1e-20 to 1", eps);
  if (CHECKABLE(checks, "vocab_size") && model->vocab_size < tokens)
    add_fault(checks, "vocab_size", "%u are fewer than the %u tokens of the esm tokenizer",
              model->vocab_size, tokens);
  check_fixed(checks);
}

size_t plm_model_config_faults(const struct plm_model_config *model, plm_model_key_known *known,
                               void *context, struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS])
{
  struct checks checks = {.model = model, .known = known, .context = context, .faults = faults};
  check_limits(&checks);
  check_sizes(&checks);
  check_masks(&checks);
  check_layers(&checks);
  check_patch_widths(&checks);
  /* also the width of a patch_unet's first level, so the architecture need not be known */
  if (CHECKABLE(&checks, "hidden_size", "num_attention_heads"))
    check_head_width(&checks, model->hidden_size, "");
  check_published(&checks);
  return checks.count;
}

plm_status plm_model_config_check(const struct plm_model_config *model, struct plm_error *error)
{
  struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS];
  if (plm_model_config_faults(model, NULL, NULL, faults) == 0) {
    const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
    PLM_TRY(plm_lora_config_check(&model->lora, rules->block.mlp == PLM_MLP_SWIGLU, error));
    return plm_head_config_check(&model->head, rules->published, model->hidden_size, error);
  }
  plm_error_set(error, PLM_CONFIG, "%s", faults[0].what);
  plm_error_where(error, "%s", faults[0].key);
  return PLM_CONFIG;
}
