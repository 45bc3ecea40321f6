/* The names of tensors in weights files: see tensor_names.h. */
#include "common/checkpoint/tensor_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/text.h"

static const char head_prefix[] = "lm_head.";
/* The second is that of EsmcForTokenClassification. */
static const char *const classifier_prefixes[] = {"classifier.", "score."};
enum { CLASSIFIER_PREFIXES = sizeof classifier_prefixes / sizeof *classifier_prefixes };
static const char decoder[] = "lm_head.decoder.weight";

/* Names of tensors that are no parameters follow the prefix of the trunk. `*` is the number of a
 * layer, or the `*` that transformers 5.24 writes instead of it. */
static const char *const esm_carried[] = {"contact_head.regression.weight",
                                          "contact_head.regression.bias", NULL};
static const char *const esm_ignored[] = {
    "encoder.layer.*.attention.self.rotary_embeddings.inv_freq",
    "rotary_embeddings.inv_freq",
    "embeddings.position_ids",
    "embeddings.position_embeddings.weight", /* of absolute positions, which are not used */
    "pooler.dense.weight",
    "pooler.dense.bias",
    NULL};
static const char *const esmc_ignored[] = {"rotary_emb.inv_freq", "rotary_emb.original_inv_freq",
                                           NULL};
static const char *const none[] = {NULL};

struct plm_tensor_family {
  const char *trunk;     /* begins the names of the trunk's parameters */
  const char *embedding; /* what follows it in the name of the embedding table */
  const char *trunk_class;
  bool published;
  const char *const *carried, *const *ignored;
};
static const struct plm_tensor_family families[] = {
    {.trunk = "plm.",
     .embedding = "embeddings.weight",
     .trunk_class = "PLMModel",
     .carried = none,
     .ignored = none},
    {.trunk = "esm.",
     .embedding = "embeddings.word_embeddings.weight",
     .trunk_class = "EsmModel",
     .published = true,
     .carried = esm_carried,
     .ignored = esm_ignored},
    {.trunk = "esmc.",
     .embedding = "embed_tokens.weight",
     .trunk_class = "EsmcModel",
     .published = true,
     .carried = none,
     .ignored = esmc_ignored},
};
enum { FAMILIES = sizeof families / sizeof *families, NAME_SIZE = 256 };

static bool starts_with(const char *name, const char *prefix)
{
  return strncmp(name, prefix, strlen(prefix)) == 0;
}

static const struct plm_tensor_family *family_of(const struct plm_parameter *table, size_t count)
{
  for (size_t f = 1; f < FAMILIES; f++)
    for (size_t p = 0; p < count; p++)
      if (starts_with(table[p].name, families[f].trunk)) return &families[f];
  return &families[0]; /* ours */
}

static bool holds_prefix(const struct plm_tensor_shards *weights, const char *prefix)
{
  for (size_t i = 0; i < plm_tensor_shards_count(weights); i++)
    if (starts_with(plm_tensor_shards_at(weights, i)->name, prefix)) return true;
  return false;
}

static bool is_of_classifier(const char *name)
{
  for (size_t i = 0; i < CLASSIFIER_PREFIXES; i++)
    if (starts_with(name, classifier_prefixes[i])) return true;
  return false;
}

static bool holds_classifier(const struct plm_tensor_shards *weights)
{
  for (size_t i = 0; i < CLASSIFIER_PREFIXES; i++)
    if (holds_prefix(weights, classifier_prefixes[i])) return true;
  return false;
}

struct plm_tensor_naming plm_tensor_naming_of(const struct plm_tensor_shards *weights,
                                              const struct plm_parameter *table, size_t count)
{
  const struct plm_tensor_family *family = family_of(table, count);
  struct plm_tensor_naming naming = {.family = family, .head = PLM_HEAD_LM, .reads_adapters = true};
  if (holds_classifier(weights))
    naming.head = PLM_HEAD_CLASSIFIER;
  else if (plm_tensor_shards_find(weights, family->embedding) != NULL ||
           (family->published && !holds_prefix(weights, head_prefix)))
    naming.head = PLM_HEAD_NONE;
  if (plm_tensor_shards_find(weights, family->embedding) != NULL)
    naming.prefix = strlen(family->trunk);
  naming.reads_head =
      naming.head ==
      (plm_parameters_predict_labels(table, count) ? PLM_HEAD_CLASSIFIER : PLM_HEAD_LM);
  return naming;
}

const char *plm_tensor_trunk_class(const struct plm_tensor_naming *naming)
{
  return naming->family->trunk_class;
}

bool plm_tensor_published(const struct plm_tensor_naming *naming)
{
  return naming->family->published;
}

bool plm_tensor_wanted(const struct plm_tensor_naming *naming,
                       const struct plm_parameter *parameter)
{
  if (parameter->adapter != 0) return naming->reads_adapters;
  return naming->reads_head || parameter->group != PLM_GROUP_HEAD;
}

const char *plm_tensor_within_trunk(const char *name)
{
  for (size_t f = 0; f < FAMILIES; f++)
    if (starts_with(name, families[f].trunk)) return name + strlen(families[f].trunk);
  return name;
}

const struct plm_tensor_info *plm_tensor_of_trunk(const struct plm_tensor_shards *weights,
                                                  const char *name)
{
  const struct plm_tensor_info *found = plm_tensor_shards_find(weights, name);
  return found != NULL ? found : plm_tensor_shards_find(weights, plm_tensor_within_trunk(name));
}

/* ---- aliases ------------------------------------------------------------------------------- */

static const char *const aliases[][2] = {
    {"LayerNorm.weight", "LayerNorm.gamma"},
    {"LayerNorm.bias", "LayerNorm.beta"},
};
enum { ALIASES = sizeof aliases / sizeof *aliases };

