/* What --layers names: which states, how wide they are, and what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/model/architecture.h"
#include "evaluator/embed/layer_choice.h"
#include "tests/support/cases/case_batch.h"

static void states_and_widths(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 12, 64);
  struct plm_layer_choice choice;
  assert_int_equal(plm_layer_choice_parse("4,0,last", &config, &choice, NULL), PLM_OK);
  assert_int_equal(choice.count, 3);
  static const uint32_t expected[] = {4, 0, 12};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(choice.states[i], expected[i]);
    assert_int_equal(choice.widths[i], config.hidden_size);
    assert_int_equal(choice.levels[i], 0);
  }
  assert_int_equal(choice.width, 3 * config.hidden_size);
  assert_string_equal(choice.name, "4,0,12");
  assert_int_equal(plm_layer_choice_parse("12", &config, &choice, NULL), PLM_OK);
  assert_int_equal(choice.count, 1); /* nothing of the choice before is left */
  assert_int_equal(choice.width, config.hidden_size);
  assert_string_equal(choice.name, "12");
}

/* A state of a merged level is wider; the embeddings and the outer blocks are not. */
static void blocks_of_a_patch_unet_have_their_widths(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, 64);
  const uint32_t blocks = plm_architecture_blocks(&config);
  struct plm_layer_choice choice;
  uint32_t widest = 0;
  for (uint32_t i = 0; i <= blocks; i++) {
    char text[16];
    struct plm_block_shape shape = {.level = 0, .width = config.hidden_size};
    if (i > 0) plm_architecture_block(&config, i - 1, &shape);
    snprintf(text, sizeof text, "%u", i);
    assert_int_equal(plm_layer_choice_parse(text, &config, &choice, NULL), PLM_OK);
    assert_int_equal(choice.widths[0], shape.width);
    assert_int_equal(choice.levels[0], shape.level);
    assert_int_equal(choice.width, shape.width);
    if (shape.width > widest) widest = shape.width;
  }
  assert_true(widest > config.hidden_size);
}

static void nonsense_is_refused(void **state)
{
  (void)state;
  static const struct {
    const char *text, *said;
  } wrong[] = {
      {"", "--layers: \"\" is neither a number nor last"},
      {"1,", "--layers: \"\" is neither a number nor last"},
      {",1", "--layers: \"\" is neither a number nor last"},
      {"1x", "--layers: \"1x\" is neither a number nor last"},
      {"-1", "--layers: \"-1\" is neither a number nor last"},
      {"+1", "--layers: \"+1\" is neither a number nor last"},
      {" 1", "--layers: \" 1\" is neither a number nor last"},
      {"lasts", "--layers: \"lasts\" is neither a number nor last"},
      {"las", "--layers: \"las\" is neither a number nor last"},
      {"1234567", "--layers: \"1234567\" is neither a number nor last"},
      {"7", "--layers: the model has no layer 7"},
      {"123456", "--layers: the model has no layer 123456"},
      {"2,3,2", "--layers: layer 2 is named twice"},
      {"6,last", "--layers: layer 6 is named twice"},
  };
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 6, 64);
  struct plm_layer_choice choice;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct plm_error error = {0};
    assert_int_equal(plm_layer_choice_parse(wrong[i].text, &config, &choice, &error), PLM_USAGE);
    assert_string_equal(error.what, wrong[i].said);
    if (strstr(error.what, "neither") != NULL)
      assert_string_equal(error.hint,
                          "write `last` for the last layer, or numbers from 0 to 6: 0,last");
  }
}

static void there_are_at_most_thirty_two(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, PLM_MAX_LAYERS + 1, 64);
  struct plm_layer_choice choice;
  struct plm_error error = {0};
  char text[PLM_LAYERS_NAME_SIZE] = "0";
  for (uint32_t i = 1; i < PLM_MAX_LAYERS; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), ",%u", i);
  assert_int_equal(plm_layer_choice_parse(text, &config, &choice, &error), PLM_OK);
  assert_int_equal(choice.count, PLM_MAX_LAYERS);
  assert_string_equal(choice.name, text);
  snprintf(text + strlen(text), sizeof text - strlen(text), ",%u", PLM_MAX_LAYERS);
  assert_int_equal(plm_layer_choice_parse(text, &config, &choice, &error), PLM_USAGE);
  assert_string_equal(error.what, "--layers names more than 32 layers");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(states_and_widths),
      cmocka_unit_test(blocks_of_a_patch_unet_have_their_widths),
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(there_are_at_most_thirty_two),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
