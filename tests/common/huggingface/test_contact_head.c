/* What a contact head has to be: two tensors of numbers, of the shapes that the model needs. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "common/huggingface/contact_head.h"
#include "tests/support/harness/scratch.h"

enum { COUNT = 6 }; /* layers times heads */

#define WEIGHT "esm.contact_head.regression.weight"
#define BIAS "esm.contact_head.regression.bias"

static void each_of_its_tensors_is_checked(void **state)
{
  static const char of_six[] = "tensor " WEIGHT " does not have a number for each of 6 (the";
  static const struct {
    int rank;
    uint64_t rows, columns, biases; /* 0: no tensor */
    float weight, bias;             /* the last weight */
    const char *what;               /* NULL: it is read */
  } rows[] = {
      {2, 1, COUNT, 1, 5, -1, NULL},
      {2, 1, COUNT, 0, 5, -1, "the contact head is not complete: tensor " BIAS " is missing"},
      {3, 1, COUNT, 1, 5, -1, of_six},
      {2, 0, COUNT, 1, 5, -1, of_six},
      {2, 1, COUNT - 1, 1, 5, -1, of_six},
      {2, 1, COUNT, 2, 5, -1, "tensor " BIAS " does not have a number for each of 1 (the"},
      {2, 1, COUNT, 1, NAN, -1, "tensor " WEIGHT " holds nan at element 5"},
      {2, 1, COUNT, 1, 5, INFINITY, "tensor " BIAS " holds inf at element 0"},
  };
  struct plm_model_folder folder = {.model = {.num_hidden_layers = 3, .num_attention_heads = 2}};
  (void)state;
  snprintf(folder.directory, sizeof folder.directory, "%s", scratch_directory());
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const float weights[COUNT] = {0, 1, 2, 3, 4, rows[i].weight}, biases[2] = {rows[i].bias, 0};
    const uint64_t bytes = 4 * rows[i].rows * rows[i].columns;
    const struct plm_tensor_info tensors[] = {
        {WEIGHT, PLM_F32, rows[i].rank, {rows[i].rows, rows[i].columns, 1}, bytes, weights},
        {BIAS, PLM_F32, 1, {rows[i].biases}, 4 * rows[i].biases, biases}};
    struct plm_contact_head head;
    struct plm_error error = {0};
    assert_int_equal(plm_safetensors_write(scratch_path("m"), tensors, rows[i].biases > 0 ? 2 : 1,
                                           NULL, 0, NULL),
                     PLM_OK);
    const plm_status status = plm_contact_head_read(&folder, "m", &head, &error);
    if (rows[i].what == NULL) {
      assert_int_equal(status, PLM_OK);
      assert_int_equal(head.count, COUNT);
      assert_memory_equal(head.weights, weights, sizeof weights);
      assert_true(head.bias == -1);
    } else {
      if (status != PLM_FORMAT || strstr(error.what, rows[i].what) != error.what)
        fail_msg("row %zu: status %d, %s", i, (int)status, error.what);
      assert_string_equal(error.where, scratch_path("m"));
      assert_null(head.weights);
    }
    plm_contact_head_deinit(&head);
  }
}

/* A file without any is no damaged one: the message names the folder, and no file. */
static void a_folder_without_a_head_is_named(void **state)
{
  struct plm_model_folder folder = {.model = {.num_hidden_layers = 3, .num_attention_heads = 2}};
  const struct plm_tensor_info other = {BIAS, PLM_F32, 1, {1}, 4, (const float[]){1}};
  struct plm_contact_head head;
  struct plm_error error = {0};
  char expected[PLM_PATH_SIZE + 100];
  (void)state;
  snprintf(folder.directory, sizeof folder.directory, "%s", scratch_directory());
  assert_int_equal(plm_safetensors_write(scratch_path("n"), &other, 1, NULL, 0, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&folder, "n", &head, &error), PLM_NOT_FOUND);
  snprintf(expected, sizeof expected, "%.300s has no contact head (" WEIGHT ")", folder.directory);
  assert_string_equal(error.what, expected);
  assert_string_equal(error.where, "");
  assert_non_null(strstr(error.hint, "only published weights of ESM-2"));
  assert_null(head.weights);
  assert_int_equal(plm_contact_head_read(&folder, "missing", &head, &error), PLM_NOT_FOUND);
  assert_null(head.weights);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_of_its_tensors_is_checked),
      cmocka_unit_test(a_folder_without_a_head_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
