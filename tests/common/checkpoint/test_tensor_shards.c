/* The tensors of a single file and those of an index with shards, and each way in which an index
 * and its shards may disagree. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/tensor_shards.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE];

static int begin(void **state)
{
  (void)state;
  scratch_run(folder);
  return 0;
}

static const char *path_of(const char *name)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  return path;
}

/* Writes a file of empty tensors with these one-letter names. */
static void write_tensors(const char *name, const char *letters)
{
  char header[1000] = "{";
  unsigned char bytes[1008] = {0};
  for (size_t i = 0; letters[i] != '\0'; i++) {
    const size_t used = strlen(header);
    snprintf(header + used, sizeof header - used,
             "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i > 0 ? "," : "",
             letters[i]);
  }
  strcat(header, "}");
  while (strlen(header) % 8 != 0) strcat(header, " ");
  const size_t size = strlen(header);
  bytes[0] = (unsigned char)size;
  bytes[1] = (unsigned char)(size >> 8);
  memcpy(bytes + 8, header, size);
  scratch_write(path_of(name), bytes, size + 8);
}

static void write_index(const char *json)
{
  scratch_write(path_of("m.index.json"), json, strlen(json));
}

static struct plm_tensor_shards *open_files(const char *path)
{
  struct plm_tensor_shards *files;
  struct plm_error error = {0};
  if (plm_tensor_shards_open(path, &files, &error) != PLM_OK)
    fail_msg("%s (%s)", error.what, error.where);
  return files;
}

/* Tensor i is this one, of this shard (NULL: of a single file). */
static void has(const struct plm_tensor_shards *files, size_t i, const char *name,
                const char *shard)
{
  const struct plm_tensor_info *tensor = plm_tensor_shards_at(files, i);
  assert_string_equal(tensor->name, name);
  assert_ptr_equal(plm_tensor_shards_find(files, name), tensor);
  const char *of = plm_tensor_shards_name(files, tensor);
  if (shard == NULL)
    assert_null(of);
  else
    assert_string_equal(of, shard);
}

static void a_single_file_has_its_tensors(void **state)
{
  (void)state;
  write_tensors("m", "abc");
  write_tensors("one", "d");
  write_index("{\"weight_map\":{\"d\":\"one\"}}"); /* it counts only without the file */
  struct plm_tensor_shards *files = open_files(path_of("m"));
  assert_int_equal(plm_tensor_shards_count(files), 3);
  has(files, 0, "a", NULL);
  has(files, 1, "b", NULL);
  has(files, 2, "c", NULL);
  assert_null(plm_tensor_shards_find(files, "d"));
  plm_tensor_shards_close(files);
  plm_tensor_shards_close(NULL);
}

static void an_index_has_the_tensors_of_all_shards(void **state)
{
  (void)state;
  write_tensors("one", "ad");
  write_tensors("two", "b");
  write_tensors("three", "ce");
  write_index("{\"metadata\":{},\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"three\","
              "\"d\":\"one\",\"e\":\"three\"}}");
  struct plm_tensor_shards *files = open_files(path_of("m"));
  assert_int_equal(plm_tensor_shards_count(files), 5);
  has(files, 0, "a", "one");
  has(files, 1, "d", "one");
  has(files, 2, "b", "two");
  has(files, 3, "c", "three");
  has(files, 4, "e", "three");
  assert_null(plm_tensor_shards_find(files, "f"));
  const struct plm_tensor_info *other = plm_tensor_shards_at(files, 0), copy = *other;
  assert_null(plm_tensor_shards_name(files, &copy)); /* it is none of these files */
  plm_tensor_shards_close(files);
}

/* The shards lie in the working directory too. */
static void a_path_may_have_no_folder(void **state)
{
  (void)state;
  char before[PLM_PATH_SIZE];
  write_tensors("one", "a");
  write_index("{\"weight_map\":{\"a\":\"one\"}}");
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  struct plm_tensor_shards *files = open_files("m");
  has(files, 0, "a", "one");
  plm_tensor_shards_close(files);
  assert_int_equal(chdir(before), 0);
}

/* what: of the message; where: whether the message names the index */
static void refuses(plm_status status, const char *what, bool where)
{
  struct plm_tensor_shards *files = (void *)&status;
  struct plm_error error = {0};
  assert_int_equal(plm_tensor_shards_open(path_of("m"), &files, &error), status);
  assert_null(files);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\" is not \"%s\"", error.what, what);
  assert_int_equal(where, strcmp(error.where, path_of("m.index.json")) == 0);
  if (where) assert_string_not_equal(error.hint, ""); /* it says what to do */
}

