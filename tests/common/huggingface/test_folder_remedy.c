/* What is said about a folder whose weights are not safetensors. */
#include "common/huggingface/folder_remedy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

/* Makes the folder NAME with the files, and returns what is said about it; "" if nothing is. */
static const char *said_of(const char *name, const char *const *files, char path[PLM_PATH_SIZE])
{
  static struct plm_error error;
  char file[PLM_PATH_SIZE];
  snprintf(path, PLM_PATH_SIZE, "%s", name);
  assert_int_equal(plm_directory_make(path, NULL), PLM_OK);
  for (; *files != NULL; files++) {
    assert_int_equal(plm_path_join(file, path, *files, NULL), PLM_OK);
    scratch_write(file, "", 0);
  }
  error = (struct plm_error){0};
  const bool said = plm_folder_remedy(path, &error);
  assert_int_equal(said, error.hint[0] != '\0');
  return error.hint;
}

/* Of many files, in whatever order the system lists them, the first one by name is named. */
static void weights_of_transformers_are_converted(void **state)
{
  (void)state;
  static const char *const files[] = {"m.bin", "c.bin", "x.bin", "b.bin",       "q.bin", "e.bin",
                                      "t.bin", "d.bin", "a.pt",  "config.json", "g.bin", NULL};
  char path[PLM_PATH_SIZE], command[PLM_PATH_SIZE + 16];
  const char *said = said_of("plain", files, path);
  assert_non_null(strstr(said, "only safetensors are read, not b.bin; convert it"));
  snprintf(command, sizeof command, "d = \"%s\"; ", path);
  assert_non_null(strstr(said, command));
}

/* A folder's name that a shell could take for something else does not get into the command. */
static void a_name_that_is_not_plain_is_left_out(void **state)
{
  (void)state;
  static const char *const names[] = {"a b", "a\"b", "a$b", "a'b", "a;b", "a`b", "a\nb", "a\\b"};
  static const char *const files[] = {"model.bin", NULL};
  char path[PLM_PATH_SIZE], longer[200];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *said = said_of(names[i], files, path);
    assert_null(strstr(said, names[i]));
    assert_non_null(strstr(said, "d = \"DIR\"; "));
  }
  memset(longer, 'x', 161);
  longer[161] = '\0';
  assert_non_null(strstr(said_of(longer, files, path), "d = \"DIR\"; "));
}

/* Both sides of the bound. */
static void a_path_in_the_command_has_a_bounded_length(void **state)
{
  (void)state;
  char path[400], expected[420];
  struct plm_error error = {0};
  char *end = stpcpy(path, "r");
  assert_int_equal(plm_directory_make("r", NULL), PLM_OK);
  scratch_write("r/model.bin", "", 0);
  while (end - path < 160) *end++ = '/'; /* more of them name the same folder */
  *end = '\0';
  assert_true(plm_folder_remedy(path, &error));
  snprintf(expected, sizeof expected, "d = \"%s\"; ", path);
  assert_non_null(strstr(error.hint, expected));
  strcpy(end, "/");
  assert_true(plm_folder_remedy(path, &error));
  assert_non_null(strstr(error.hint, "d = \"DIR\"; "));
}

static void a_name_like_an_option_is_left_out(void **state)
{
  (void)state;
  static const char *const names[] = {"-o", "o-"};
  for (int i = 0; i < 2; i++) {
    char file[16];
    struct plm_error error = {0};
    assert_int_equal(plm_directory_make(names[i], NULL), PLM_OK);
    snprintf(file, sizeof file, "%s/a.bin", names[i]);
    scratch_write(file, "", 0);
    assert_true(plm_folder_remedy(names[i], &error));
    assert_non_null(strstr(error.hint, i == 0 ? "d = \"DIR\"; " : "d = \"o-\"; "));
  }
}

static void other_formats_are_fetched_again(void **state)
{
  (void)state;
  static const char *const names[] = {"a.pth", "a.pt", "a.ckpt", "a.gguf"};
  char path[PLM_PATH_SIZE], folder[16], what[64];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(folder, sizeof folder, "other-%zu", i);
    const char *said = said_of(folder, (const char *const[]){names[i], "config.json", NULL}, path);
    snprintf(what, sizeof what, "only safetensors are read, not %s; get the same model", names[i]);
    assert_non_null(strstr(said, what));
  }
}

static void nothing_is_said_of_other_folders(void **state)
{
  (void)state;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE];
  assert_string_equal(
      said_of("none", (const char *const[]){".bin", "abin", "a.bin.txt", NULL}, path), "");
  assert_string_equal(said_of("empty", (const char *const[]){NULL}, path), "");
  assert_false(plm_folder_remedy(scratch_path("nowhere"), &error));
}

/* Names are relative, so that they do not depend on where the scratch folder lies. */
static int enter_scratch(void **state)
{
  (void)state;
  return chdir(scratch_directory());
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_of_transformers_are_converted),
      cmocka_unit_test(a_name_that_is_not_plain_is_left_out),
      cmocka_unit_test(a_path_in_the_command_has_a_bounded_length),
      cmocka_unit_test(a_name_like_an_option_is_left_out),
      cmocka_unit_test(other_formats_are_fetched_again),
      cmocka_unit_test(nothing_is_said_of_other_folders),
  };
  return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
