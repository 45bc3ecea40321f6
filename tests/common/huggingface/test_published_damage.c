/* Folders of published weights that are damaged, incomplete, or not what config.json says: each is
 * refused with a message that says what is wrong, where, and what to do. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/harness/scratch.h"

/* ---- damage -------------------------------------------------------------------------------- */

static void a_damaged_file_is_explained(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct published_file file = published_file_of(PLM_ESM2);
  const char *query = "esm.encoder.layer.1.attention.self.query.weight";
  struct plm_tensor_info *tensor = published_tensor(&file, query), held = *tensor;
  tensor->shape[0] = 32;
  tensor->bytes /= 2;
  published_folder_write(&file, folder);
  published_expect(
      &file, folder,
      "tensor esm.encoder.layer.1.attention.self.query.weight has the shape (32, 64), but the "
      "model needs (64, 64)");
  published_expect(&file, folder, "model.safetensors");
  *tensor = held;
  snprintf(file.names[tensor - file.tensors], sizeof *file.names, "esm.pooler.dense.weight");
  published_folder_write(&file, folder);
  published_expect(&file, folder,
                   "parameter esm.encoder.layer.1.attention.self.query.weight is missing");
  published_file_free(&file);
}

/* Also where values are not read, as in `validate` and `checkpoints`. */
static void quantized_weights_are_refused(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  const char *query = "esm.encoder.layer.1.attention.self.query.weight";
  struct plm_tensor_info *tensor = published_tensor(&file, query);
  tensor->dtype = PLM_U8;
  tensor->bytes /= 4;
  published_folder_write(&file, folder);
  published_expect(&file, folder, "use weights that are not quantized");
  assert_int_equal(plm_parameters_check(folder, PUBLISHED_WEIGHTS, &file.model, &error),
                   PLM_FORMAT);
  assert_non_null(strstr(error.what, "query.weight does not hold floating-point numbers"));
  published_file_free(&file);
}

/* config.json of a smaller model: the weights have more layers than it says. */
static void more_layers_than_expected_are_explained(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  file.model.num_hidden_layers = 1;
  assert_int_equal(plm_parameters_check(folder, PUBLISHED_WEIGHTS, &file.model, &error),
                   PLM_FORMAT);
  assert_non_null(strstr(error.what, "tensor esm.encoder.layer.1."));
  assert_non_null(strstr(error.what, "is not a parameter of the model"));
  assert_non_null(strstr(error.hint, "config.json may be that of another model"));
  published_file_free(&file);
}

