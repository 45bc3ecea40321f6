/* The tensors of frozen parameters: the bytes of the file, whatever their type, or of the values.
 */
#include "common/checkpoint/frozen_tensors.h"

#include <stdio.h>
#include <string.h>

#include "common/checkpoint/parameter_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { COUNT = 3 };

static const uint16_t halves[6] = {1, 2, 3, 4, 5, 6};
static const float numbers[2] = {7, 8};

static const struct plm_parameter parameters[COUNT] = {
    {"esm.embeddings.word_embeddings.weight", 2, 3, 2, PLM_GROUP_EMBED, .offset = 0, .count = 6,
     .frozen = true},
    {"esm.a.weight", 1, 2, 1, PLM_GROUP_HIDDEN, .offset = 16, .count = 2},
    {"esm.b.weight", 1, 2, 1, PLM_GROUP_HIDDEN, .offset = 32, .count = 2, .frozen = true},
};

/* `second`: the name and the type of what stands for esm.b.weight. */
static const char *write_file(const char *second, enum plm_dtype dtype)
{
  struct plm_error error = {0};
  const struct plm_tensor_info tensors[] = {{.name = parameters[0].name,
                                             .dtype = PLM_BF16,
                                             .rank = 2,
                                             .shape = {2, 3},
                                             .bytes = 12,
                                             .data = halves},
                                            {.name = "esm.a.weight",
                                             .dtype = PLM_F32,
                                             .rank = 1,
                                             .shape = {2},
                                             .bytes = 8,
                                             .data = numbers},
                                            {.name = second,
                                             .dtype = dtype,
                                             .rank = 1,
                                             .shape = {dtype == PLM_U8 ? 1u : 2u},
                                             .bytes = dtype == PLM_U8 ? 1 : 8,
                                             .data = numbers}};
  const char *path = scratch_path("weights.safetensors");
  must_work(plm_safetensors_write(path, tensors, COUNT, NULL, 0, &error), &error);
  return path;
}

static void has(const struct plm_tensor_info *tensor, const struct plm_parameter *parameter,
                enum plm_dtype dtype, const void *data, size_t bytes)
{
  assert_string_equal(tensor->name, parameter->name);
  assert_int_equal(tensor->dtype, dtype);
  assert_int_equal(tensor->rank, parameter->ndim);
  assert_int_equal(tensor->shape[0], parameter->ndim == 2 ? parameter->rows : parameter->cols);
  if (parameter->ndim == 2) assert_int_equal(tensor->shape[1], parameter->cols);
  assert_int_equal(tensor->bytes, bytes);
  assert_memory_equal(tensor->data, data, bytes);
}

static void bytes_of_the_file_are_kept(void **state)
{
  (void)state;
  struct plm_frozen_tensors frozen;
  struct plm_error error = {0};
  const char *path = write_file("esm.b.weight", PLM_F32);
  must_work(plm_frozen_tensors_read(path, parameters, COUNT, &frozen, &error), &error);
  assert_int_equal(frozen.count, COUNT);
  has(&frozen.tensors[0], &parameters[0], PLM_BF16, halves, sizeof halves);
  assert_null(frozen.tensors[1].data); /* it is trained */
  has(&frozen.tensors[2], &parameters[2], PLM_F32, numbers, sizeof numbers);
  plm_frozen_tensors_deinit(&frozen);
  assert_int_equal(frozen.count, 0);
  assert_null(frozen.tensors);
  static const struct {
    const char *name;
    enum plm_dtype dtype;
  } wrong[] = {{"esm.c.weight", PLM_F32}, {"esm.b.weight", PLM_U8}}; /* another, and too short */
  for (size_t i = 0; i < 2; i++) {
    path = write_file(wrong[i].name, wrong[i].dtype);
    assert_int_equal(plm_frozen_tensors_read(path, parameters, COUNT, &frozen, &error), PLM_FORMAT);
    assert_string_equal(error.what, "parameter esm.b.weight is missing");
    assert_string_equal(error.where, path);
    assert_int_equal(frozen.count, 0);
  }
}

