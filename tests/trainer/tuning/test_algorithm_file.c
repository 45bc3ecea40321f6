/* The file of tuned algorithms: what runs add to it, side by side and one after the other, on the
 * emulated CUDA backend. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "trainer/tuning/algorithm_file.h"

enum { K = 8, MOST_LINES = 512 };
#define HEAD "plain loops 1, emulated, bf16\n"

/* This function takes the place of the C library's in this program. */
static int interruptions; /* so many calls for a file *.lock are interrupted */

int flock(int descriptor, int how)
{
  char link[32], name[PLM_PATH_SIZE] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  assert_true(readlink(link, name, sizeof name - 1) > 0);
  if (interruptions == 0 || strcmp(name + strlen(name) - 5, ".lock") != 0)
    return (int)syscall(SYS_flock, descriptor, how);
  interruptions--;
  errno = EINTR;
  return -1;
}

/* A run that takes what the file has and then tunes. */
static struct plm_ops *begin(uint64_t tuning)
{
  struct plm_ops *ops;
  plm_emulation_tuning(tuning);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  plm_algorithm_file_load(ops);
  ops->tune(ops, true, NULL);
  return ops;
}

/* Multiplies for batches of first up to last rows. Returns how many products were tuned. */
static uint32_t multiply(struct plm_ops *ops, int64_t first, int64_t last)
{
  static uint16_t x[MOST_LINES * 2 * K], w[K * K], y[MOST_LINES * 2 * K];
  struct plm_ops_tuned before, after;
  ops->tune(ops, true, &before);
  for (int64_t n = first; n <= last; n++) ops->linear_forward(ops, y, x, w, NULL, n, K, K);
  ops->tune(ops, true, &after);
  return after.products - before.products;
}

static char *algorithms_of(struct plm_ops *ops)
{
  char *text;
  assert_int_equal(ops->export_algorithms(ops, &text, NULL), PLM_OK);
  return text;
}

static void end(struct plm_ops *ops)
{
  plm_algorithm_file_keep(ops);
  ops->close(ops);
}

/* A new folder for the file. */
static void use_folder(const char *name)
{
  assert_int_equal(setenv("PLM_ALGORITHM_CACHE", scratch_path(name), 1), 0);
}

/* The path of the file. */
static const char *file_path(void)
{
  static char path[PLM_PATH_SIZE];
  const char *folder = getenv("PLM_ALGORITHM_CACHE");
  DIR *opened = opendir(folder);
  assert_non_null(opened);
  path[0] = '\0';
  for (const struct dirent *entry; (entry = readdir(opened)) != NULL;)
    if (strncmp(entry->d_name, "products-", 9) == 0 && !plm_text_ends_with(entry->d_name, ".lock"))
      assert_int_equal(plm_path_join(path, folder, entry->d_name, NULL), PLM_OK);
  closedir(opened);
  return path;
}

static char *file_text(void)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(file_path(), 4 << 20, &text, &size, NULL), PLM_OK);
  return text;
}

static uint32_t lines_of(const char *text)
{
  uint32_t lines = 0;
  for (; (text = strchr(text, '\n')) != NULL; text++) lines++;
  return lines;
}

/* Neither run knew the shapes of the other when it began. */
static void runs_side_by_side_lose_nothing(void **unused)
{
  (void)unused;
  use_folder("side");
  captured_begin(STDERR_FILENO);
  struct plm_ops *one = begin(1), *two = begin(2);
  assert_string_equal(captured_end(), ""); /* there is no file yet */
  assert_int_equal(multiply(one, 1, 5), 5);
  assert_int_equal(multiply(two, 4, 9), 6);
  end(one);
  end(two);
  struct plm_ops *later = begin(3);
  assert_int_equal(multiply(later, 1, 9), 0);
  assert_int_equal(multiply(later, 10, 10), 1);
  later->close(later);
}

/* For a shape that both have, the file has what the last run used, and has it once. */
static void the_last_run_wins(void **unused)
{
  (void)unused;
  use_folder("wins");
  struct plm_ops *one = begin(1), *two = begin(2);
  plm_emulation_tuning(1);
  multiply(one, 1, 6);
  plm_emulation_tuning(2);
  multiply(two, 1, 6);
  char *of_one = algorithms_of(one), *of_two = algorithms_of(two);
  assert_string_not_equal(of_one, of_two);
  end(one);
  end(two);
  char *file = file_text();
  assert_string_equal(file, of_two);
  free(file);
  free(of_one);
  free(of_two);
}

