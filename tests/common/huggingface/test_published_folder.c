/* Folders of published weights: the names that transformers' versions give to tensors, tensors that
 * are no parameters, the identity, and the contact head. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/carried_tensors.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/huggingface/contact_head.h"
#include "common/huggingface/folder_facts.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "tests/support/cases/published_file.h"

/* ---- names --------------------------------------------------------------------------------- */

static void names_of_all_versions_are_read(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct published_file file = published_file_of(PLM_ESM2);
  published_folder_write(&file, folder);
  published_expect(&file, folder, NULL);
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  published_expect(&file, folder, NULL);
  published_rename(&file, "LayerNorm.weight", "LayerNorm.gamma", "?");
  published_rename(&file, "LayerNorm.bias", "LayerNorm.beta", "?");
  assert_non_null(published_tensor(&file, "esm.encoder.layer.1.attention.LayerNorm.gamma"));
  published_folder_write(&file, folder);
  published_expect(&file, folder, NULL);
  published_file_free(&file);
  file = published_file_of(PLM_ESMC);
  published_add(&file, "esmc.rotary_emb.inv_freq", PLM_F32, 1, 1, 8, published_numbers);
  published_folder_write(&file, folder);
  published_expect(&file, folder, NULL);
  published_file_free(&file);
}

static void tensors_are_ignored_by_name_only(void **state)
{
  (void)state;
  static const char *const unknown[] = {
      "esm.encoder.layer.x.attention.self.rotary_embeddings.inv_freq",
      "esm.encoder.layer..attention.self.rotary_embeddings.inv_freq",
      "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq2",
      "rotary_embeddings.inv_freq",
      "esm.encoder.layer.2.LayerNorm.gamma",
      "esm.encoder.layer.0.LayerNorm.gamma", /* beside .weight */
      "lm_head.decoder.bias",
      "inv_freq",
  };
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    char folder[PLM_PATH_SIZE], what[256];
    struct published_file file = published_file_of(PLM_ESM2);
    published_add(&file, unknown[i], PLM_F32, 1, 1, 8, published_numbers);
    published_folder_write(&file, folder);
    snprintf(what, sizeof what, "tensor %s is not a parameter of the model", unknown[i]);
    published_expect(&file, folder, what);
    published_file_free(&file);
  }
}

/* EsmModel and EsmcModel write the names without their prefix. */
static void a_trunk_without_a_head_is_named(void **state)
{
  (void)state;
  static const struct {
    enum plm_architecture architecture;
    const char *prefix, *what;
  } kinds[] = {{PLM_ESM2, "esm.", "saved from EsmModel, without"},
               {PLM_ESMC, "esmc.", "saved from EsmcModel, without"}};
  for (size_t k = 0; k < 2; k++)
    for (int stripped = 0; stripped < 2; stripped++) {
      char folder[PLM_PATH_SIZE];
      struct published_file file = published_file_of(kinds[k].architecture);
      struct plm_error error = {0};
      while (strncmp(file.names[file.tensor_count - 1], "lm_head.", 8) == 0) file.tensor_count--;
      if (k == 0)
        published_add(&file, "esm.pooler.dense.bias", PLM_F32, 1, 1, 4, published_numbers);
      if (stripped) published_rename(&file, "?", "?", kinds[k].prefix);
      published_folder_write(&file, folder);
      published_expect(&file, folder, kinds[k].what);
      if (plm_parameters_check(folder, PUBLISHED_WEIGHTS, &file.model, &error) != PLM_OK)
        fail_msg("%s", error.what);
      published_file_free(&file);
    }
}

/* ---- identity and contact head ------------------------------------------------------------- */

static struct plm_hash identity_of(const char *folder)
{
  struct plm_model_folder found;
  struct plm_hash hash;
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_model_folder_hash(&found, PUBLISHED_WEIGHTS, &hash, NULL), PLM_OK);
  return hash;
}

