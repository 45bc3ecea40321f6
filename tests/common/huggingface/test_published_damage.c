/* Folders of published weights that are damaged, incomplete, or not what config.json says: each is
 * refused with a message that says what is wrong, where, and what to do. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
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
                 {"README.md", "save_pretrained wrote"}};
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_damaged_file_is_explained),
      cmocka_unit_test(damaged_shards_are_explained),
      cmocka_unit_test(other_formats_get_a_command),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
