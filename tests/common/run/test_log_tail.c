/* common/run/log_tail by value: where the last lines begin, parts, limits, files that were cut,
 * also if they have grown since, and rotated files that are made here by renaming. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log_file.h"
#include "common/base/text/text.h"
#include "common/run/log_tail.h"
#include "tests/support/harness/scratch.h"

enum { PART = 16384 };

static struct plm_tail tail;

static void append(const char *path, const char *text)
{
  FILE *file = fopen(path, "a");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static void collect(void *context, const char *line)
{
  plm_text_printf(context, "%s|", line);
}

/* The lines that come now, each with a bar behind it. */
static void assert_read(const char *wanted, bool any)
{
  struct plm_text text = {0};
  plm_text_puts(&text, "");
  assert_int_equal(plm_tail_read(&tail, 0, collect, &text), any);
  assert_string_equal(text.data, wanted);
  plm_text_deinit(&text);
}

static void the_last_lines_are_found(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    uint64_t from;
    size_t lines;
    uint64_t place;
  } cases[] = {
      {"", 0, 1, 0},
      {"ab\ncd\nef\n", 0, 0, 9},
      {"ab\ncd\nef\n", 0, 1, 6},
      {"ab\ncd\nef\n", 0, 2, 3},
      {"ab\ncd\nef\n", 0, 3, 0},
      {"ab\ncd\nef\n", 0, 4, 0},
      {"ab\ncd\nef", 0, 1, 6},
      {"ab\ncd\nef", 0, 2, 3},
      {"\n\n\n", 0, 1, 2},
      {"\n\n\n", 0, 2, 1},
      {"\n\n\n", 0, 3, 0},
      {"ab\ncd\nef\n", 3, 1, 6},
      {"ab\ncd\nef\n", 3, 5, 3},
      {"ab\ncd\nef\n", 4, 5, 4},
      {"ab\ncd\nef\n", 9, 1, 9},
      {"ab\ncd\nef\n", 10, 1, 10},
  };
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("found.log"));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scratch_write(path, cases[i].text, strlen(cases[i].text));
    assert_int_equal(plm_tail_find(path, cases[i].from, cases[i].lines), cases[i].place);
  }
  assert_int_equal(plm_tail_find(scratch_path("none.log"), 7, 1), 7);
  /* a file is opened as the descriptor 0 where that is closed */
  const int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  close(STDIN_FILENO);
  const uint64_t place = plm_tail_find(path, 0, 1);
  if (input >= 0) {
    dup2(input, STDIN_FILENO);
    close(input);
  }
  assert_int_equal(place, 6);
}

/* Newlines at each side of the ends of the parts that are read from the end. */
static void lines_are_found_over_parts(void **state)
{
  (void)state;
  static char text[3 * PART];
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("parts.log"));
  for (size_t size = 2 * PART - 1; size <= 2 * PART + 1; size++) {
    for (size_t place = PART - 3; place <= PART + 3; place++) {
      memset(text, 'x', sizeof text);
      text[place] = text[size - 1] = '\n';
      scratch_write(path, text, size);
      assert_int_equal(plm_tail_find(path, 0, 1), place + 1);
      assert_int_equal(plm_tail_find(path, 0, 2), 0);
      assert_int_equal(plm_tail_find(path, place, 1), place + 1);
      assert_int_equal(plm_tail_find(path, place + 1, 1), place + 1);
    }
  }
}

static void lines_come_when_they_are_complete(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  snprintf(path, sizeof path, "%s", scratch_path("grows.log"));
  plm_tail_init(&tail, path, 0);
  assert_read("", false);
  append(path, "one\n\ntw");
  assert_read("one||", true);
  assert_read("", false);
  append(path, "o\nthree");
  assert_read("two|", true);
  plm_tail_flush(&tail, collect, &text);
  plm_tail_flush(&tail, collect, &text);
  assert_string_equal(text.data, "three|");
  plm_text_deinit(&text);
  plm_tail_init(&tail, path, 5);
  assert_read("two|", true);
  /* the file shrinks: it is read from its beginning, and the part of a line is forgotten */
  assert_int_equal(truncate(path, 4), 0);
  assert_read("one|", true);
  plm_tail_init(&tail, path, 4);
  assert_read("", false);
  assert_int_equal(truncate(path, 3), 0);
  append(path, "\n");
  assert_read("", false); /* as long as before */
}

/* Metrics are cut to the last checkpoint and written again, perhaps with longer lines, before the
 * reader looks again. The size alone does not show it. */
