/* Which attention maps a text chooses. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/model/architecture.h"
#include "evaluator/embed/map_choice.h"
#include "tests/support/cases/model_case.h"

static void layers_and_heads_count_from_one(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_UNET, 6, 64);
  const uint32_t H = config.num_attention_heads;
  struct plm_map_choice choice;
  assert_true(H > 1);
  assert_int_equal(plm_map_choice_parse("2:1,6,1:2", &config, &choice, NULL), PLM_OK);
  assert_int_equal(choice.count, 3);
  assert_int_equal(choice.maps, H + 2);
  const struct plm_map_item expected[] = {{1, 0, 1, 0}, {5, 0, (int32_t)H, 1}, {0, 1, 1, H + 1}};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(choice.items[i].block, expected[i].block);
    assert_int_equal(choice.items[i].head, expected[i].head);
    assert_int_equal(choice.items[i].heads, expected[i].heads);
    assert_int_equal(choice.items[i].before, expected[i].before);
  }
}

static void what_the_model_lacks_is_refused(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 6, 64);
  const uint32_t H = config.num_attention_heads;
  struct plm_map_choice choice;
  struct plm_error error = {0};
  char what[200], many[400] = "1";
  static const struct {
    const char *text, *what;
  } wrong[] = {
      {"7", "--attention: the model has no layer 7, only 1 to 6"},
      {"0:1", "--attention: the model has no layer 0, only 1 to 6"},
      {"", "--attention: \"\" is neither LAYER nor LAYER:HEAD"},
      {"2,", "--attention: \"\" is neither LAYER nor LAYER:HEAD"},
      {"2:", "--attention: \"2:\" is neither LAYER nor LAYER:HEAD"},
      {"1,-2:1,3", "--attention: \"-2:1\" is neither LAYER nor LAYER:HEAD"},
      {"last", "--attention: \"last\" is neither LAYER nor LAYER:HEAD"},
      {"1:1:1", "--attention: \"1:1:1\" is neither LAYER nor LAYER:HEAD"},
      {"12345678", "--attention: \"12345678\" is neither LAYER nor LAYER:HEAD"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(plm_map_choice_parse(wrong[i].text, &config, &choice, &error), PLM_USAGE);
    assert_string_equal(error.what, wrong[i].what);
  }
  snprintf(many, sizeof many, "3:%u", H + 1);
  snprintf(what, sizeof what, "--attention: layer 3 has no head %u, only 1 to %u", H + 1, H);
  assert_int_equal(plm_map_choice_parse(many, &config, &choice, &error), PLM_USAGE);
  assert_string_equal(error.what, what);
  strcpy(many, "1");
  for (int i = 1; i < PLM_MAX_MAP_ITEMS; i++) strcat(many, ",1");
  assert_int_equal(plm_map_choice_parse(many, &config, &choice, &error), PLM_OK);
  assert_int_equal(choice.count, PLM_MAX_MAP_ITEMS);
  strcat(many, ",1");
  assert_int_equal(plm_map_choice_parse(many, &config, &choice, &error), PLM_USAGE);
  memset(many, '1', PLM_MAP_TEXT_SIZE);
  many[PLM_MAP_TEXT_SIZE] = '\0';
  assert_int_equal(plm_map_choice_parse(many, &config, &choice, &error), PLM_USAGE);
}

/* Layers of a patch_unet's deeper levels, and those that have no attention. */
static void layers_without_a_position_for_each_token_are_refused(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, 4);
  struct plm_map_choice choice;
  struct plm_error error = {0};
  uint32_t kinds[3] = {0};
  for (uint32_t layer = 1; layer <= plm_architecture_blocks(&config); layer++) {
    struct plm_block_shape shape;
    char text[16];
    plm_architecture_block(&config, layer - 1, &shape);
    const int kind = shape.kind == PLM_BLOCK_BOTTLENECK ? 0 : shape.level > 0 ? 1 : 2;
    snprintf(text, sizeof text, "%u", layer);
    const plm_status status = plm_map_choice_parse(text, &config, &choice, &error);
    assert_int_equal(status, kind == 2 ? PLM_OK : PLM_USAGE);
    if (kind == 0) assert_non_null(strstr(error.what, "has no attention"));
    if (kind == 1) assert_non_null(strstr(error.what, "attends to groups of 2 tokens"));
    kinds[kind]++;
  }
  for (int kind = 0; kind < 3; kind++) assert_true(kinds[kind] > 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_and_heads_count_from_one),
      cmocka_unit_test(what_the_model_lacks_is_refused),
      cmocka_unit_test(layers_without_a_position_for_each_token_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