static void values_are_copied(void **state)
{
  (void)state;
  struct plm_frozen_tensors frozen;
  struct plm_error error = {0};
  float values[40];
  for (int i = 0; i < 40; i++) values[i] = (float)i;
  must_work(plm_frozen_tensors_copy(values, parameters, COUNT, &frozen, &error), &error);
  assert_int_equal(frozen.count, COUNT);
  has(&frozen.tensors[0], &parameters[0], PLM_F32, values, 24);
  assert_null(frozen.tensors[1].data);
  has(&frozen.tensors[2], &parameters[2], PLM_F32, values + 32, 8);
  values[0] = 99; /* they are copies */
  assert_true(*(const float *)frozen.tensors[0].data == 0);
  plm_frozen_tensors_deinit(&frozen);
}

/* A file that is written takes them as they are, and the values of what is trained. */
static void they_are_written_with_what_is_trained(void **state)
{
  (void)state;
  struct plm_frozen_tensors frozen;
  struct plm_safetensors *file;
  struct plm_error error = {0};
  float values[40];
  for (int i = 0; i < 40; i++) values[i] = (float)i;
  const char *path = write_file("esm.b.weight", PLM_F32);
  must_work(plm_frozen_tensors_read(path, parameters, COUNT, &frozen, &error), &error);
  path = scratch_path("written.safetensors");
  must_work(plm_parameters_write_with(path, parameters, COUNT, values, &frozen, NULL, &error),
            &error);
  must_work(plm_safetensors_open(path, &file, &error), &error);
  assert_int_equal(plm_safetensors_count(file), COUNT);
  has(plm_safetensors_find(file, parameters[0].name), &parameters[0], PLM_BF16, halves, 12);
  has(plm_safetensors_find(file, "esm.a.weight"), &parameters[1], PLM_F32, values + 16, 8);
  has(plm_safetensors_find(file, "esm.b.weight"), &parameters[2], PLM_F32, numbers, 8);
  plm_safetensors_close(file);
  plm_frozen_tensors_deinit(&frozen); /* now all values are those of the run */
  must_work(plm_parameters_write_with(path, parameters, COUNT, values, &frozen, NULL, &error),
            &error);
  must_work(plm_safetensors_open(path, &file, &error), &error);
  has(plm_safetensors_find(file, parameters[0].name), &parameters[0], PLM_F32, values, 24);
  has(plm_safetensors_find(file, "esm.b.weight"), &parameters[2], PLM_F32, values + 32, 8);
  plm_safetensors_close(file);
}

/* Without any, no file is opened. */
static void nothing_is_kept_of_what_is_trained(void **state)
{
  (void)state;
  struct plm_frozen_tensors frozen = {.count = 5};
  struct plm_error error = {0};
  must_work(plm_frozen_tensors_read("/nowhere", &parameters[1], 1, &frozen, &error), &error);
  assert_int_equal(frozen.count, 0);
  frozen.count = 5;
  must_work(plm_frozen_tensors_copy(numbers, &parameters[1], 1, &frozen, &error), &error);
  assert_int_equal(frozen.count, 0);
  assert_null(frozen.tensors);
  plm_frozen_tensors_deinit(&frozen);
}

static void has_both(const struct plm_frozen_tensors *frozen)
{
  for (size_t i = 0; i < COUNT; i++)
    assert_int_equal(frozen->tensors[i].data != NULL, parameters[i].frozen);
}

static plm_status take_both(void *context, struct plm_error *error)
{
  static const float values[40];
  struct plm_frozen_tensors frozen;
  PLM_TRY(plm_frozen_tensors_read(context, parameters, COUNT, &frozen, error));
  has_both(&frozen);
  plm_frozen_tensors_deinit(&frozen);
  PLM_TRY(plm_frozen_tensors_copy(values, parameters, COUNT, &frozen, error));
  has_both(&frozen);
  plm_frozen_tensors_deinit(&frozen);
  return PLM_OK;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  failing_disk_try(take_both, (char *)write_file("esm.b.weight", PLM_F32), NULL);
  failing_memory_try(take_both, (char *)write_file("esm.b.weight", PLM_F32), 8);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_of_the_file_are_kept),
      cmocka_unit_test(values_are_copied),
      cmocka_unit_test(they_are_written_with_what_is_trained),
      cmocka_unit_test(nothing_is_kept_of_what_is_trained),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