/* A full file leaves room for new shapes: the newest are kept. */
static void the_file_keeps_the_newest(void **unused)
{
  (void)unused;
  use_folder("many");
  struct plm_ops *many = begin(1);
  multiply(many, 2, MOST_LINES);
  end(many); /* one line less than it may have */
  struct plm_ops *one = begin(1);
  assert_int_equal(multiply(one, 1, 1), 1);
  end(one);
  char *file = file_text();
  assert_int_equal(lines_of(file), 1 + MOST_LINES);
  free(file);
  assert_int_equal(plm_file_write(file_path(), HEAD, strlen(HEAD), 0644, NULL), PLM_OK);
  struct plm_ops *first = begin(1), *second = begin(1);
  multiply(first, 1, MOST_LINES);
  multiply(second, MOST_LINES, MOST_LINES + 3);
  char *newest = algorithms_of(second);
  end(first);
  end(second);
  file = file_text();
  assert_int_equal(lines_of(file), 1 + MOST_LINES);
  assert_memory_equal(file, newest, strlen(newest));
  free(file);
  free(newest);
}

/* Lines of another library are not taken over, and a file that cannot be read as algorithms is
 * removed, so that it is not refused by every later run. */
static void damaged_files_are_replaced(void **unused)
{
  (void)unused;
  static const char *const damaged[] = {"", "nonsense", HEAD "1 2 3\n", HEAD "1 2 3"};
  use_folder("damaged");
  struct plm_ops *first = begin(1);
  multiply(first, 1, 1);
  end(first);
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    assert_int_equal(plm_file_write(file_path(), damaged[i], strlen(damaged[i]), 0644, NULL),
                     PLM_OK);
    struct plm_ops *ops = begin(1);
    assert_int_equal(multiply(ops, 1, 2), 2);
    char *own = algorithms_of(ops);
    end(ops);
    char *file = file_text();
    assert_string_equal(file, own);
    free(file);
    free(own);
  }
  const char *other = "plain loops 2, emulated, bf16\n1 2 3\n";
  struct plm_ops *ops = begin(1);
  assert_int_equal(plm_file_write(file_path(), other, strlen(other), 0644, NULL), PLM_OK);
  end(ops);
  char *file = file_text();
  assert_null(strstr(file, "1 2 3"));
  free(file);
}

static plm_status fail_to_export(struct plm_ops *ops, char **text, struct plm_error *error)
{
  (void)ops, (void)text;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for them");
}

/* A run ends as well without the file. */
static void what_cannot_be_kept_is_told(void **unused)
{
  (void)unused;
  struct plm_ops *ops = begin(1);
  multiply(ops, 1, 1);
  for (int i = 0; i < 2; i++) {
    use_folder(i == 0 ? "file/below" : "exported");
    if (i == 0) scratch_write(scratch_path("file"), "", 0);
    if (i == 1) ops->export_algorithms = fail_to_export;
    captured_begin(STDERR_FILENO);
    plm_algorithm_file_keep(ops);
    const char *said = captured_end();
    assert_int_equal(captured_times(said, "the product algorithms could not be saved for later "
                                          "runs: "),
                     1);
    if (i == 1) assert_non_null(strstr(said, "no memory for them"));
  }
  ops->close(ops);
}

static void a_signal_does_not_take_the_turn(void **unused)
{
  (void)unused;
  use_folder("interrupted");
  struct plm_ops *ops = begin(1);
  multiply(ops, 1, 1);
  interruptions = 3;
  plm_algorithm_file_keep(ops);
  assert_int_equal(interruptions, 0);
  ops->close(ops);
}

/* A choice between two kernels that is imported replaces what the shape had. Ranks that measured
 * different choices unite in this way. */
static void an_imported_choice_replaces(void **unused)
{
  (void)unused;
  static const char *const texts[] = {HEAD "relu2_forward 64 8 16 library\n",
                                      HEAD "relu2_forward 64 8 16 fused\n"};
  use_folder("choices");
  assert_int_equal(setenv("PLM_CUDA_ATTENTION", "mma", 1), 0); /* then the two are not compared */
  plm_emulation_capability(90, false);
  struct plm_ops *ops = begin(1);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(ops->import_algorithms(ops, texts[i % 2], NULL), PLM_OK);
    char *now = algorithms_of(ops);
    assert_string_equal(now, texts[i % 2]);
    free(now);
  }
  ops->close(ops);
  plm_emulation_capability(80, false);
  assert_int_equal(unsetenv("PLM_CUDA_ATTENTION"), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_side_by_side_lose_nothing),
      cmocka_unit_test(the_last_run_wins),
      cmocka_unit_test(the_file_keeps_the_newest),
      cmocka_unit_test(damaged_files_are_replaced),
      cmocka_unit_test(what_cannot_be_kept_is_told),
      cmocka_unit_test(a_signal_does_not_take_the_turn),
      cmocka_unit_test(an_imported_choice_replaces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