/* Replaces the end `from` of a name by `to`. False: the name does not end so, or is too long. */
static bool replace_end(const char *name, const char *from, const char *to, char result[NAME_SIZE])
{
  const size_t length = strlen(name), end = strlen(from);
  if (length < end || length >= NAME_SIZE - 8 || strcmp(name + length - end, from) != 0)
    return false;
  (void)snprintf(result, NAME_SIZE, "%.*s%s", (int)(length - end), name, to);
  return true;
}

const struct plm_tensor_info *plm_tensor_of_parameter(const struct plm_tensor_shards *weights,
                                                      const struct plm_tensor_naming *naming,
                                                      const struct plm_parameter *parameter)
{
  const char *name = parameter->name + naming->prefix;
  const struct plm_tensor_info *found = plm_tensor_shards_find(weights, name);
  char other[NAME_SIZE];
  for (size_t i = 0; found == NULL && naming->family->published && i < ALIASES; i++)
    if (replace_end(name, aliases[i][0], aliases[i][1], other))
      found = plm_tensor_shards_find(weights, other);
  return found;
}

/* ---- what a tensor is ---------------------------------------------------------------------- */

static bool is_parameter(const struct plm_tensor_naming *naming, const struct plm_parameter *table,
                         size_t count, const char *name)
{
  for (size_t p = 0; p < count; p++)
    if (plm_tensor_wanted(naming, &table[p]) && strcmp(table[p].name + naming->prefix, name) == 0)
      return true;
  return false;
}

/* Whether the tensor is a parameter under its other name. If the file has both names, this one is
 * left over. */
static bool is_alias(const struct plm_tensor_shards *weights,
                     const struct plm_tensor_naming *naming, const struct plm_parameter *table,
                     size_t count, const char *name)
{
  char other[NAME_SIZE];
  for (size_t i = 0; naming->family->published && i < ALIASES; i++)
    if (replace_end(name, aliases[i][1], aliases[i][0], other))
      return plm_tensor_shards_find(weights, other) == NULL &&
             is_parameter(naming, table, count, other);
  return false;
}

static bool matches(const char *name, const char *pattern)
{
  for (; *pattern != '\0'; pattern++) {
    if (*pattern != '*') {
      if (*name++ != *pattern) return false;
      continue;
    }
    const char *begin = name;
    while (isdigit((unsigned char)*name)) name++;
    if (name == begin && *name++ != '*') return false;
  }
  return *name == '\0';
}

static bool matches_any(const struct plm_tensor_naming *naming, const char *name,
                        const char *const *patterns)
{
  if (naming->prefix == 0) {
    if (!starts_with(name, naming->family->trunk)) return false;
    name += strlen(naming->family->trunk);
  }
  for (; *patterns != NULL; patterns++)
    if (matches(name, *patterns)) return true;
  return false;
}

bool plm_tensor_shape_of_heads(const struct plm_tensor_naming *naming,
                               const struct plm_model_config *config,
                               const struct plm_tensor_info *tensor, int *rank,
                               uint64_t shape[PLM_TENSOR_MAX_RANK])
{
  const uint32_t heads = config->num_attention_heads;
  if (heads == 0) return false;
  if (matches_any(naming, tensor->name, naming->family->carried) &&
      plm_text_ends_with(tensor->name, ".weight")) {
    *rank = 2;
    shape[0] = 1;
    shape[1] = (uint64_t)config->num_hidden_layers * heads;
    return true;
  }
  if (matches_any(naming, tensor->name, naming->family->ignored) &&
      plm_text_ends_with(tensor->name, "inv_freq")) {
    *rank = 1;
    shape[0] = config->hidden_size / heads / 2;
    return true;
  }
  return false;
}

/* Some tools write the second matrix of a tied model. It is left over unless it equals the
 * embedding table. */
static bool is_tied_copy(const struct plm_tensor_shards *weights,
                         const struct plm_tensor_naming *naming,
                         const struct plm_tensor_info *tensor)
{
  char name[NAME_SIZE];
  if (strcmp(tensor->name, decoder) != 0) return false;
  (void)snprintf(name, sizeof name, "%s%s", naming->prefix == 0 ? naming->family->trunk : "",
                 naming->family->embedding);
  const struct plm_tensor_info *table = plm_tensor_shards_find(weights, name);
  return table != NULL && table->dtype == tensor->dtype && table->bytes == tensor->bytes &&
         memcmp(table->data, tensor->data, tensor->bytes) == 0;
}

enum plm_tensor_use plm_tensor_use(const struct plm_tensor_shards *weights,
                                   const struct plm_tensor_naming *naming,
                                   const struct plm_parameter *table, size_t count,
                                   const struct plm_tensor_info *tensor)
{
  const char *name = tensor->name;
  if (is_parameter(naming, table, count, name) || is_alias(weights, naming, table, count, name))
    return PLM_TENSOR_PARAMETER;
  if (is_tied_copy(weights, naming, tensor)) return PLM_TENSOR_TIED;
  if (naming->head == PLM_HEAD_CLASSIFIER && is_of_classifier(name)) return PLM_TENSOR_OTHER_HEAD;
  if (!naming->reads_head && naming->head == PLM_HEAD_LM && starts_with(name, head_prefix))
    return PLM_TENSOR_OTHER_HEAD;
  if (matches_any(naming, name, naming->family->carried)) return PLM_TENSOR_CARRIED;
  if (matches_any(naming, name, naming->family->ignored)) return PLM_TENSOR_IGNORED;
  return PLM_TENSOR_UNKNOWN;
}
