/* What is said about a folder that has no safetensors, or does not exist. */
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
  static const char *const files[] = {"config.json", "model.bin", NULL};
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
  scratch_write("r/config.json", "", 0);
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
    char file[24];
    struct plm_error error = {0};
    assert_int_equal(plm_directory_make(names[i], NULL), PLM_OK);
    snprintf(file, sizeof file, "%s/a.bin", names[i]);
    scratch_write(file, "", 0);
    snprintf(file, sizeof file, "%s/config.json", names[i]);
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

/* Without config.json, nothing can be converted. */
static void a_missing_configuration_is_named(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  const char *said = said_of("bare", (const char *const[]){"b.bin", "vocab.txt", NULL}, path);
  assert_non_null(
      strstr(said, "not b.bin, and config.json, which converting it needs, is missing"));
  assert_null(strstr(said, "python3"));
}

/* The names of files that fair-esm and ESM-C give are close to those of the Hub. */
static void the_same_model_is_named(void **state)
{
  (void)state;
  static const char example[] =
      "such as: hf download facebook/esm2_t6_8M_UR50D --local-dir esm2_t6";
  static const struct {
    const char *file, *said;
  } rows[] = {
      {"esm2_t12_35M_UR50D.pt",
       ": hf download facebook/esm2_t12_35M_UR50D --local-dir esm2_t12_35M"},
      {"esm2_t33_650M_UR50D-contact-regression.pt",
       ": hf download facebook/esm2_t33_650M_UR50D --local-dir esm2_t33_650M_UR50D"},
      {"esmc_300m_2024_12_v0.pth", ": hf download biohub/ESMC-300M --local-dir ESMC-300M"},
      {"esmc_600m_2024_12_v0.pth", example},
      {"esm2_t6$(id).pt", example},
      {"esm1v_t33_650M_UR90S_1.pt", example},
      {"model.gguf", example},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char path[PLM_PATH_SIZE], folder[16];
    snprintf(folder, sizeof folder, "same-%zu", i);
    const char *said = said_of(folder, (const char *const[]){rows[i].file, NULL}, path);
    if (strstr(said, rows[i].said) == NULL) fail_msg("%s", said);
  }
}

static void only_a_configuration_is_not_enough(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  const char *said = said_of("json", (const char *const[]){"config.json", "vocab.txt", NULL}, path);
  assert_non_null(strstr(said, "there is a config.json, but no safetensors"));
}

/* A path that does not exist may be the name of a repository. */
static void a_name_of_the_hub_is_downloaded(void **state)
{
  (void)state;
  static const char *const others[] = {"esm2",    "/esm2",   "facebook/", "a/b/c", "./esm2",
                                       "runs/me", "a/-esm2", "a/.esm2",   "a/e b", "a/$(id)"};
  struct plm_error error = {0};
  assert_int_equal(plm_directory_make("runs", NULL), PLM_OK); /* then the name of a run is wrong */
  assert_true(plm_folder_remedy("facebook/esm2_t6_8M_UR50D", &error));
  assert_non_null(strstr(error.hint, "download it and give its folder: hf download "
                                     "facebook/esm2_t6_8M_UR50D --local-dir esm2_t6_8M_UR50D"));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (plm_folder_remedy(others[i], &error)) fail_msg("%s: %s", others[i], error.hint);
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
      cmocka_unit_test(a_missing_configuration_is_named),
      cmocka_unit_test(the_same_model_is_named),
      cmocka_unit_test(only_a_configuration_is_not_enough),
      cmocka_unit_test(a_name_of_the_hub_is_downloaded),
      cmocka_unit_test(nothing_is_said_of_other_folders),
  };
  return cmocka_run_group_tests(tests, enter_scratch, NULL);
}