static void the_identity_is_that_of_the_tensors(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct published_file file = published_file_of(PLM_ESM2);
  published_folder_write(&file, folder);
  const struct plm_hash whole = identity_of(folder);
  const struct plm_tensor_info held = file.tensors[0]; /* another order is the same */
  file.tensors[0] = file.tensors[3];
  file.tensors[3] = held;
  published_folder_write(&file, folder);
  assert_true(plm_hash_equal(identity_of(folder), whole));
  struct plm_tensor_info *other = file.tensors; /* the same bytes in another shape are not */
  while (other->rank != 2) other++;
  other->shape[0] *= 2;
  other->shape[1] /= 2;
  published_folder_write(&file, folder);
  assert_false(plm_hash_equal(identity_of(folder), whole));
  PLM_ASSERT(file.values != NULL && file.table != NULL);
  other->shape[0] /= 2;
  other->shape[1] *= 2;
  file.values[file.table[5].offset] += 1;
  published_folder_write(&file, folder);
  assert_false(plm_hash_equal(identity_of(folder), whole));
  published_file_free(&file);
}

static void the_contact_head_is_read(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_contact_head head;
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, PUBLISHED_WEIGHTS, &head, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "has no contact head"));
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, PUBLISHED_WEIGHTS, &head, &error), PLM_OK);
  assert_int_equal(head.count, PUBLISHED_LAYERS * PUBLISHED_HEADS);
  assert_memory_equal(head.weights, published_numbers,
                      PUBLISHED_LAYERS * PUBLISHED_HEADS * sizeof(float));
  assert_true(head.bias == -1);
  plm_contact_head_deinit(&head);
  published_tensor(&file, PUBLISHED_CONTACTS "weight")->shape[1] = 4;
  published_tensor(&file, PUBLISHED_CONTACTS "weight")->bytes = 16;
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, PUBLISHED_WEIGHTS, &head, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, PUBLISHED_CONTACTS "weight"));
  published_file_free(&file);
}

/* What a training writes has the contact head of the weights that it began with, unchanged. */
static void the_contact_head_is_carried(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_carried_tensors carried;
  struct plm_model_folder found;
  struct plm_contact_head head;
  struct published_file file = published_file_of(PLM_ESM2);
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  assert_int_equal(plm_path_join(path, folder, PUBLISHED_WEIGHTS, NULL), PLM_OK);
  assert_int_equal(plm_carried_tensors_read(path, file.table, file.count, &carried, NULL), PLM_OK);
  assert_int_equal(carried.count, 2);
  assert_int_equal(unlink(path), 0);
  for (size_t i = 0; i < file.elements; i++) file.values[i] *= 2; /* trained further */
  assert_int_equal(
      plm_parameters_write_with(path, file.table, file.count, file.values, NULL, &carried, NULL),
      PLM_OK);
  plm_carried_tensors_deinit(&carried);
  assert_int_equal(carried.count, 0);
  published_expect(&file, folder, NULL);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, PUBLISHED_WEIGHTS, &head, NULL), PLM_OK);
  assert_memory_equal(head.weights, published_numbers,
                      PUBLISHED_LAYERS * PUBLISHED_HEADS * sizeof(float));
  assert_true(head.bias == -1);
  plm_contact_head_deinit(&head);
  published_file_free(&file);
}

static void a_folder_is_described(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_folder_facts facts;
  struct plm_text text = {0};
  struct plm_error error = {0};
  struct published_file file = published_file_of(PLM_ESM2);
  published_add_ignored(&file);
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_folder_facts_read(&found, &facts, &error), PLM_OK);
  plm_folder_facts_print(&found, &facts, &text);
  assert_string_equal(text.data,
                      "ESM-2 (EsmForMaskedLM), 73,505 parameters in float32, 2 layers of "
                      "width 64 with 4 heads; one file, 0.3 MB; the language model's "
                      "head, and a contact head");
  plm_text_deinit(&text);
  while (strncmp(file.names[file.count - 1], "lm_head.", 8) == 0) file.count--;
  file.tensor_count = file.count;
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_folder_facts_read(&found, &facts, &error), PLM_OK);
  assert_string_equal(facts.class_name, "EsmModel");
  assert_int_equal(facts.head, PLM_HEAD_NONE);
  assert_false(facts.contact_head);
  assert_int_equal(facts.parameters, 73505 - 64 * 64 - 3 * 64 - 33);
  file.tensor_count = 3;
  published_folder_write(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_folder_facts_read(&found, &facts, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "is missing"));
  published_file_free(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_all_versions_are_read),
      cmocka_unit_test(tensors_are_ignored_by_name_only),
      cmocka_unit_test(a_trunk_without_a_head_is_named),
      cmocka_unit_test(the_identity_is_that_of_the_tensors),
      cmocka_unit_test(the_contact_head_is_read),
      cmocka_unit_test(the_contact_head_is_carried),
      cmocka_unit_test(a_folder_is_described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
