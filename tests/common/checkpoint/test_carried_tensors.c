/* The tensors that are copied from a weights file beside the parameters. */
#include "common/checkpoint/carried_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { TABLE = 2 };

static struct plm_parameter table[TABLE] = {
    {.name = "esm.embeddings.word_embeddings.weight"},
    {.name = "lm_head.dense.weight", .group = PLM_GROUP_HEAD},
};

static const float numbers[4] = {1, -2, 3.5F, 4};
static const uint16_t halves[2] = {0x3f80, 0xc000};

#define TENSOR(called, type, values, ...)                                                          \
  {                                                                                                \
    .name = (called), .dtype = (type), .rank = 2, .shape = {__VA_ARGS__}, .bytes = sizeof(values), \
    .data = (values)                                                                               \
  }

static void read_them(const struct plm_tensor_info *tensors, size_t count,
                      struct plm_carried_tensors *carried)
{
  struct plm_error error = {0};
  const char *path = scratch_path("carried.safetensors");
  must_work(plm_safetensors_write(path, tensors, count, NULL, 0, &error), &error);
  must_work(plm_carried_tensors_read(path, table, TABLE, carried, &error), &error);
}

/* Those of the contact head, in the order of the file, with all that describes them. What is
 * copied stays when the file is gone. */
static void the_contact_head_is_carried(void **state)
{
  (void)state;
  static const struct plm_tensor_info tensors[] = {
      TENSOR("esm.contact_head.regression.bias", PLM_BF16, halves, 2, 1),
      TENSOR("esm.contact_head.regression.weight", PLM_F32, numbers, 1, 4),
      TENSOR("esm.embeddings.word_embeddings.weight", PLM_F32, numbers, 2, 2),
      TENSOR("lm_head.dense.weight", PLM_F32, numbers, 4, 1),
  };
  struct plm_carried_tensors carried;
  read_them(tensors, 4, &carried);
  assert_int_equal(unlink(scratch_path("carried.safetensors")), 0);
  assert_int_equal(carried.count, 2);
  for (size_t i = 0; i < carried.count; i++) {
    bool found = false;
    const struct plm_tensor_info *tensor = &carried.tensors[i];
    for (size_t k = 0; k < 2; k++) {
      if (strcmp(tensor->name, tensors[k].name) != 0) continue;
      found = true;
      assert_int_equal(tensor->dtype, tensors[k].dtype);
      assert_int_equal(tensor->rank, 2);
      assert_memory_equal(tensor->shape, tensors[k].shape, 2 * sizeof *tensor->shape);
      assert_int_equal(tensor->bytes, tensors[k].bytes);
      assert_memory_equal(tensor->data, tensors[k].data, tensors[k].bytes);
    }
    assert_true(found);
  }
  assert_string_not_equal(carried.tensors[0].name, carried.tensors[1].name);
  plm_carried_tensors_deinit(&carried);
  assert_true(carried.count == 0 && carried.tensors == NULL);
  plm_carried_tensors_deinit(&carried);
}

static void most_files_have_none(void **state)
{
  (void)state;
  static const struct plm_tensor_info tensors[] = {
      TENSOR("esm.embeddings.word_embeddings.weight", PLM_F32, numbers, 2, 2),
      TENSOR("esm.pooler.dense.weight", PLM_F32, numbers, 2, 2),
  };
  struct plm_carried_tensors carried;
  read_them(tensors, 2, &carried);
  assert_int_equal(carried.count, 0);
  plm_carried_tensors_deinit(&carried);
}

/* A file with one tensor of `bytes` bytes, all of them 0, which take no room on the disk. */
static plm_status read_one(const char *name, const char *dtype, size_t bytes,
                           struct plm_carried_tensors *carried, struct plm_error *error)
{
  char header[256] = "", file[8 + sizeof header] = {0};
  const char *path = scratch_path("one.safetensors");
  int size = snprintf(header, sizeof header,
                      "{\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", name,
                      dtype, bytes, bytes);
  while (size % 8 != 0) header[size++] = ' ';
  file[0] = (char)size; /* little-endian */
  memcpy(file + 8, header, (size_t)size);
  scratch_write(path, file, 8 + (size_t)size);
  assert_int_equal(truncate(path, (off_t)(8 + (size_t)size + bytes)), 0);
  *error = (struct plm_error){0};
  return plm_carried_tensors_read(path, table, TABLE, carried, error);
}

