/* Folders of published weights: the names that transformers' versions give to tensors, tensors that
 * are no parameters, damage, the identity, and the contact head. */
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
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "tests/support/harness/scratch.h"

enum { EXTRA = 16, LAYERS = 2, HEADS = 4 };
#define WEIGHTS "model.safetensors"
#define HEAD "esm.contact_head.regression."

static struct plm_model_config small(enum plm_architecture architecture)
{
  const char *text =
      architecture == PLM_ESM2
          ? "{\"model_type\":\"esm\",\"vocab_size\":33,\"hidden_size\":64,\"num_hidden_layers\":2,"
            "\"num_attention_heads\":4,\"intermediate_size\":128,\"layer_norm_eps\":1e-05,"
            "\"token_dropout\":true,\"position_embedding_type\":\"rotary\"}"
          : "{\"model_type\":\"esmc\",\"hidden_size\":64,\"num_hidden_layers\":2,"
            "\"num_attention_heads\":4,\"intermediate_size\":256}";
  struct plm_model_config model;
  assert_int_equal(plm_huggingface_config_parse(text, strlen(text), &model, NULL, NULL, NULL),
                   PLM_OK);
  return model;
}

/* The tensors of a file, and the values that reading them has to give. */
struct file {
  struct plm_model_config model;
  struct plm_parameter *table;
  size_t count, elements, tensor_count;
  float *values;
  struct plm_tensor_info *tensors;
  char (*names)[128];
};

static struct file file_of(enum plm_architecture architecture)
{
  struct file file = {.model = small(architecture)};
  assert_int_equal(
      plm_model_parameters(&file.model, &file.table, &file.count, &file.elements, NULL), PLM_OK);
  file.values = calloc(file.elements, sizeof *file.values);
  plm_model_initialise(file.table, file.count, 3, file.values);
  file.tensors = calloc(file.count + EXTRA, sizeof *file.tensors);
  file.names = calloc(file.count + EXTRA, sizeof *file.names);
  file.tensor_count = file.count;
  for (size_t i = 0; i < file.count; i++) {
    struct plm_tensor_info *tensor = &file.tensors[i];
    snprintf(file.names[i], sizeof *file.names, "%s", file.table[i].name);
    *tensor = (struct plm_tensor_info){.name = file.names[i],
                                       .dtype = PLM_F32,
                                       .bytes = file.table[i].count * sizeof(float),
                                       .data = file.values + file.table[i].offset};
    tensor->rank = plm_parameter_shape(&file.table[i], tensor->shape);
  }
  return file;
}

static void file_free(struct file *file)
{
  free(file->table);
  free(file->values);
  free(file->tensors);
  free(file->names);
}

static struct plm_tensor_info *tensor_of(struct file *file, const char *name)
{
  for (size_t i = 0; i < file->tensor_count; i++)
    if (strcmp(file->names[i], name) == 0) return &file->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

static void add(struct file *file, const char *name, enum plm_dtype dtype, int rank, uint64_t rows,
                uint64_t cols, const void *data)
{
  struct plm_tensor_info *tensor = &file->tensors[file->tensor_count];
  assert_true(file->tensor_count < file->count + EXTRA);
  snprintf(file->names[file->tensor_count], sizeof *file->names, "%s", name);
  *tensor = (struct plm_tensor_info){.name = file->names[file->tensor_count++],
                                     .dtype = dtype,
                                     .rank = rank,
                                     .shape = {rank == 2 ? rows : cols, rank == 2 ? cols : 0},
                                     .bytes = rows * cols * (dtype == PLM_I64 ? 8 : 4),
                                     .data = data};
}

/* Puts `to` in the place of `from` at the end of names, and removes `drop` from their beginning. */
static void rename_all(struct file *file, const char *from, const char *to, const char *drop)
{
  for (size_t i = 0; i < file->tensor_count; i++) {
    char *name = file->names[i];
    const size_t length = strlen(name), end = strlen(from);
    if (length > end && strcmp(name + length - end, from) == 0)
      snprintf(name + length - end, sizeof *file->names - length + end, "%s", to);
    if (strncmp(name, drop, strlen(drop)) == 0)
      memmove(name, name + strlen(drop), strlen(name + strlen(drop)) + 1);
  }
}

static void put(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void write_part(const char *folder, const char *name, const struct plm_tensor_info *tensors,
                       size_t count)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_write(path, tensors, count, NULL, 0, NULL), PLM_OK);
}