static void a_file_that_was_cut_and_has_grown_goes_back(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("cut.jsonl"));
  plm_tail_init(&tail, path, 0);
  append(path, "step 1\nstep 2\nst");
  assert_read("step 1|step 2|", true);
  assert_int_equal(truncate(path, 7), 0);
  append(path, "step 2, again\nstep 3\n"); /* longer than before */
  assert_read("step 2, again|step 3|", true);
  assert_int_equal(truncate(path, 7), 0);
  append(path, "step 2, AGAIN\nstep 3\n"); /* as long as before; its last bytes differ far back */
  assert_read("step 2, AGAIN|step 3|", true);
  assert_int_equal(truncate(path, 7), 0);
  append(path, "step 2, AGAIN\nstep 3\n"); /* the same again is no change */
  assert_read("", false);
  append(path, "step 4\n");
  assert_read("step 4|", true);
}

/* Another file in its place, which was not rotated, is read on if it begins with the same lines. */
static void a_copy_in_its_place_is_continued(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE], copy[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("copied.jsonl"));
  snprintf(copy, sizeof copy, "%s", scratch_path("copy.jsonl"));
  plm_tail_init(&tail, path, 0);
  append(path, "step 1\nstep 2\n");
  assert_read("step 1|step 2|", true);
  append(copy, "step 1\nstep 2\nstep 3\n");
  assert_int_equal(rename(copy, path), 0);
  assert_read("step 3|", true);
  append(copy, "step 1\nstep 2, again\nstep 3\n");
  assert_int_equal(rename(copy, path), 0);
  assert_read("step 2, again|step 3|", true);
}

static void a_cut_goes_back(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("back.jsonl"));
  plm_tail_init(&tail, path, 0);
  append(path, "1\n2\n3\n4\n5");
  assert_read("1|2|3|4|", true);
  assert_int_equal(truncate(path, 4), 0); /* a resume after line 2 */
  assert_read("", false);
  append(path, "3\n");
  assert_read("3|", true);
  assert_int_equal(truncate(path, 4), 0);
  append(path, "x\ny\nz\n"); /* longer than before at the next look */
  assert_read("x|y|z|", true);
  assert_read("", false);
}

/* As many lines as are remembered at least can be cut at once. */
static void many_lines_are_remembered(void **state)
{
  (void)state;
  enum { REMEMBERED = PLM_TAIL_MARKS / 2, SIZE = 7 };
  static const int counts[] = {600, PLM_TAIL_MARKS, PLM_TAIL_MARKS + 1, 2 * PLM_TAIL_MARKS + 9};
  static char bytes[(2 * PLM_TAIL_MARKS + 9) * SIZE];
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("many.jsonl"));
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    struct plm_text text = {0};
    for (int n = 0; n < counts[i]; n++) {
      char line[16];
      snprintf(line, sizeof line, "%06d\n", n);
      memcpy(bytes + n * SIZE, line, SIZE);
    }
    scratch_write(path, bytes, (size_t)counts[i] * SIZE);
    plm_tail_init(&tail, path, 0);
    assert_true(plm_tail_read(&tail, 0, collect, &text));
    assert_int_equal(text.length, counts[i] * SIZE);
    plm_text_deinit(&text);
    const int kept = counts[i] < REMEMBERED ? 1 : counts[i] - REMEMBERED + 1;
    assert_int_equal(truncate(path, kept * SIZE), 0);
    append(path, "after\n");
    assert_read("after|", true);
    assert_int_equal(truncate(path, 0), 0);
    assert_read("", false);
    append(path, "000000\n");
    assert_read("000000|", true);
  }
  for (int n = 0; n < 2 * PLM_TAIL_MARKS; n++) append(path, "more\n");
  struct plm_text text = {0};
  plm_tail_read(&tail, 0, collect, &text);
  plm_text_deinit(&text);
  assert_int_equal(truncate(path, SIZE), 0);
  assert_read("000000|", true);
}