/* A type that is not written here, and a size above 64 MB; tensors that are left out may have
 * either. */
static void what_cannot_be_carried_is_refused(void **state)
{
  (void)state;
  enum { MOST = 64 << 20 };
  static const char carried_name[] = "esm.contact_head.regression.bias",
                    other_name[] = "esm.embeddings.position_ids";
  static const struct {
    const char *dtype;
    size_t bytes;
    bool fits;
  } rows[] = {{"BOOL", 2, false}, {"U8", 2, true}, {"U8", MOST, true}, {"U8", MOST + 1, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_carried_tensors carried;
    struct plm_error error;
    const plm_status status =
        read_one(carried_name, rows[i].dtype, rows[i].bytes, &carried, &error);
    assert_int_equal(status, rows[i].fits ? PLM_OK : PLM_LIMIT);
    assert_int_equal(carried.count, rows[i].fits);
    if (!rows[i].fits) {
      assert_non_null(strstr(error.what, carried_name));
      assert_string_equal(error.where, scratch_path("one.safetensors"));
    }
    plm_carried_tensors_deinit(&carried);
    must_work(read_one(other_name, rows[i].dtype, rows[i].bytes, &carried, &error), &error);
    assert_int_equal(carried.count, 0);
    plm_carried_tensors_deinit(&carried);
  }
}

static void a_missing_file_is_an_error(void **state)
{
  (void)state;
  struct plm_carried_tensors carried = {.count = 7};
  assert_int_not_equal(
      plm_carried_tensors_read(scratch_path("none.safetensors"), table, TABLE, &carried, NULL),
      PLM_OK);
  assert_true(carried.count == 0 && carried.tensors == NULL);
}

/* 10000^(-2i/8), appended to what there was. Without a head of ESM-2 there is nothing. */
static void frequencies_of_each_layer_are_added(void **state)
{
  (void)state;
  static const struct plm_tensor_info head =
      TENSOR("esm.contact_head.regression.bias", PLM_BF16, halves, 2, 1);
  static const float expected[4] = {1, 0.1F, 0.01F, 0.001F};
  const struct plm_model_config model = {.architecture = PLM_ESM2,
                                         .hidden_size = 24,
                                         .num_attention_heads = 3,
                                         .num_hidden_layers = 2},
                                other = {.architecture = PLM_ESMC,
                                         .hidden_size = 24,
                                         .num_attention_heads = 3,
                                         .num_hidden_layers = 2};
  struct plm_carried_tensors carried;
  read_them(&head, 1, &carried);
  plm_carried_tensors_add_rotary(&carried, &other);
  assert_int_equal(carried.count, 1);
  plm_carried_tensors_add_rotary(&carried, &model);
  assert_int_equal(carried.count, 3);
  assert_string_equal(carried.tensors[0].name, head.name);
  for (int layer = 0; layer < 2; layer++) {
    const struct plm_tensor_info *tensor = &carried.tensors[1 + layer];
    char name[96];
    snprintf(name, sizeof name, "esm.encoder.layer.%d.attention.self.rotary_embeddings.inv_freq",
             layer);
    assert_string_equal(tensor->name, name);
    assert_true(tensor->dtype == PLM_F32 && tensor->rank == 1 && tensor->shape[0] == 4);
    assert_int_equal(tensor->bytes, sizeof expected);
    assert_memory_equal(tensor->data, expected, sizeof expected);
  }
  plm_carried_tensors_deinit(&carried);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_contact_head_is_carried),
      cmocka_unit_test(most_files_have_none),
      cmocka_unit_test(what_cannot_be_carried_is_refused),
      cmocka_unit_test(a_missing_file_is_an_error),
      cmocka_unit_test(frequencies_of_each_layer_are_added),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
