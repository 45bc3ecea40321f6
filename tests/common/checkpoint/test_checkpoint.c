/* Checkpoint folders are written, verified, listed and read, and every damage is found. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/harness/scratch.h"

static const char *const names[] = {"config.json", "model.safetensors", "trainer.json"};
enum { FILES = 3 };

static void path_in(const char *folder, const char *name, char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t size)
{
  char path[PLM_PATH_SIZE];
  path_in(folder, name, path);
  FILE *file = fopen(path, "w"); /* plm_file_write would fsync thousands of times */
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

/* Writes a MANIFEST of the files `names` as they are, without the file of this number. */
static void seal_without(const char *folder, uint64_t step, int left_out)
{
  struct plm_manifest manifest = {.step = step};
  for (int i = 0; i < FILES; i++) {
    char path[PLM_PATH_SIZE];
    if (i == left_out) continue;
    struct plm_manifest_file *file = &manifest.files[manifest.count++];
    path_in(folder, names[i], path);
    strcpy(file->name, names[i]);
    assert_int_equal(plm_hash_file(path, &file->hash, &file->size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  write_file(folder, "MANIFEST", text, strlen(text));
  free(text);
}

static void seal(const char *folder, uint64_t step)
{
  seal_without(folder, step, -1);
}

/* Makes DIR/step_N with a few small files. */
static void make_checkpoint(const char *parent, uint64_t step, char folder[PLM_PATH_SIZE])
{
  static const float values[4] = {1, 2, 3, 4};
  const struct plm_tensor_info tensor = {
      .name = "w", .dtype = PLM_F32, .rank = 1, .shape = {4}, .bytes = 16, .data = values};
  char name[PLM_CHECKPOINT_NAME_SIZE], path[PLM_PATH_SIZE];
  plm_checkpoint_name(step, name);
  path_in(parent, name, folder);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  path_in(folder, "model.safetensors", path);
  assert_int_equal(plm_safetensors_write(path, &tensor, 1, NULL, 0, NULL), PLM_OK);
  write_file(folder, "config.json", "{\"a\":1}\n", 8);
  write_file(folder, "trainer.json", "{}\n", 3);
  seal(folder, step);
}

static void parent_make(const char *name, char parent[PLM_PATH_SIZE])
{
  snprintf(parent, PLM_PATH_SIZE, "%s", scratch_path(name));
  assert_int_equal(plm_directory_make(parent, NULL), PLM_OK);
}

static void names_have_one_form(void **state)
{
  (void)state;
  static const uint64_t steps[] = {0, 1, 500, 99999999, 100000000, 123456789012};
  static const char *const wrong[] = {"step_1",
                                      "step_000000001",
                                      "step_0000050a",
                                      "step_00000500 ",
                                      ".tmp-step_00000500",
                                      "step_+0000500",
                                      "step_-0000001",
                                      "latest",
                                      "step_99999999999999999999999"};
  char name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t step;
  plm_checkpoint_name(500, name);
  assert_string_equal(name, "step_00000500");
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    plm_checkpoint_name(steps[i], name);
    assert_true(plm_checkpoint_parse_name(name, &step));
    assert_int_equal(step, steps[i]);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(plm_checkpoint_parse_name(wrong[i], &step));
}

static void latest_points_to_a_checkpoint(void **state)
{
  (void)state;
  static const char *const targets[] = {"step_00000500", "step_5", "nothing"};
  char run[PLM_PATH_SIZE], link[PLM_PATH_SIZE];
  uint64_t step = 0;
  snprintf(run, sizeof run, "%s", scratch_path("pointed"));
  assert_int_equal(plm_path_join(link, run, "checkpoints", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(link, NULL), PLM_OK);
  assert_int_equal(plm_path_join(link, run, "checkpoints/latest", NULL), PLM_OK);
  assert_false(plm_checkpoint_latest(run, &step));
  for (int i = 0; i < 3; i++) {
    assert_int_equal(symlink(targets[i], link), 0);
    assert_int_equal(plm_checkpoint_latest(run, &step), i == 0);
    assert_int_equal(unlink(link), 0);
  }
  assert_int_equal(step, 500);
}

static void manifests_have_one_form(void **state)
{
  (void)state;
  struct plm_manifest manifest = {.step = 7, .count = 2}, again;
  struct plm_error error;
  strcpy(manifest.files[0].name, "a.json");
  strcpy(manifest.files[1].name, "model.safetensors");
  manifest.files[0].size = 12;
  manifest.files[1].size = UINT64_C(1) << 40;
  manifest.files[1].hash = plm_hash_bytes("x", 1);
  char *text = plm_manifest_print(&manifest);
  assert_int_equal(plm_manifest_parse(text, strlen(text), &again, &error), PLM_OK);
  assert_int_equal(again.step, 7);
  assert_int_equal(again.count, 2);
  assert_string_equal(again.files[1].name, "model.safetensors");
  assert_int_equal(again.files[1].size, UINT64_C(1) << 40);
  /* another byte at every place, every truncation, and one byte too many */
  const size_t size = strlen(text);
  for (size_t i = 0; i < size; i++) {
    const char held = text[i];
    for (int bit = 0; bit < 8; bit++) {
      text[i] = (char)(held ^ 1 << bit);
      assert_int_not_equal(plm_manifest_parse(text, size, &again, &error), PLM_OK);
    }
    text[i] = held;
    assert_int_not_equal(plm_manifest_parse(text, i, &again, &error), PLM_OK);
  }
  char longer[1024];
  snprintf(longer, sizeof longer, "%s\n", text);
  assert_int_not_equal(plm_manifest_parse(longer, size + 1, &again, &error), PLM_OK);
  free(text);

  /* the hash is right, but the contents are not valid */
  static const char *const bad[] = {"../escape", ".hidden", "MANIFEST", "a.json"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    strcpy(manifest.files[1].name, bad[i]);
    text = plm_manifest_print(&manifest);
    assert_int_equal(plm_manifest_parse(text, strlen(text), &again, &error), PLM_CORRUPT);
    free(text);
  }
}

/* As many files as there may be, and one more; each character that a name may have, and others. */
static void manifests_have_bounds(void **state)
{
  (void)state;
  struct plm_manifest manifest = {.step = 7, .count = PLM_MANIFEST_MAX_FILES}, again;
  struct plm_error error = {0};
  struct plm_hash identity;
  char what[128];
  for (size_t i = 0; i < manifest.count; i++)
    snprintf(manifest.files[i].name, sizeof manifest.files[i].name, "a_B-9.%zu", i);
  char *text = plm_manifest_print(&manifest);
  assert_int_equal(plm_manifest_parse(text, strlen(text), &again, &error), PLM_OK);
  assert_int_equal(again.count, PLM_MANIFEST_MAX_FILES);
  assert_false(plm_manifest_identity(&again, &identity));
  char *last = strstr(text, "manifest ");
  assert_non_null(last);
  char *longer = malloc(strlen(text) + 128);
  assert_non_null(longer);
  sprintf(longer, "%.*s1 00000000000000000000000000000000 more\n%s", (int)(last - text), text,
          last);
  assert_int_equal(plm_manifest_parse(longer, strlen(longer), &again, &error), PLM_LIMIT);
  snprintf(what, sizeof what, "more than %d files", PLM_MANIFEST_MAX_FILES);
  assert_string_equal(error.what, what);
  free(longer);
  free(text);
  static const char *const wrong[] = {".a", "MANIFEST", "a/b", "a+b", "\xc3\xa4"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manifest.count = 1;
    strcpy(manifest.files[0].name, wrong[i]);
    text = plm_manifest_print(&manifest);
    assert_int_equal(plm_manifest_parse(text, strlen(text), &again, &error), PLM_CORRUPT);
    snprintf(what, sizeof what,
             "a line is not \"size hash name\": 0 00000000000000000000000000000000 %s", wrong[i]);
    assert_string_equal(error.what, what);
    free(text);
  }
  manifest.files[0].hash = (struct plm_hash){1, 2};
  strcpy(manifest.files[0].name, "model.safetensors");
  assert_true(plm_manifest_identity(&manifest, &identity));
  assert_true(plm_hash_equal(identity, (struct plm_hash){1, 2}));
}

static void expect_broken(const char *folder, plm_status status, const char *says)
{
  struct plm_error error = {0};
  assert_int_equal(plm_checkpoint_verify(folder, NULL, NULL, NULL, &error), status);
  if (!strstr(error.what, says)) fail_msg("\"%s\" does not say \"%s\"", error.what, says);
  assert_non_null(strstr(error.where, folder));
}

static void damage_is_named(void **state)
{
  (void)state;
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], other[PLM_PATH_SIZE];
  struct plm_hash identity, expected;
  struct plm_error error;
  uint64_t step, size;
  parent_make("damage", parent);
  make_checkpoint(parent, 12, folder);
  assert_int_equal(plm_checkpoint_verify(folder, &step, &identity, NULL, &error), PLM_OK);
  assert_int_equal(step, 12);
  path_in(folder, "model.safetensors", path);
  assert_int_equal(plm_hash_file(path, &expected, &size, NULL, NULL), PLM_OK);
  assert_true(plm_hash_equal(identity, expected));

  write_file(folder, "unknown.txt", "x", 1);
  expect_broken(folder, PLM_CORRUPT, "unknown.txt is not in the MANIFEST");
  path_in(folder, "unknown.txt", path);
  unlink(path);

  write_file(folder, "trainer.json", "{} ", 3);
  expect_broken(folder, PLM_CORRUPT, "trainer.json differs from what was written");
  write_file(folder, "trainer.json", "{}", 2);
  expect_broken(folder, PLM_CORRUPT, "trainer.json has 2 bytes, not 3");
  path_in(folder, "trainer.json", path);
  unlink(path);
  expect_broken(folder, PLM_CORRUPT, "trainer.json is missing");
  path_in(parent, "elsewhere", other);
  write_file(parent, "elsewhere", "{}\n", 3);
  assert_int_equal(symlink(other, path), 0);
  expect_broken(folder, PLM_CORRUPT, "trainer.json is not a regular file");
  unlink(path);
  write_file(folder, "trainer.json", "{}\n", 3);
  assert_int_equal(plm_checkpoint_verify(folder, &step, &identity, NULL, &error), PLM_OK);

  seal_without(folder, 12, 0);
  expect_broken(folder, PLM_CORRUPT, "the MANIFEST does not list config.json");
  seal_without(folder, 12, 1);
  expect_broken(folder, PLM_CORRUPT, "the MANIFEST does not list model.safetensors");
  seal_without(folder, 12, 2);
  expect_broken(folder, PLM_CORRUPT, "trainer.json is not in the MANIFEST");

  seal(folder, 13);
  expect_broken(folder, PLM_CORRUPT, "the MANIFEST is that of step 13");
  path_in(parent, "moved", other); /* a copied folder may have any name */
  assert_int_equal(rename(folder, other), 0);
  assert_int_equal(plm_checkpoint_verify(other, &step, NULL, NULL, &error), PLM_OK);
  assert_int_equal(step, 13);
  path_in(other, "MANIFEST", path);
  unlink(path);
  assert_int_equal(plm_checkpoint_verify(other, &step, NULL, NULL, &error), PLM_NOT_FOUND);
}

/* Flips every bit of every file, and cuts every file at every length. */
static void every_bit_counts(void **state)
{
  (void)state;
  static const char *const all[] = {"config.json", "model.safetensors", "trainer.json", "MANIFEST"};
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  parent_make("bits", parent);
  make_checkpoint(parent, 3, folder);
  for (size_t f = 0; f < sizeof all / sizeof *all; f++) {
    char *bytes;
    size_t size;
    path_in(folder, all[f], path);
    assert_int_equal(plm_file_read(path, 1 << 20, &bytes, &size, NULL), PLM_OK);
    for (size_t i = 0; i < size; i++) {
      for (int bit = 0; bit < 8; bit++) {
        bytes[i] = (char)(bytes[i] ^ 1 << bit);
        write_file(folder, all[f], bytes, size);
        assert_int_not_equal(plm_checkpoint_verify(folder, NULL, NULL, NULL, NULL), PLM_OK);
        bytes[i] = (char)(bytes[i] ^ 1 << bit);
      }
      write_file(folder, all[f], bytes, i);
      assert_int_not_equal(plm_checkpoint_verify(folder, NULL, NULL, NULL, NULL), PLM_OK);
    }
    write_file(folder, all[f], bytes, size);
    assert_int_equal(plm_checkpoint_verify(folder, NULL, NULL, NULL, NULL), PLM_OK);
    free(bytes);
  }
}

/* What is told while large files are read. */
struct told {
  uint64_t times, done, most, total; /* most: bytes between two calls */
};

static void keep_told(void *context, uint64_t done, uint64_t total)
{
  struct told *told = context;
  assert_true(done >= told->done && done <= total);
  if (done - told->done > told->most) told->most = done - told->done;
  *told = (struct told){told->times + 1, done, told->most, total};
}

static void verifying_tells_how_far_it_is_within_a_file(void **state)
{
  (void)state;
  enum { LARGE = 20 << 20 };
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  uint64_t step, bytes = 0;
  parent_make("large", parent);
  make_checkpoint(parent, 7, folder);
  path_in(folder, "trainer.json", path);
  assert_int_equal(truncate(path, LARGE), 0);
  seal(folder, 7);
  for (int i = 0; i < FILES; i++) {
    path_in(folder, names[i], path);
    struct plm_hash hash;
    uint64_t size;
    assert_int_equal(plm_hash_file(path, &hash, &size, NULL, NULL), PLM_OK);
    bytes += size;
  }
  for (int newest = 0; newest < 2; newest++) {
    struct told told = {0};
    struct plm_advance advance = {.tell = keep_told, .context = &told};
    assert_int_equal(newest ? plm_checkpoint_newest(parent, &step, &advance, NULL)
                            : plm_checkpoint_verify(folder, &step, NULL, &advance, NULL),
                     PLM_OK);
    assert_true(told.total == bytes && told.done == bytes);
    assert_true(told.times > FILES && told.most <= PLM_ADVANCE_STEP);
  }
}

static void newest_valid_is_found(void **state)
{
  (void)state;
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_error error;
  uint64_t *steps, step = 0;
  size_t count;
  parent_make("list", parent);
  assert_int_equal(plm_checkpoint_list(parent, &steps, &count, &error), PLM_OK);
  assert_int_equal(count, 0);
  free(steps);
  assert_int_equal(plm_checkpoint_newest(parent, &step, NULL, &error), PLM_NOT_FOUND);
  static const uint64_t made[] = {100, 0, 2000, 300};
  for (size_t i = 0; i < 4; i++) make_checkpoint(parent, made[i], folder);
  path_in(parent, ".tmp-step_00009000", folder);
  plm_directory_make(folder, NULL);
  path_in(parent, "step_9", folder);
  plm_directory_make(folder, NULL);
  write_file(parent, "step_00009001", "a file", 6);
  assert_int_equal(plm_checkpoint_list(parent, &steps, &count, &error), PLM_OK);
  assert_int_equal(count, 4);
  assert_int_equal(steps[0], 0);
  assert_int_equal(steps[3], 2000);
  free(steps);
  assert_int_equal(plm_checkpoint_newest(parent, &step, NULL, &error), PLM_OK);
  assert_int_equal(step, 2000);
  path_in(parent, "step_00002000", folder);
  write_file(folder, "config.json", "{\"a\":2}\n", 8);
  assert_int_equal(plm_checkpoint_newest(parent, &step, NULL, &error), PLM_OK);
  assert_int_equal(step, 300);
  /* a folder that somebody has renamed: what it holds is not what its name says */
  char renamed[PLM_PATH_SIZE];
  path_in(parent, "step_00000300", folder);
  path_in(parent, "step_00000301", renamed);
  assert_int_equal(rename(folder, renamed), 0);
  assert_int_equal(plm_checkpoint_newest(parent, &step, NULL, &error), PLM_OK);
  assert_int_equal(step, 100);
  assert_int_equal(plm_checkpoint_list(scratch_path("absent"), &steps, &count, &error),
                   PLM_NOT_FOUND);
}

static void any_number_is_listed(void **state)
{
  enum { MANY = 40 };
  (void)state;
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], name[PLM_CHECKPOINT_NAME_SIZE];
  uint64_t *steps;
  size_t count;
  parent_make("many", parent);
  for (uint64_t i = 0; i < MANY; i++) {
    plm_checkpoint_name(100 * (i * 7 % MANY), name);
    path_in(parent, name, folder);
    assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  }
  assert_int_equal(plm_checkpoint_list(parent, &steps, &count, NULL), PLM_OK);
  assert_int_equal(count, MANY);
  for (uint64_t i = 0; i < MANY; i++) assert_int_equal(steps[i], 100 * i);
  free(steps);
}

static const char *unreadable; /* how the path of an entry ends that nobody can look at */

/* Takes the place of libc's function in this program. */
int lstat(const char *path, struct stat *about)
{
  const size_t length = strlen(path), end = unreadable == NULL ? 0 : strlen(unreadable);
  if (end == 0 || length < end || strcmp(path + length - end, unreadable) != 0)
    return fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
  errno = EIO;
  return -1;
}

static void an_entry_that_cannot_be_looked_at_is_an_error(void **state)
{
  (void)state;
  char parent[PLM_PATH_SIZE], folder[PLM_PATH_SIZE];
  struct plm_error error = {0};
  uint64_t *steps = &(uint64_t){0};
  size_t count = 5;
  parent_make("unreadable", parent);
  for (uint64_t step = 1; step < 4; step++) make_checkpoint(parent, step, folder);
  unreadable = "/step_00000002";
  assert_int_equal(plm_checkpoint_list(parent, &steps, &count, &error), PLM_IO);
  assert_non_null(strstr(error.what, "/step_00000002: Input/output error"));
  assert_true(count == 0 && steps == NULL);
  unreadable = "/trainer.json";
  expect_broken(folder, PLM_IO, "cannot stat trainer.json: Input/output error");
  unreadable = NULL;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_have_one_form),
      cmocka_unit_test(latest_points_to_a_checkpoint),
      cmocka_unit_test(manifests_have_one_form),
      cmocka_unit_test(manifests_have_bounds),
      cmocka_unit_test(damage_is_named),
      cmocka_unit_test(every_bit_counts),
      cmocka_unit_test(verifying_tells_how_far_it_is_within_a_file),
      cmocka_unit_test(newest_valid_is_found),
      cmocka_unit_test(any_number_is_listed),
      cmocka_unit_test(an_entry_that_cannot_be_looked_at_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