static void damaged_shards_are_explained(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct published_file file = published_file_of(PLM_ESMC);
  published_folder_write(&file, folder);
  assert_int_equal(plm_path_join(path, folder, PUBLISHED_WEIGHTS, NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  const size_t first = file.count / 2;
  published_part_write(folder, "model-00001-of-00002.safetensors", file.tensors, first);
  published_part_write(folder, "model-00002-of-00002.safetensors", file.tensors + first,
                       file.count - first);
  char *index = calloc(file.count + 1, 160), *end;
  for (int outside = 0; outside < 2; outside++) {
    end = index + sprintf(index, "{\"weight_map\":{");
    for (size_t i = 0; i < file.count; i++)
      end += sprintf(end, "%s\"%s\":\"%smodel-0000%d-of-00002.safetensors\"", i == 0 ? "" : ",",
                     file.names[i], outside ? "../" : "", i < first ? 1 : 2);
    sprintf(end, "}}");
    published_put(folder, PUBLISHED_WEIGHTS ".index.json", index);
    published_expect(&file, folder,
                     outside ? "\"../model-00001-of-00002.safetensors\" is not a valid name"
                             : NULL);
    if (outside) published_expect(&file, folder, PUBLISHED_WEIGHTS ".index.json");
  }
  file.tensors[first].shape[0] /= 2;
  file.tensors[first].bytes /= 2;
  published_part_write(folder, "model-00002-of-00002.safetensors", file.tensors + first,
                       file.count - first);
  end = strstr(index, "../"); /* remove the outside again */
  for (; end != NULL; end = strstr(end, "../")) memmove(end, end + 3, strlen(end + 3) + 1);
  published_put(folder, PUBLISHED_WEIGHTS ".index.json", index);
  published_expect(&file, folder, " of model-00002-of-00002.safetensors has the shape");
  assert_int_equal(plm_path_join(path, folder, "model-00002-of-00002.safetensors", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  char what[256];
  snprintf(what, sizeof what,
           "the shard model-00002-of-00002.safetensors, which holds tensor %s, is missing",
           file.names[first]);
  published_expect(&file, folder, what);
  free(index);
  published_file_free(&file);
}

static void other_formats_get_a_command(void **state)
{
  (void)state;
  static const struct {
    const char *file, *hint;
  } formats[] = {{"pytorch_model.bin", "M.from_pretrained(d).save_pretrained(d)"},
                 {"pytorch_model-00001-of-00002.bin", "not pytorch_model-00001-of-00002.bin"},
                 {"esmc_300m_2024_12_v0.pth", "hf download"},
                 {"README.md", "there is a config.json, but no safetensors"}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    char folder[PLM_PATH_SIZE], command[PLM_PATH_SIZE];
    struct plm_model_folder found;
    struct plm_error error = {0};
    scratch_run(folder);
    published_put(folder, "config.json", "{}");
    published_put(folder, formats[i].file, "");
    assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_NOT_FOUND);
    if (strstr(error.hint, formats[i].hint) == NULL) fail_msg("%s", error.hint);
    /* the path of a stranger's folder is not put into a command if it could do something there */
    snprintf(command, sizeof command, "%.3000s/$(id)", folder);
    assert_int_equal(plm_directory_make(command, NULL), PLM_OK);
    published_put(command, "config.json", "{}");
    published_put(command, formats[i].file, "");
    assert_int_equal(plm_model_folder_check(command, &found, NULL, &error), PLM_NOT_FOUND);
    assert_null(strstr(error.hint, "$("));
  }
}

/* A file in the place of its folder. */
static void a_file_is_not_a_folder(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  published_folder_write(&file, folder);
  published_file_free(&file);
  assert_int_equal(plm_path_join(path, folder, PUBLISHED_WEIGHTS, NULL), PLM_OK);
  assert_int_equal(plm_model_folder_check(path, &found, NULL, &error), PLM_NOT_FOUND);
  assert_string_equal(error.what, "this is a file, not the folder of a model");
  assert_string_equal(error.where, path);
  assert_ptr_equal(strstr(error.hint, "give its folder"), error.hint);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_OK);
}

/* ---- heads --------------------------------------------------------------------------------- */

static const char frequencies[] = "esm.encoder.layer.1.attention.self.rotary_embeddings.inv_freq";
static const char esmc_frequencies[] = "esmc.rotary_emb.inv_freq";

/* No parameter shows how many heads there are, so another number would give other results. */
static void another_number_of_heads_is_found(void **state)
{
  static const struct {
    enum plm_architecture architecture;
    const char *name; /* of the tensor that shows it */
    int rank;
    uint64_t size;
    uint32_t heads;   /* that config.json has */
    const char *what; /* NULL: it fits */
  } rows[] = {
      {PLM_ESM2, PUBLISHED_CONTACTS "weight", 2, 8, 4, NULL},
      {PLM_ESM2, PUBLISHED_CONTACTS "weight", 2, 8, 2,
       "has the shape (1, 8), but the model needs (1, 4)"},
      {PLM_ESM2, PUBLISHED_CONTACTS "weight", 2, 8, 1,
       "has the shape (1, 8), but the model needs (1, 2)"},
      {PLM_ESM2, PUBLISHED_CONTACTS "weight", 1, 8, 4,
       "has the shape (8), but the model needs (1, 8)"},
      {PLM_ESM2, PUBLISHED_CONTACTS "bias", 1, 1, 2, NULL},
      {PLM_ESM2, frequencies, 1, 8, 4, NULL},
      {PLM_ESM2, frequencies, 1, 8, 2, "has the shape (8), but the model needs (16)"},
      {PLM_ESM2, frequencies, 1, 8, 1, "has the shape (8), but the model needs (32)"},
      {PLM_ESM2, "esm.rotary_embeddings.inv_freq", 1, 8, 2, "has the shape (8)"},
      {PLM_ESM2, "esm.embeddings.position_embeddings.weight", 1, 8, 2, NULL},
      {PLM_ESMC, esmc_frequencies, 1, 8, 4, NULL},
      {PLM_ESMC, esmc_frequencies, 1, 8, 2, "has the shape (8), but the model needs (16)"},
      {PLM_ESMC, "esmc.rotary_emb.original_inv_freq", 1, 8, 2, "has the shape (8)"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char folder[PLM_PATH_SIZE], what[256], hint[128];
    struct plm_error error = {0};
    struct published_file file = published_file_of(rows[i].architecture);
    published_add(&file, rows[i].name, PLM_F32, rows[i].rank, 1, rows[i].size, published_numbers);
    published_folder_write(&file, folder);
    file.model.num_attention_heads = rows[i].heads;
    const plm_status status = plm_parameters_check(folder, PUBLISHED_WEIGHTS, &file.model, &error);
    published_file_free(&file);
    if (rows[i].what == NULL) {
      if (status != PLM_OK) fail_msg("row %zu: %s", i, error.what);
      continue;
    }
    assert_int_equal(status, PLM_FORMAT);
    snprintf(what, sizeof what, "tensor %s %s", rows[i].name, rows[i].what);
    snprintf(hint, sizeof hint, "config.json says that num_attention_heads is %u, ", rows[i].heads);
    if (strstr(error.what, what) != error.what) fail_msg("row %zu: %s", i, error.what);
    assert_non_null(strstr(error.where, PUBLISHED_WEIGHTS));
    assert_ptr_equal(strstr(error.hint, hint), error.hint);
  }
}

/* Sizes that parameters show are reported for them. */
static void another_width_is_not_one_of_heads(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  file.model.hidden_size = 128;
  assert_int_equal(plm_parameters_check(folder, PUBLISHED_WEIGHTS, &file.model, &error),
                   PLM_FORMAT);
  assert_non_null(strstr(error.what, "word_embeddings.weight has the shape (33, 64)"));
  published_file_free(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_damaged_file_is_explained),
      cmocka_unit_test(quantized_weights_are_refused),
      cmocka_unit_test(more_layers_than_expected_are_explained),
      cmocka_unit_test(damaged_shards_are_explained),
      cmocka_unit_test(other_formats_get_a_command),
      cmocka_unit_test(a_file_is_not_a_folder),
      cmocka_unit_test(another_number_of_heads_is_found),
      cmocka_unit_test(another_width_is_not_one_of_heads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
