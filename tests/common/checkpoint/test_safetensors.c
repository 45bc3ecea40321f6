/* safetensors: written files are read back, and each broken rule of the format is named. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

/* Makes a file of a header and data; the caller frees it. */
static unsigned char *file_make(const char *header, size_t data_size, size_t *size)
{
  const size_t length = strlen(header), padded = (length + 7) / 8 * 8;
  unsigned char *bytes = calloc(1, 8 + padded + data_size);
  assert_non_null(bytes);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(padded >> (8 * i));
  memcpy(bytes + 8, header, length);
  memset(bytes + 8 + length, ' ', padded - length);
  *size = 8 + padded + data_size;
  return bytes;
}

static void expect(const char *header, size_t data_size, plm_status expected, const char *says)
{
  size_t size;
  struct plm_error error = {0};
  struct plm_safetensors *file = NULL;
  unsigned char *bytes = file_make(header, data_size, &size);
  const plm_status status = plm_safetensors_parse(bytes, size, "some/file", &file, &error);
  if (status != expected || (says && !strstr(error.what, says)))
    fail_msg("%s\n  gave \"%s\", not \"%s\"", header, error.what, says ? says : "success");
  if (says) assert_string_equal(error.where, "some/file");
  if (status == PLM_FORMAT) assert_non_null(strstr(error.hint, "get it again"));
  plm_safetensors_close(file);
  free(bytes);
}

#define T(name, dtype, shape, begin, end)                                                        \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
  "]}"

/* Prints a header of empty tensors; the caller frees it. */
static char *header_of(size_t tensors)
{
  char *header = malloc(tensors * 64 + 3), *next = header;
  assert_non_null(header);
  *next++ = '{';
  for (size_t i = 0; i < tensors; i++)
    next += sprintf(next, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                    i == 0 ? "" : ",", i);
  snprintf(next, 2, "}");
  return header;
}

static void headers_of_too_many_tensors_are_refused(void **state)
{
  (void)state;
  static const struct {
    size_t tensors;
    plm_status status;
    const char *says;
  } cases[] = {
      {PLM_SAFETENSORS_MAX_TENSORS, PLM_OK, NULL},
      {PLM_SAFETENSORS_MAX_TENSORS + 1, PLM_LIMIT, "65537 tensors exceed the limit of 65536"},
      {380000, PLM_LIMIT, "values; the limit is"}, /* 20 MB, which cJSON would make 800 MB of */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *header = header_of(cases[i].tensors);
    expect(header, 0, cases[i].status, cases[i].says);
    free(header);
  }
}

static void good_files_pass(void **state)
{
  (void)state;
  expect("{}", 0, PLM_OK, NULL);
  expect("{\"__metadata__\":{}}", 0, PLM_OK, NULL);
  expect("{" T("a", "F32", "[2,3]", 0, 24) "}", 24, PLM_OK, NULL);
  expect("{" T("b", "U8", "[]", 24, 25) "," T("a", "F32", "[2,3]", 0, 24) "}", 25, PLM_OK, NULL);
  expect("{ \"__metadata__\" : {\"format\":\"pt\"}, " T("a", "BF16", "[1]", 0, 2) "}", 2, PLM_OK,
         NULL);
  expect("{" T("empty", "F32", "[0,5]", 4, 4) "," T("a", "I32", "[1]", 0, 4) "}", 4, PLM_OK, NULL);
  expect("{" T("\\u00e9\\n", "U8", "[1]", 0, 1) "}", 1, PLM_OK, NULL);
  expect("{" T("\\ud83e\\uddec", "U8", "[1]", 0, 1) "}", 1, PLM_OK, NULL);
  expect("{" T("none", "F32", "[0,9007199254740992,9007199254740992]", 0, 0) "}", 0, PLM_OK, NULL);
  expect("{" T("f4", "F4", "[3,2]", 0, 3) "}", 3, PLM_OK, NULL);
  expect("{" T("f6", "F6_E2M3", "[4]", 0, 3) "}", 3, PLM_OK, NULL);
  expect("{" T("c", "C64", "[]", 0, 8) "}", 8, PLM_OK, NULL);
}