static void write_folder(const struct file *file, char folder[PLM_PATH_SIZE])
{
  scratch_run(folder);
  char *config = plm_huggingface_config_print(&file->model, 0, PLM_OBJECTIVE_MLM);
  put(folder, "config.json", config);
  free(config);
  write_part(folder, WEIGHTS, file->tensors, file->tensor_count);
}

/* Reads the weights of a folder. wrong NULL: they are the file's values; otherwise the error has
 * this text, in any of its three parts. */
static void expect(const struct file *file, const char *folder, const char *wrong)
{
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  float *again = calloc(file->elements, sizeof *again);
  assert_int_equal(plm_path_join(path, folder, WEIGHTS, NULL), PLM_OK);
  const plm_status status = plm_parameters_read(path, file->table, file->count, again, &error);
  if (wrong == NULL) {
    if (status != PLM_OK) fail_msg("%s at %s", error.what, error.where);
    assert_memory_equal(again, file->values, file->elements * sizeof *again);
  } else if ((status != PLM_FORMAT && status != PLM_NOT_FOUND) ||
             (strstr(error.what, wrong) == NULL && strstr(error.where, wrong) == NULL &&
              strstr(error.hint, wrong) == NULL)) {
    fail_msg("\"%s\" is not in \"%s\" at \"%s\" (%s)", wrong, error.what, error.where, error.hint);
  }
  free(again);
}

/* ---- names --------------------------------------------------------------------------------- */

static const float numbers[64] = {0.5F, 0.25F, -1, 2};

static void add_ignored(struct file *file)
{
  static const int64_t positions[4] = {0, 1, 2, 3};
  const struct plm_tensor_info table = *tensor_of(file, "esm.embeddings.word_embeddings.weight");
  add(file, HEAD "weight", PLM_F32, 2, 1, LAYERS * HEADS, numbers);
  add(file, HEAD "bias", PLM_F32, 1, 1, 1, numbers + 2);
  add(file, "esm.embeddings.position_ids", PLM_I64, 2, 1, 4, positions);
  add(file, "esm.embeddings.position_embeddings.weight", PLM_F32, 2, 1, 4, numbers);
  add(file, "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq", PLM_F32, 1, 1, 8,
      numbers);
  add(file, "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq", PLM_F32, 1, 1, 8,
      numbers);
  add(file, "esm.rotary_embeddings.inv_freq", PLM_F32, 1, 1, 8, numbers);
  file->tensors[file->tensor_count] = table;
  snprintf(file->names[file->tensor_count], sizeof *file->names, "lm_head.decoder.weight");
  file->tensors[file->tensor_count].name = file->names[file->tensor_count];
  file->tensor_count++;
}

static void names_of_all_versions_are_read(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct file file = file_of(PLM_ESM2);
  write_folder(&file, folder);
  expect(&file, folder, NULL);
  add_ignored(&file);
  write_folder(&file, folder);
  expect(&file, folder, NULL);
  rename_all(&file, "LayerNorm.weight", "LayerNorm.gamma", "?");
  rename_all(&file, "LayerNorm.bias", "LayerNorm.beta", "?");
  assert_non_null(tensor_of(&file, "esm.encoder.layer.1.attention.LayerNorm.gamma"));
  write_folder(&file, folder);
  expect(&file, folder, NULL);
  file_free(&file);
  file = file_of(PLM_ESMC);
  add(&file, "esmc.rotary_emb.inv_freq", PLM_F32, 1, 1, 8, numbers);
  write_folder(&file, folder);
  expect(&file, folder, NULL);
  file_free(&file);
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
    struct file file = file_of(PLM_ESM2);
    add(&file, unknown[i], PLM_F32, 1, 1, 8, numbers);
    write_folder(&file, folder);
    snprintf(what, sizeof what, "tensor %s is not a parameter of the model", unknown[i]);
    expect(&file, folder, what);
    file_free(&file);
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
      struct file file = file_of(kinds[k].architecture);
      struct plm_error error = {0};
      while (strncmp(file.names[file.tensor_count - 1], "lm_head.", 8) == 0) file.tensor_count--;
      if (k == 0) add(&file, "esm.pooler.dense.bias", PLM_F32, 1, 1, 4, numbers);
      if (stripped) rename_all(&file, "?", "?", kinds[k].prefix);
      write_folder(&file, folder);
      expect(&file, folder, kinds[k].what);
      if (plm_parameters_check(folder, WEIGHTS, &file.model, &error) != PLM_OK)
        fail_msg("%s", error.what);
      file_free(&file);
    }
}