static void other_lines_of_the_same_size_are_seen(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("same.jsonl"));
  plm_tail_init(&tail, path, 0);
  append(path, "aa\nbb\n");
  assert_read("aa|bb|", true);
  scratch_write(path, "aa\ncc\n", 6);
  assert_read("cc|", true);
  assert_read("", false);
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  plm_tail_init(&tail, scratch_directory(), 0); /* a folder */
  assert_read("", false);
  assert_int_equal(plm_tail_check(&tail, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot read "));
  assert_int_equal(symlink("loop", scratch_path("loop")), 0);
  plm_tail_init(&tail, scratch_path("loop"), 0);
  assert_read("", false);
  assert_int_equal(tail.failure, ELOOP);
  assert_int_equal(unlink(scratch_path("loop")), 0);
  append(scratch_path("loop"), "x\n");
  assert_read("x|", true); /* the failure is over */
  assert_int_equal(plm_tail_check(&tail, NULL), PLM_OK);
  tail.failure = ELOOP;
  plm_tail_init(&tail, scratch_path("not there yet"), 0);
  assert_int_equal(plm_tail_check(&tail, NULL), PLM_OK);
  assert_read("", false);
  assert_int_equal(plm_tail_check(&tail, NULL), PLM_OK);
}

/* The lines of several parts, of which one is longer than a part. */
static void lines_are_taken_one_by_one(void **state)
{
  (void)state;
  static struct plm_tail_lines lines;
  static char bytes[2 * PART + 3];
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("taken.log"));
  plm_tail_init(&lines.tail, path, 0);
  assert_null(plm_tail_peek(&lines));
  append(path, "one\ntwo\npart");
  assert_string_equal(plm_tail_peek(&lines), "one");
  assert_string_equal(plm_tail_peek(&lines), "one");
  plm_tail_take(&lines);
  assert_string_equal(plm_tail_peek(&lines), "two");
  plm_tail_take(&lines);
  assert_null(plm_tail_peek(&lines));
  memset(bytes, 'x', sizeof bytes - 1);
  bytes[sizeof bytes - 2] = '\n';
  append(path, bytes);
  assert_int_equal(strlen(plm_tail_peek(&lines)), strlen("part") + sizeof bytes - 2);
  plm_tail_take(&lines);
  assert_null(plm_tail_peek(&lines));
  plm_tail_lines_deinit(&lines);
}

/* What is compared are the last PLM_TAIL_SEEN bytes, also if they came in several parts. */
static void the_last_bytes_are_compared(void **state)
{
  (void)state;
  enum { LINES = 5000 };
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  snprintf(path, sizeof path, "%s", scratch_path("seen.jsonl"));
  plm_tail_init(&tail, path, 0);
  for (int i = 0; i < LINES; i++) {
    append(path, "0123456789\n");
    if (i % 10 == 0) plm_tail_read(&tail, 0, collect, &text);
  }
  plm_tail_read(&tail, 0, collect, &text);
  assert_int_equal(text.length, LINES * 11);
  assert_int_equal(tail.seen_size, PLM_TAIL_SEEN);
  const off_t end = LINES * 11;
  const int file = open(path, O_WRONLY);
  assert_true(file >= 0);
  assert_int_equal(pwrite(file, "X", 1, end - PLM_TAIL_SEEN - 1), 1); /* before the last bytes */
  assert_read("", false);
  assert_int_equal(pwrite(file, "X", 1, end - PLM_TAIL_SEEN), 1); /* the first of them */
  close(file);
  text.length = 0;
  assert_true(plm_tail_read(&tail, 0, collect, &text));
  assert_int_equal(text.length, end - (end - PLM_TAIL_SEEN - 1) / 11 * 11);
  plm_text_deinit(&text);
}

static void long_lines_are_cut(void **state)
{
  (void)state;
  static char bytes[PLM_TAIL_LINE_SIZE + 10];
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("long.log"));
  for (size_t length = PLM_TAIL_LINE_SIZE - 2; length <= PLM_TAIL_LINE_SIZE + 1; length++) {
    struct plm_text text = {0};
    const size_t kept = length < PLM_TAIL_LINE_SIZE ? length : PLM_TAIL_LINE_SIZE - 1;
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes + length, "\nend\n", 5);
    scratch_write(path, bytes, length + 5);
    plm_tail_init(&tail, path, 0);
    assert_true(plm_tail_read(&tail, 0, collect, &text));
    assert_int_equal(text.length, kept + 1 + 4);
    assert_string_equal(text.data + kept, "|end|");
    plm_text_deinit(&text);
  }
}

/* A limit is one of bytes, which whole parts may exceed. */
static void a_limit_ends_after_a_part(void **state)
{
  (void)state;
  static char bytes[2 * PART + 8];
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("limit.log"));
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i % 8 == 7 ? '\n' : 'x';
  scratch_write(path, bytes, sizeof bytes);
  static const size_t limits[] = {1, PART, PART + 1, 2 * PART, 2 * PART + 1};
  static const size_t lines[] = {PART / 8, PART / 8, PART / 4, PART / 4, PART / 4 + 1};
  for (size_t i = 0; i < 5; i++) {
    struct plm_text text = {0};
    plm_tail_init(&tail, path, 0);
    assert_true(plm_tail_read(&tail, limits[i], collect, &text));
    assert_int_equal(text.length, 8 * lines[i]);
    plm_text_deinit(&text);
  }
}

/* Renames the log and those it was rotated to, as log_file.h does. */
static void rotate(const char *path)
{
  char from[PLM_PATH_SIZE], to[PLM_PATH_SIZE];
  for (unsigned number = PLM_LOG_FILES_KEPT; number > 0; number--) {
    assert_true(plm_log_file_name(from, path, number - 1));
    assert_true(plm_log_file_name(to, path, number));
    (void)rename(from, to); /* it may be missing */
  }
}