static void broken_rules_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *header;
    size_t data_size;
    const char *says;
  } cases[] = {
      /* the JSON */
      {"", 0, "does not begin with {"},
      {" {}", 0, "does not begin with {"},
      {"[]", 0, "does not begin with {"},
      {"{", 0, "invalid JSON"},
      {"{}}", 0, "an unmatched closing bracket"},
      {"{}{}", 0, "something follows the object"},
      {"{} ,", 0, "something follows the object"},
      {"{}\n", 0, "padded with something other than spaces"},
      {"{\"a\":nul}", 0, "invalid JSON"},
      {"{\"a\":1,}", 0, "invalid JSON"},
      {"{'a':1}", 0, "an unexpected character"},
      {"{\"a\":[[[[]]]]}", 0, "nested too deeply"},
      {"{\"a\x01\":1}", 0, "a control character"},
      {"{\"a\\u0000b\":1}", 0, "U+0000"},
      {"{\"a\xff\":1}", 0, "invalid UTF-8"},
      {"{\"\xc0\xaf\":1}", 0, "invalid UTF-8"},
      {"{\"\xed\xa0\x80\":1}", 0, "invalid UTF-8"},
      {"{\"a", 0, "an unterminated string"},
      {"{\x01\"a\":1}", 0, "an unexpected character"},
      {"\xef\xbb\xbf{}", 0, "does not begin with {"},
      {"{\"a\\x\":1}", 0, "an invalid escape"},
      {"{\"a\\u00[9\":1}", 0, "an invalid escape"},
      {"{\"a\\u12\":1}", 0, "an invalid escape"},
      {"{\"a\\", 0, "an invalid escape"},
      {"{\"\\ud800\":1}", 0, "invalid JSON"},
      {"{\"\\udc00\":1}", 0, "invalid JSON"},
      {"{\"a\":1 \"b\":1}", 0, "invalid JSON"},
      {"{\"a\":NaN}", 0, "an unexpected character"},
      /* names */
      {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, "\"a\" occurs twice"},
      {"{" T("a", "U8", "[1]", 0, 1) "," T("\\u0061", "U8", "[1]", 1, 2) "}", 2,
       "\"a\" occurs twice"},
      {"{" T("", "U8", "[1]", 0, 1) "}", 1, "an empty name"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" occurs twice"},
      {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "\"k\" occurs twice"},
      {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1]}}", 1, "\"dtype\" occurs twice"},
      /* metadata */
      {"{\"__metadata__\":3}", 0, "__metadata__ is not an object"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "entry k is not a string"},
      {"{\"__metadata__\":{\"k\":null}}", 0, "entry k is not a string"},
      {"{\"__metadata__\":{\"k\":{}}}", 0, "entry k is not a string"},
      {"{\"__metadata__\":null}", 0, "__metadata__ is not an object"},
      {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
      /* entries */
      {"{\"a\":1}", 0, "is not an object of dtype"},
      {"{\"a\":{}}", 0, "is not an object of dtype"},
      {"{\"a\":null}", 0, "is not an object of dtype"},
      {"{\"a\":[\"U8\",[1],[0,1]]}", 1, "is not an object of dtype"},
      {"{\"a\":{\"dtype\":{\"U8\":null},\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", 1, "nested too deeply"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1,
       "is not an object of dtype"},
      {"{\"a\":{\"type\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype"},
      {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype"},
      {"{\"a\":{\"dtype\":\"U8\",\"shapes\":[1],\"data_offsets\":[0,1]}}", 1, "no shape"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"offsets\":[0,1]}}", 1, "no data_offsets"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "no data_offsets"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "no data_offsets"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[\"0\",1]}}", 1, "no data_offsets"},
      {"{" T("a", "f32", "[1]", 0, 4) "}", 4, "unknown dtype f32"},
      {"{" T("a", "U8", "[\"1\"]", 0, 1) "}", 1, "holds something other than counts"},
      {"{" T("a", "U8", "1", 0, 1) "}", 1, "no shape"},
      /* numbers */
      {"{" T("a", "U8", "[-1]", 0, 1) "}", 1, "not a non-negative integer"},
      {"{" T("a", "U8", "[1.0]", 0, 1) "}", 1, "not a non-negative integer"},
      {"{" T("a", "U8", "[1e0]", 0, 1) "}", 1, "not a non-negative integer"},
      {"{" T("a", "U8", "[01]", 0, 1) "}", 1, "a malformed number"},
      {"{" T("a", "U8", "[9007199254740993]", 0, 1) "}", 1, "beyond 2^53"},
      {"{" T("a", "U8", "[99999999999999999999]", 0, 1) "}", 1, "beyond 2^53"},
      {"{" T("a", "U8", "[9007199254740992,9007199254740992]", 0, 1) "}", 1,
       "than the address space"},
      {"{" T("a", "U8", "[9007199254740992,9007199254740992,0]", 0, 0) "}", 0, "the address space"},
      {"{" T("a", "F64", "[9007199254740992,1024]", 0, 0) "}", 0, "than the address space"},
      {"{" T("a", "U8", "[-0]", 0, 0) "}", 0, "not a non-negative integer"},
      {"{" T("a", "U8", "[true]", 0, 1) "}", 1, "holds something other than counts"},
      {"{" T("a", "F4", "[3]", 0, 2) "}", 2, "does not fill its last byte: 3 elements of 4 bits"},
      {"{" T("a", "F6_E3M2", "[2]", 0, 2) "}", 2, "does not fill its last byte"},
      /* ranges */
      {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "but its shape and dtype need 8"},
      {"{" T("a", "F32", "[1]", 0, 8) "}", 8, "but its shape and dtype need 4"},
      {"{" T("a", "F32", "[]", 0, 0) "}", 0, "but its shape and dtype need 4"},
      {"{" T("a", "U8", "[1]", 1, 0) "}", 1, "ends at byte 0"},
      {"{" T("a", "U8", "[2]", 0, 2) "}", 1, "ends at byte 2 of 1"},
      {"{" T("a", "U8", "[1]", 1, 2) "}", 2, "there are unused bytes before tensor a"},
      {"{" T("a", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 2, 3) "}", 3, "before tensor b"},
      {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}", 3, "overlaps"},
      {"{" T("a", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 0, 1) "}", 1, "overlaps"},
      {"{" T("z", "U8", "[0]", 1, 1) "," T("a", "U8", "[2]", 0, 2) "}", 2, "overlaps"},
      {"{" T("a", "U8", "[1]", 0, 1) "}", 2, "1 unused bytes after the last tensor"},
      {"{}", 3, "3 unused bytes after the last tensor"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect(cases[i].header, cases[i].data_size, PLM_FORMAT, cases[i].says);
  expect("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, PLM_LIMIT, "more than 8 dimensions");
}

static void broken_lengths_are_named(void **state)
{
  (void)state;
  static const struct {
    uint64_t header_size;
    size_t size;
    plm_status status;
    const char *says;
  } cases[] = {
      {0, 7, PLM_FORMAT, "too few"},
      {0, 8, PLM_FORMAT, "does not begin with {"},
      {16, 16, PLM_FORMAT, "does not fit into the file of 16"},
      {2, 16, PLM_FORMAT, "not padded to a multiple of 8"},
      {100000001, 16, PLM_LIMIT, "exceeds the limit"},
      {UINT64_MAX, 16, PLM_LIMIT, "exceeds the limit"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned char bytes[16] = {0};
    struct plm_safetensors *file;
    struct plm_error error = {0};
    for (int b = 0; b < 8; b++) bytes[b] = (unsigned char)(cases[i].header_size >> (8 * b));
    memcpy(bytes + 8, "{}      ", 8);
    assert_int_equal(plm_safetensors_parse(bytes, cases[i].size, "x", &file, &error),
                     cases[i].status);
    assert_non_null(strstr(error.what, cases[i].says));
    assert_non_null(strstr(error.hint, "was not copied completely; get it again"));
    assert_null(file);
  }
}

/* What a clone without git-lfs leaves in the place of each large file. */
static void a_pointer_of_git_lfs_is_known(void **state)
{
  (void)state;
  static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
  static const size_t sizes[] = {sizeof pointer - 1, 24, 23}; /* the last one is cut */
  for (size_t i = 0; i < 3; i++) {
    struct plm_safetensors *file;
    struct plm_error error = {0};
    const bool known = i < 2;
    assert_int_equal(plm_safetensors_parse(pointer, sizes[i], "x", &file, &error),
                     known ? PLM_FORMAT : PLM_LIMIT);
    assert_int_equal(strstr(error.what, "it is a pointer of Git LFS") != NULL, known);
    assert_int_equal(strstr(error.hint, "run `git lfs pull` in the folder") != NULL, known);
    assert_string_equal(error.where, "x");
  }
}

static void files_read_back(void **state)
{
  (void)state;
  const float matrix[6] = {1, 2, 3, 4, 5, 6};
  const int64_t wide[2] = {-1, INT64_MAX};
  const struct plm_tensor_info tensors[] = {
      {.name = "plm.matrix \"quoted\"",
       .dtype = PLM_F32,
       .rank = 2,
       .shape = {2, 3},
       .bytes = 24,
       .data = matrix},
      {.name = "nothing", .dtype = PLM_F64, .rank = 1, .shape = {0}, .data = ""},
      {.name = "a.wide", .dtype = PLM_I64, .rank = 1, .shape = {2}, .bytes = 16, .data = wide},
      {.name = "scalar", .dtype = PLM_U8, .bytes = 1, .data = "x"},
  };
  const struct plm_metadata_entry metadata[] = {{"format", "pt"}, {"names", "[\"a\",\"b\"]"}};
  const char *path = scratch_path("file.safetensors");
  struct plm_safetensors *file;
  struct plm_error error;
  assert_int_equal(plm_safetensors_write(path, tensors, 4, metadata, 2, &error), PLM_OK);
  assert_int_equal(plm_safetensors_open(path, &file, &error), PLM_OK);
  assert_int_equal(plm_safetensors_count(file), 4);
  for (size_t i = 0; i < 4; i++) {
    const struct plm_tensor_info *found = plm_safetensors_find(file, tensors[i].name);
    assert_non_null(found);
    assert_int_equal(found->dtype, tensors[i].dtype);
    assert_int_equal(found->rank, tensors[i].rank);
    assert_int_equal(found->bytes, tensors[i].bytes);
    assert_memory_equal(found->shape, tensors[i].shape, sizeof found->shape);
    if (found->bytes) assert_memory_equal(found->data, tensors[i].data, found->bytes);
  }
  assert_string_equal(plm_safetensors_at(file, 0)->name, tensors[0].name);
  assert_null(plm_safetensors_find(file, "absent"));
  assert_string_equal(plm_safetensors_metadata(file, "format"), "pt");
  assert_string_equal(plm_safetensors_metadata(file, "names"), "[\"a\",\"b\"]");
  assert_null(plm_safetensors_metadata(file, "absent"));
  plm_safetensors_close(file);

  struct plm_tensor_info twice[2] = {tensors[3], tensors[3]};
  assert_int_equal(plm_safetensors_write(path, twice, 2, NULL, 0, &error), PLM_EXISTS);
  twice[0].bytes = 2;
  assert_int_equal(plm_safetensors_write(path, twice, 1, NULL, 0, &error), PLM_UNSUPPORTED);
}

/* Every truncation of a file is refused, and so is every file that is too long. */
static void truncations_are_found(void **state)
{
  (void)state;
  size_t size;
  unsigned char *bytes =
      file_make("{" T("a", "F32", "[4]", 0, 16) "," T("b", "U8", "[5]", 16, 21) "}", 21, &size);
  struct plm_safetensors *file;
  for (size_t cut = 0; cut < size; cut++) {
    unsigned char *part =
        malloc(cut ? cut : 1); /* of this size, so that sanitizers see a read beyond it */
    memcpy(part, bytes, cut);
    assert_int_not_equal(plm_safetensors_parse(part, cut, "x", &file, NULL), PLM_OK);
    free(part);
  }
  assert_int_equal(plm_safetensors_parse(bytes, size, "x", &file, NULL), PLM_OK);
  plm_safetensors_close(file);
  free(bytes);
}

static void missing_and_empty_files(void **state)
{
  (void)state;
  static int other; /* what the pointer held before */
  struct plm_safetensors *file = (void *)&other;
  struct plm_error error;
  assert_int_equal(plm_safetensors_open(scratch_path("absent"), &file, &error), PLM_NOT_FOUND);
  assert_null(file);
  const char *path = scratch_path("empty");
  assert_int_equal(plm_file_write(path, "", 0, 0600, &error), PLM_OK);
  file = (void *)&other;
  assert_int_equal(plm_safetensors_open(path, &file, &error), PLM_FORMAT);
  assert_null(file);
  assert_string_equal(error.where, path);
  assert_string_equal(error.what, "it is empty");
  assert_non_null(strstr(error.hint, "get it again"));
  assert_int_equal(plm_safetensors_open(scratch_directory(), &file, &error), PLM_FORMAT);
  assert_string_equal(error.what, "it is not a regular file");
}

static plm_status open_two(void *context, struct plm_error *error)
{
  struct plm_safetensors *file = NULL;
  PLM_TRY(plm_safetensors_open(context, &file, error));
  const long at = checked_memory_pause();
  assert_int_equal(plm_safetensors_count(file), 2);
  assert_string_equal(plm_safetensors_metadata(file, "format"), "pt");
  checked_memory_resume(at);
  plm_safetensors_close(file);
  return PLM_OK;
}

/* A file decides how much memory its header takes, so a lack of it is an error, and no entry is
 * missing because of it. */
static void a_header_is_read_whole_or_not_at_all(void **state)
{
  static const float values[6] = {1, 2, 3, 4, 5, 6};
  const struct plm_tensor_info tensors[] = {
      {.name = "a", .rank = 1, .shape = {2}, .dtype = PLM_F32, .data = values, .bytes = 8},
      {.name = "b", .rank = 2, .shape = {2, 2}, .dtype = PLM_F32, .data = values + 2, .bytes = 16}};
  const struct plm_metadata_entry metadata = {"format", "pt"};
  char path[PLM_PATH_SIZE];
  (void)state;
  snprintf(path, sizeof path, "%s", scratch_path("two.safetensors"));
  assert_int_equal(plm_safetensors_write(path, tensors, 2, &metadata, 1, NULL), PLM_OK);
  failing_disk_try(open_two, path, NULL);
  failing_memory_try(open_two, path, 20);
}

static enum { NONE, FSYNC, CLOSE } failing;

/* These two take the place of libc's functions in this program. */
int fsync(int file)
{
  errno = EIO;
  return failing == FSYNC ? -1 : (int)syscall(SYS_fsync, file);
}

int close(int file)
{
  const int status = (int)syscall(SYS_close, file);
  if (failing == CLOSE) errno = EDQUOT;
  return failing == CLOSE ? -1 : status;
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[200], what[400];
  snprintf(path, sizeof path, "%.190s", scratch_path("none/a"));
  assert_int_equal(plm_safetensors_write(path, NULL, 0, NULL, 0, &error), PLM_NOT_FOUND);
  snprintf(what, sizeof what, "cannot create %s: No such file or directory", path);
  assert_string_equal(error.what, what);
  snprintf(path, sizeof path, "%.190s", scratch_path("lost"));
  failing = FSYNC;
  const plm_status synced = plm_safetensors_write(path, NULL, 0, NULL, 0, &error);
  failing = CLOSE;
  snprintf(what, sizeof what, "cannot sync %s: Input/output error", path);
  assert_string_equal(error.what, what);
  const plm_status closed = plm_safetensors_write(path, NULL, 0, NULL, 0, &error);
  failing = NONE;
  snprintf(what, sizeof what, "cannot close %s: Disk quota exceeded", path);
  assert_string_equal(error.what, what);
  assert_true(synced == PLM_IO && closed == PLM_NO_SPACE);
  if (!plm_file_exists("/dev/full")) skip("there is no /dev/full");
  failing = FSYNC; /* what failed first is said */
  const plm_status full = plm_safetensors_write("/dev/full", NULL, 0, NULL, 0, &error);
  failing = NONE;
  assert_int_equal(full, PLM_NO_SPACE);
  assert_non_null(strstr(error.what, "/dev/full: No space left on device"));
  failing = CLOSE;
  assert_int_equal(plm_safetensors_write("/dev/full", NULL, 0, NULL, 0, &error), PLM_NO_SPACE);
  failing = NONE;
  assert_non_null(strstr(error.what, "/dev/full: No space left on device"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(headers_of_too_many_tensors_are_refused),
      cmocka_unit_test(good_files_pass),
      cmocka_unit_test(broken_rules_are_named),
      cmocka_unit_test(broken_lengths_are_named),
      cmocka_unit_test(a_pointer_of_git_lfs_is_known),
      cmocka_unit_test(files_read_back),
      cmocka_unit_test(a_header_is_read_whole_or_not_at_all),
      cmocka_unit_test(truncations_are_found),
      cmocka_unit_test(missing_and_empty_files),
      cmocka_unit_test(a_file_that_cannot_be_written_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