/* ---- damage -------------------------------------------------------------------------------- */

static void a_damaged_file_is_explained(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct file file = file_of(PLM_ESM2);
  const char *query = "esm.encoder.layer.1.attention.self.query.weight";
  struct plm_tensor_info *tensor = tensor_of(&file, query), held = *tensor;
  tensor->shape[0] = 32;
  tensor->bytes /= 2;
  write_folder(&file, folder);
  expect(&file, folder,
         "tensor esm.encoder.layer.1.attention.self.query.weight has the shape (32, 64), but the "
         "model needs (64, 64)");
  expect(&file, folder, "model.safetensors");
  *tensor = held;
  snprintf(file.names[tensor - file.tensors], sizeof *file.names, "esm.pooler.dense.weight");
  write_folder(&file, folder);
  expect(&file, folder, "parameter esm.encoder.layer.1.attention.self.query.weight is missing");
  file_free(&file);
}

static void damaged_shards_are_explained(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct file file = file_of(PLM_ESMC);
  write_folder(&file, folder);
  assert_int_equal(plm_path_join(path, folder, WEIGHTS, NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  const size_t first = file.count / 2;
  write_part(folder, "model-00001-of-00002.safetensors", file.tensors, first);
  write_part(folder, "model-00002-of-00002.safetensors", file.tensors + first, file.count - first);
  char *index = calloc(file.count + 1, 160), *end;
  for (int outside = 0; outside < 2; outside++) {
    end = index + sprintf(index, "{\"weight_map\":{");
    for (size_t i = 0; i < file.count; i++)
      end += sprintf(end, "%s\"%s\":\"%smodel-0000%d-of-00002.safetensors\"", i == 0 ? "" : ",",
                     file.names[i], outside ? "../" : "", i < first ? 1 : 2);
    sprintf(end, "}}");
    put(folder, WEIGHTS ".index.json", index);
    expect(&file, folder,
           outside ? "\"../model-00001-of-00002.safetensors\" is not a valid name" : NULL);
    if (outside) expect(&file, folder, WEIGHTS ".index.json");
  }
  file.tensors[first].shape[0] /= 2;
  file.tensors[first].bytes /= 2;
  write_part(folder, "model-00002-of-00002.safetensors", file.tensors + first, file.count - first);
  end = strstr(index, "../"); /* remove the outside again */
  for (; end != NULL; end = strstr(end, "../")) memmove(end, end + 3, strlen(end + 3) + 1);
  put(folder, WEIGHTS ".index.json", index);
  expect(&file, folder, " of model-00002-of-00002.safetensors has the shape");
  assert_int_equal(plm_path_join(path, folder, "model-00002-of-00002.safetensors", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  char what[256];
  snprintf(what, sizeof what,
           "the shard model-00002-of-00002.safetensors, which holds tensor %s, is missing",
           file.names[first]);
  expect(&file, folder, what);
  free(index);
  file_free(&file);
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
    put(folder, "config.json", "{}");
    put(folder, formats[i].file, "");
    assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_NOT_FOUND);
    if (strstr(error.hint, formats[i].hint) == NULL) fail_msg("%s", error.hint);
    /* the path of a stranger's folder is not put into a command if it could do something there */
    snprintf(command, sizeof command, "%.3000s/$(id)", folder);
    assert_int_equal(plm_directory_make(command, NULL), PLM_OK);
    put(command, "config.json", "{}");
    put(command, formats[i].file, "");
    assert_int_equal(plm_model_folder_check(command, &found, NULL, &error), PLM_NOT_FOUND);
    assert_null(strstr(error.hint, "$("));
  }
}

/* ---- identity and contact head ------------------------------------------------------------- */

static struct plm_hash identity_of(const char *folder)
{
  struct plm_model_folder found;
  struct plm_hash hash;
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_model_folder_hash(&found, WEIGHTS, &hash, NULL), PLM_OK);
  return hash;
}

static void the_identity_is_that_of_the_tensors(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct file file = file_of(PLM_ESM2);
  write_folder(&file, folder);
  const struct plm_hash whole = identity_of(folder);
  const struct plm_tensor_info held = file.tensors[0]; /* another order is the same */
  file.tensors[0] = file.tensors[3];
  file.tensors[3] = held;
  write_folder(&file, folder);
  assert_true(plm_hash_equal(identity_of(folder), whole));
  struct plm_tensor_info *other = file.tensors; /* the same bytes in another shape are not */
  while (other->rank != 2) other++;
  other->shape[0] *= 2;
  other->shape[1] /= 2;
  write_folder(&file, folder);
  assert_false(plm_hash_equal(identity_of(folder), whole));
  PLM_ASSERT(file.values != NULL && file.table != NULL);
  other->shape[0] /= 2;
  other->shape[1] *= 2;
  file.values[file.table[5].offset] += 1;
  write_folder(&file, folder);
  assert_false(plm_hash_equal(identity_of(folder), whole));
  file_free(&file);
}

static void the_contact_head_is_read(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_contact_head head;
  struct plm_error error = {0};
  struct file file = file_of(PLM_ESM2);
  write_folder(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, WEIGHTS, &head, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "has no contact head"));
  add_ignored(&file);
  write_folder(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, WEIGHTS, &head, &error), PLM_OK);
  assert_int_equal(head.count, LAYERS * HEADS);
  assert_memory_equal(head.weights, numbers, LAYERS * HEADS * sizeof(float));
  assert_true(head.bias == -1);
  plm_contact_head_deinit(&head);
  tensor_of(&file, HEAD "weight")->shape[1] = 4;
  tensor_of(&file, HEAD "weight")->bytes = 16;
  write_folder(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, WEIGHTS, &head, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, HEAD "weight"));
  file_free(&file);
}