static void rotated_files_come_first(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("rotated.log"));
  append(path, "a\nb\n");
  rotate(path);
  append(path, "c\nd");
  plm_tail_init(&tail, path, 0);
  assert_read("a|b|c|", true);
  rotate(path);
  assert_read("d|", false); /* nothing was read, but the end of its file ends the line */
  append(path, "e\n");
  assert_read("e|", true);
  append(path, "f\n");
  rotate(path);
  append(path, "g\n");
  rotate(path);
  append(path, "h\n");
  assert_read("f|g|h|", true);
  assert_read("", false);
  /* the file that was read is gone (but no other gets its inode): the present one is read from its
   * beginning */
  assert_int_equal(link(path, scratch_path("elsewhere")), 0);
  for (unsigned i = 0; i <= PLM_LOG_FILES_KEPT; i++) {
    rotate(path);
    append(path, i < PLM_LOG_FILES_KEPT ? "lost\n" : "last\n");
  }
  assert_read("last|", true);
  plm_tail_init(&tail, path, 0); /* a new reader begins with the oldest file */
  assert_int_equal(PLM_LOG_FILES_KEPT, 4);
  assert_read("lost|lost|lost|lost|last|", true);
  /* a place in the present file is not sought in an older one */
  plm_tail_init(&tail, path, 2);
  assert_read("st|", true);
}

static void the_end_is_a_place(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("place.log"));
  struct plm_tail_place none = plm_tail_end(path);
  assert_true(none.inode == 0 && none.offset == 0);
  append(path, "a\nb\n");
  const struct plm_tail_place place = plm_tail_end(path);
  assert_int_equal(place.offset, 4);
  append(path, "c\nd\n");
  rotate(path);
  append(path, "e\nf\n");
  static const struct {
    size_t lines;
    const char *behind, *all;
  } cases[] = {{0, "", ""},
               {1, "f|", "f|"},
               {2, "e|f|", "e|f|"},
               {3, "d|e|f|", "d|e|f|"},
               {5, "c|d|e|f|", "b|c|d|e|f|"},
               {SIZE_MAX, "c|d|e|f|", "a|b|c|d|e|f|"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    plm_tail_init_last(&tail, path, place, cases[i].lines);
    assert_read(cases[i].behind, cases[i].lines > 0);
    plm_tail_init_last(&tail, path, none, cases[i].lines);
    assert_read(cases[i].all, cases[i].lines > 0);
  }
}

/* Whoever reads has to know that what comes next does not follow what came before. */
static void a_file_that_is_gone_is_cut(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("gone.log"));
  plm_tail_init(&tail, path, 0);
  assert_read("", false);
  assert_false(tail.cut); /* it was never there */
  append(path, "\n");
  assert_read("|", true);
  assert_int_equal(unlink(path), 0);
  assert_read("", false);
  assert_true(tail.cut);
  append(path, "a\n");
  assert_read("a|", true); /* another file */
  assert_true(tail.cut);
}

/* An empty file has no line: the last ones are in those that it was rotated to. */
static void an_empty_log_counts_no_line(void **state)
{
  (void)state;
  char path[PLM_PATH_SIZE];
  snprintf(path, sizeof path, "%s", scratch_path("empty.log"));
  static const char *const parts[] = {"a\nb\n", "", "c\n", ""};
  for (int i = 0; i < 4; i++, rotate(path)) append(path, parts[i]);
  append(path, "");
  static const char *const last[] = {"", "c|", "b|c|", "a|b|c|", "a|b|c|"};
  for (size_t lines = 0; lines < sizeof last / sizeof *last; lines++) {
    plm_tail_init_last(&tail, path, (struct plm_tail_place){0}, lines);
    assert_read(last[lines], lines > 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_lines_are_found),
      cmocka_unit_test(lines_are_found_over_parts),
      cmocka_unit_test(lines_come_when_they_are_complete),
      cmocka_unit_test(a_file_that_was_cut_and_has_grown_goes_back),
      cmocka_unit_test(a_copy_in_its_place_is_continued),
      cmocka_unit_test(a_cut_goes_back),
      cmocka_unit_test(many_lines_are_remembered),
      cmocka_unit_test(other_lines_of_the_same_size_are_seen),
      cmocka_unit_test(the_last_bytes_are_compared),
      cmocka_unit_test(long_lines_are_cut),
      cmocka_unit_test(a_limit_ends_after_a_part),
      cmocka_unit_test(a_file_that_cannot_be_read_is_an_error),
      cmocka_unit_test(lines_are_taken_one_by_one),
      cmocka_unit_test(rotated_files_come_first),
      cmocka_unit_test(the_end_is_a_place),
      cmocka_unit_test(a_file_that_is_gone_is_cut),
      cmocka_unit_test(an_empty_log_counts_no_line),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
