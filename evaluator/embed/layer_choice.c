/* Hidden states of chosen blocks. */
#include "evaluator/embed/layer_choice.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"

static plm_status parse_word(const char *word, size_t length, uint32_t blocks, uint32_t *state,
                             struct plm_error *error)
{
  char *end;
  *state = blocks;
  if (length == 4 && strncmp(word, "last", 4) == 0) return PLM_OK;
  const unsigned long number = strtoul(word, &end, 10);
  if (length == 0 || length > 6 || end != word + length || strspn(word, "0123456789") < length) {
    plm_error_set(error, PLM_USAGE, "--layers: \"%.*s\" is neither a number nor last",
                  (int)(length < 40 ? length : 40), word);
    return plm_error_hint(error, "write `last` for the last layer, or numbers from 0 to %u: 0,last",
                          blocks);
  }
  if (number > blocks) {
    plm_error_set(error, PLM_USAGE, "--layers: the model has no layer %lu", number);
    return plm_error_hint(error, "it has layers 1 to %u; 0 is the embeddings", blocks);
  }
  *state = (uint32_t)number;
  return PLM_OK;
}

static plm_status add_state(struct plm_layer_choice *choice, uint32_t state,
                            const struct plm_model_config *config, struct plm_error *error)
{
  struct plm_block_shape shape = {.level = 0, .width = config->hidden_size};
  if (state > 0) plm_architecture_block(config, state - 1, &shape);
  for (uint32_t i = 0; i < choice->count; i++)
    if (choice->states[i] == state)
      return plm_error_set(error, PLM_USAGE, "--layers: layer %u is named twice", state);
  if (choice->count == PLM_MAX_LAYERS)
    return plm_error_set(error, PLM_USAGE, "--layers names more than %d layers", PLM_MAX_LAYERS);
  choice->states[choice->count] = state;
  choice->widths[choice->count] = shape.width;
  choice->levels[choice->count] = shape.level;
  choice->width += shape.width;
  const size_t used = strlen(choice->name);
  snprintf(choice->name + used, sizeof choice->name - used, "%s%u", choice->count > 0 ? "," : "",
           state);
  choice->count++;
  return PLM_OK;
}

plm_status plm_layer_choice_parse(const char *text, const struct plm_model_config *config,
                                  struct plm_layer_choice *choice, struct plm_error *error)
{
  *choice = (struct plm_layer_choice){0};
  for (;;) {
    const size_t length = strcspn(text, ",");
    uint32_t state;
    PLM_TRY(parse_word(text, length, plm_architecture_blocks(config), &state, error));
    PLM_TRY(add_state(choice, state, config, error));
    if (text[length] == '\0') return PLM_OK;
    text += length + 1;
  }
}

struct placing {
  const struct plm_layer_choice *choice;
  size_t rows; /* B L */
  float *room, *values;
};

/* Puts the state that lies in the room beside the others of each token. */
static void place_state(const struct placing *placing, uint32_t i, size_t offset)
{
  const struct plm_layer_choice *choice = placing->choice;
  const size_t width = choice->widths[i];
  for (size_t row = 0; row < placing->rows; row++)
    memcpy(placing->values + row * choice->width + offset,
           placing->room + (row >> choice->levels[i]) * width, width * sizeof(float));
}

static void layer_choice_on_state(void *context, uint32_t state)
{
  const struct placing *placing = context;
  size_t offset = 0;
  for (uint32_t i = 0; i < placing->choice->count; i++) {
    if (placing->choice->states[i] == state) place_state(placing, i, offset);
    offset += placing->choice->widths[i];
  }
}

plm_status plm_layer_choice_run(const struct plm_layer_choice *choice,
                                struct plm_inference *inference, const struct plm_batch *batch,
                                const int32_t *inputs, float *room, float *values,
                                struct plm_error *error)
{
  struct placing placing = {choice, (size_t)batch->chunks * batch->max_length, room, values};
  const struct plm_state_taps taps = {.states = choice->states,
                                      .count = choice->count,
                                      .room = room,
                                      .on_state = layer_choice_on_state,
                                      .context = &placing};
  return plm_inference_run_states(inference, batch, inputs, &taps, error);
}