/* What a training writes has the contact head of the weights that it began with, unchanged. */
static void the_contact_head_is_carried(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_carried_tensors carried;
  struct plm_model_folder found;
  struct plm_contact_head head;
  struct file file = file_of(PLM_ESM2);
  add_ignored(&file);
  write_folder(&file, folder);
  assert_int_equal(plm_path_join(path, folder, WEIGHTS, NULL), PLM_OK);
  assert_int_equal(plm_carried_tensors_read(path, file.table, file.count, &carried, NULL), PLM_OK);
  assert_int_equal(carried.count, 2);
  assert_int_equal(unlink(path), 0);
  for (size_t i = 0; i < file.elements; i++) file.values[i] *= 2; /* trained further */
  assert_int_equal(
      plm_parameters_write_with(path, file.table, file.count, file.values, NULL, &carried, NULL),
      PLM_OK);
  plm_carried_tensors_deinit(&carried);
  assert_int_equal(carried.count, 0);
  expect(&file, folder, NULL);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_contact_head_read(&found, WEIGHTS, &head, NULL), PLM_OK);
  assert_memory_equal(head.weights, numbers, LAYERS * HEADS * sizeof(float));
  assert_true(head.bias == -1);
  plm_contact_head_deinit(&head);
  file_free(&file);
}

static void a_folder_is_described(void **state)
{
  (void)state;
  char folder[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_folder_facts facts;
  struct plm_text text = {0};
  struct plm_error error = {0};
  struct file file = file_of(PLM_ESM2);
  add_ignored(&file);
  write_folder(&file, folder);
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
  write_folder(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_folder_facts_read(&found, &facts, &error), PLM_OK);
  assert_string_equal(facts.class_name, "EsmModel");
  assert_int_equal(facts.head, PLM_HEAD_NONE);
  assert_false(facts.contact_head);
  assert_int_equal(facts.parameters, 73505 - 64 * 64 - 3 * 64 - 33);
  file.tensor_count = 3;
  write_folder(&file, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, NULL), PLM_OK);
  assert_int_equal(plm_folder_facts_read(&found, &facts, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "is missing"));
  file_free(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_of_all_versions_are_read),
      cmocka_unit_test(tensors_are_ignored_by_name_only),
      cmocka_unit_test(a_trunk_without_a_head_is_named),
      cmocka_unit_test(a_damaged_file_is_explained),
      cmocka_unit_test(damaged_shards_are_explained),
      cmocka_unit_test(other_formats_get_a_command),
      cmocka_unit_test(the_identity_is_that_of_the_tensors),
      cmocka_unit_test(the_contact_head_is_read),
      cmocka_unit_test(the_contact_head_is_carried),
      cmocka_unit_test(a_folder_is_described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