static void neither_file_nor_index_is_not_found(void **state)
{
  (void)state;
  refuses(PLM_NOT_FOUND, "/m", false);
}

static void the_map_has_to_be_an_object_of_names(void **state)
{
  (void)state;
  static const char none[] = "\"weight_map\" is missing, empty or not an object";
  write_tensors("one", "a");
  write_index("{}");
  refuses(PLM_FORMAT, none, true);
  write_index("{\"weight_map\":{}}");
  refuses(PLM_FORMAT, none, true);
  write_index("{\"weight_map\":[\"one\"]}");
  refuses(PLM_FORMAT, none, true);
  write_index("{\"weight_map\":{\"a\":1}}");
  refuses(PLM_FORMAT, "tensor a has no shard", true);
  write_index("{\"weight_map\":{\"a\":\"one\"}");
  struct plm_tensor_shards *files;
  assert_int_equal(plm_tensor_shards_open(path_of("m"), &files, NULL), PLM_FORMAT);
}

static void a_shard_is_a_plain_name(void **state)
{
  (void)state;
  char json[400], name[300], what[400];
  static const char *const wrong[] = {"", "/one", "one/", "a/b", ".one", ".."};
  write_tensors("one", "a");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(json, sizeof json, "{\"weight_map\":{\"a\":\"%s\"}}", wrong[i]);
    write_index(json);
    snprintf(what, sizeof what, "tensor a: \"%s\" is not a valid name of a shard", wrong[i]);
    refuses(PLM_FORMAT, what, true);
  }
  for (int length = 255; length <= 256; length++) { /* a file system knows 255 bytes at most */
    snprintf(name, sizeof name, "%0*d", length, 1);
    snprintf(json, sizeof json, "{\"weight_map\":{\"a\":\"%s\"}}", name);
    write_index(json);
    refuses(length == 255 ? PLM_NOT_FOUND : PLM_FORMAT,
            length == 255 ? "00001" : "is not a valid name of a shard", true);
  }
}

static void index_and_shards_list_the_same_tensors(void **state)
{
  (void)state;
  write_tensors("one", "ab");
  write_tensors("two", "c");
  write_index("{\"weight_map\":{\"a\":\"one\",\"b\":\"one\",\"c\":\"one\"}}");
  refuses(PLM_FORMAT, "tensor c is not in one", true);
  write_index("{\"weight_map\":{\"c\":\"two\",\"a\":\"one\"}}");
  refuses(PLM_FORMAT, "the shards have 3 tensors, but the index lists 2: it lacks b of one", true);
  write_tensors("two", "abc"); /* the index lists the others of these names */
  write_index("{\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"two\"}}");
  refuses(PLM_FORMAT, "the shards have 5 tensors, but the index lists 3: it lacks b of one", true);
  write_index("{\"weight_map\":{\"b\":\"one\",\"c\":\"two\",\"a\":\"one\"}}");
  refuses(PLM_FORMAT, "the shards have 5 tensors, but the index lists 3: it lacks a of two", true);
  write_index("{\"weight_map\":{\"a\":\"one\",\"b\":\"one\"}}");
  plm_tensor_shards_close(open_files(path_of("m")));
}

static void a_shard_that_cannot_be_read_is_an_error(void **state)
{
  (void)state;
  write_tensors("one", "a");
  scratch_write(path_of("two"), "x", 1);
  write_index("{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
  struct plm_tensor_shards *files = (void *)folder;
  struct plm_error error = {0};
  assert_int_equal(plm_tensor_shards_open(path_of("m"), &files, &error), PLM_FORMAT);
  assert_null(files);
  if (strstr(error.where, "/two") == NULL) fail_msg("%s: %s", error.where, error.what);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(a_single_file_has_its_tensors),
      TEST(an_index_has_the_tensors_of_all_shards),
      TEST(a_path_may_have_no_folder),
      TEST(neither_file_nor_index_is_not_found),
      TEST(the_map_has_to_be_an_object_of_names),
      TEST(a_shard_is_a_plain_name),
      TEST(index_and_shards_list_the_same_tensors),
      TEST(a_shard_that_cannot_be_read_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
