/* Chosen attention maps. */
#include "evaluator/embed/map_choice.h"

#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"

/* Reads a number from 1 to `most`; *text moves behind it. False: there is none. */
static bool read_number(const char **text, uint32_t *number)
{
  char *end;
  if (strspn(*text, "0123456789") == 0 || strspn(*text, "0123456789") > 6) return false;
  *number = (uint32_t)strtoul(*text, &end, 10);
  *text = end;
  return true;
}

static plm_status check_layer(const struct plm_model_config *config, uint32_t layer,
                              struct plm_error *error)
{
  const uint32_t blocks = plm_architecture_blocks(config);
  struct plm_block_shape shape;
  if (layer < 1 || layer > blocks)
    return plm_error_set(error, PLM_USAGE, "--attention: the model has no layer %u, only 1 to %u",
                         layer, blocks);
  plm_architecture_block(config, layer - 1, &shape);
  if (shape.kind == PLM_BLOCK_BOTTLENECK)
    return plm_error_set(error, PLM_USAGE, "--attention: layer %u has no attention", layer);
  if (shape.level > 0)
    return plm_error_set(error, PLM_USAGE,
                         "--attention: layer %u attends to groups of %u tokens, not to tokens",
                         layer, 1u << shape.level);
  return PLM_OK;
}

static plm_status map_choice_add(struct plm_map_choice *choice,
                                 const struct plm_model_config *config, const char **text,
                                 struct plm_error *error)
{
  const char *word = *text;
  uint32_t layer, head = 1, heads = config->num_attention_heads;
  bool right = read_number(text, &layer);
  if (right && **text == ':') {
    ++*text;
    right = read_number(text, &head);
    heads = 1;
  }
  if (!right || (**text != ',' && **text != '\0')) {
    const int length = (int)strcspn(word, ",");
    plm_error_set(error, PLM_USAGE, "--attention: \"%.*s\" is neither LAYER nor LAYER:HEAD",
                  length < 40 ? length : 40, word);
    return plm_error_hint(error, "for example 3:5 or 3:5,4; both are counted from 1");
  }
  PLM_TRY(check_layer(config, layer, error));
  if (head < 1 || head > config->num_attention_heads)
    return plm_error_set(error, PLM_USAGE, "--attention: layer %u has no head %u, only 1 to %u",
                         layer, head, config->num_attention_heads);
  if (choice->count == PLM_MAX_MAP_ITEMS)
    return plm_error_set(error, PLM_USAGE, "--attention names more than %d layers or heads",
                         PLM_MAX_MAP_ITEMS);
  choice->items[choice->count++] =
      (struct plm_map_item){layer - 1, (int32_t)head - 1, (int32_t)heads, choice->maps};
  choice->maps += heads;
  return PLM_OK;
}

plm_status plm_map_choice_parse(const char *text, const struct plm_model_config *config,
                                struct plm_map_choice *choice, struct plm_error *error)
{
  *choice = (struct plm_map_choice){0};
  if (strlen(text) >= PLM_MAP_TEXT_SIZE)
    return plm_error_set(error, PLM_USAGE, "--attention has more than %d characters",
                         PLM_MAP_TEXT_SIZE - 1);
  for (;;) {
    PLM_TRY(map_choice_add(choice, config, &text, error));
    if (*text == '\0') return PLM_OK;
    text++;
  }
}
