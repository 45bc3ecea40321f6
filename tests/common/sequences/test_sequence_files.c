/* The loop over files of sequences: what it counts and hands out, what it does with bad records and
 * with files without a good one, and that a stop signal and an error of the caller end it. */
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "common/sequences/sequence_files.h"
#include "tests/support/harness/scratch.h"

struct listener {
  struct plm_text heard;  /* "FILE NAME RESIDUES" for each record, on a line */
  const char *refused;    /* a name that take refuses */
  const char *stopped_at; /* a name after which a stop signal comes */
};

static plm_status listener_on_record(void *context, size_t file,
                                     const struct plm_sequence *sequence, struct plm_error *error)
{
  struct listener *listener = context;
  plm_text_printf(&listener->heard, "%zu %.*s %.*s\n", file, (int)sequence->name_size,
                  sequence->name, (int)sequence->size, (const char *)sequence->residues);
  if (listener->refused != NULL && memcmp(sequence->name, listener->refused, 1) == 0)
    return plm_error_set(error, PLM_LIMIT, "no more of this");
  if (listener->stopped_at != NULL && memcmp(sequence->name, listener->stopped_at, 1) == 0)
    plm_stop_requested = SIGTERM;
  return PLM_OK;
}

static const char *write_file(const char *name, const char *text)
{
  const char *path = scratch_path(name);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0666, NULL), PLM_OK);
  return path;
}

static struct plm_sequence_files files_of(const char *const *paths, size_t count,
                                          struct plm_progress *progress, struct listener *listener)
{
  plm_progress_begin(progress, "read");
  progress->silent = true;
  return (struct plm_sequence_files){.paths = paths,
                                     .path_count = count,
                                     .tokenizer = PLM_TOKENIZER_ESM,
                                     .max_residues = 4,
                                     .progress = progress,
                                     .stop_consequence = "; nothing was written",
                                     .context = listener,
                                     .on_record = listener_on_record};
}

static void records_of_all_files_are_counted(void **state)
{
  (void)state;
  const char *paths[] = {write_file("one.fasta", ">a\nLA\n>b\nL1\n>c\nLAGVL\n"),
                         write_file("two.txt", "SE\n")};
  struct listener listener = {.refused = NULL};
  struct plm_progress progress;
  struct plm_sequence_files files = files_of(paths, 2, &progress, &listener);
  struct plm_sequence_file_counts counts;
  uint64_t bytes[2], total;
  struct plm_error error = {0};
  assert_int_equal(plm_sequence_files_check(paths, 2, &total, &error), PLM_OK);
  assert_int_equal(total, 24);
  for (unsigned way = 0; way < 6; way++) { /* read here, by one thread or by three */
    const int heads = way % 2;
    listener.heard.length = 0;
    files.keep_heads = heads == 1;
    files.jobs = way / 2 == 2 ? 3 : way / 2;
    assert_int_equal(plm_sequence_files_read(&files, &counts, bytes, &error), PLM_OK);
    assert_string_equal(listener.heard.data, heads == 1 ? "0 a LA\n0 c LAGV\n1 two.txt:1 SE\n"
                                                        : "0 a LA\n0 c \n1 two.txt:1 SE\n");
    assert_int_equal(counts.records, 4);
    assert_int_equal(counts.bad, 1);
    assert_int_equal(counts.bytes, 24);
    assert_int_equal(bytes[0], 21);
    assert_int_equal(bytes[1], 3);
  }
  files.strict = true;
  files.jobs = 0;
  assert_int_equal(plm_sequence_files_read(&files, &counts, bytes, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "character '1' is not a residue"));
  assert_non_null(strstr(error.where, "one.fasta:4"));
  plm_text_deinit(&listener.heard);
}

/* A pipe is not opened, which would wait for its writer, and so the size of all is not known. */
static void a_pipe_has_no_size(void **state)
{
  (void)state;
  const char *pipe = scratch_path("pipe");
  const char *paths[] = {write_file("one.fasta", ">a\nLA\n"), pipe};
  uint64_t total = 1;
  assert_int_equal(mkfifo(pipe, 0600), 0);
  alarm(60);
  assert_int_equal(plm_sequence_files_check(paths, 2, &total, NULL), PLM_OK);
  assert_int_equal(total, 0);
  /* the files behind one without a size are looked at, too */
  const char *const first[] = {pipe, "-"};
  for (size_t i = 0; i < 2; i++) {
    const char *missing[] = {first[i], scratch_path("missing.fasta")};
    total = 1;
    assert_int_equal(plm_sequence_files_check(missing, 2, &total, NULL), PLM_NOT_FOUND);
    const char *good[] = {first[i], paths[0]};
    total = 1;
    assert_int_equal(plm_sequence_files_check(good, 2, &total, NULL), PLM_OK);
    assert_int_equal(total, 0);
  }
  alarm(0);
}

/* Standard input may begin anywhere in a file, so its size says nothing. */
static void standard_input_has_no_size(void **state)
{
  (void)state;
  const char *path = write_file("input.fasta", ">a\nLA\n>b\nSE\n"), *paths[] = {"-"};
  const int before = dup(STDIN_FILENO), file = open(path, O_RDONLY | O_CLOEXEC);
  uint64_t total = 1;
  assert_true(file >= 0);
  assert_int_equal(dup2(file, STDIN_FILENO), STDIN_FILENO);
  close(file);
  const plm_status status = plm_sequence_files_check(paths, 1, &total, NULL);
  if (before >= 0) {
    dup2(before, STDIN_FILENO);
    close(before);
  }
  assert_int_equal(status, PLM_OK);
  assert_int_equal(total, 0);
}

/* What stands behind a pipe or standard input is looked at as what stands before it. */
static void a_missing_file_is_found_behind_a_pipe(void **state)
{
  (void)state;
  const char *pipe = scratch_path("before");
  const char *paths[] = {"-", pipe, scratch_path("missing.fasta")};
  assert_int_equal(mkfifo(pipe, 0600), 0);
  for (int first = 0; first < 2; first++) {
    uint64_t total;
    struct plm_error error = {0};
    assert_int_equal(plm_sequence_files_check(paths + first, 3 - first, &total, &error),
                     PLM_NOT_FOUND);
    assert_non_null(strstr(error.what, "missing.fasta"));
  }
}

static void files_without_a_good_record_are_errors(void **state)
{
  (void)state;
  static const struct {
    const char *text, *what;
  } cases[] = {{"", "bad.fasta is empty"}, {">a\n1\n>b\n2\n", "has no good record, 2 bad"}};
  for (size_t i = 0; i < 2; i++) {
    const char *paths[] = {write_file("bad.fasta", cases[i].text)};
    struct listener listener = {.refused = NULL};
    struct plm_progress progress;
    const struct plm_sequence_files files = files_of(paths, 1, &progress, &listener);
    struct plm_sequence_file_counts counts;
    struct plm_error error = {0};
    assert_int_equal(plm_sequence_files_read(&files, &counts, NULL, &error), PLM_FORMAT);
    assert_non_null(strstr(error.what, cases[i].what));
    assert_int_equal(plm_sequence_files_read(&files, &counts, NULL, NULL), PLM_FORMAT);
  }
  const char *missing[] = {write_file("good.fasta", ">a\nL\n"), scratch_path("missing.fasta")};
  uint64_t total;
  struct plm_error error = {0};
  assert_int_not_equal(plm_sequence_files_check(missing, 2, &total, &error), PLM_OK);
  assert_non_null(strstr(error.what, "missing.fasta"));
}

static void errors_and_stop_signals_end_it(void **state)
{
  (void)state;
  const char *paths[] = {write_file("three.fasta", ">a\nL\n>b\nA\n>c\nG\n")};
  struct listener listener = {.refused = "b"};
  struct plm_progress progress;
  const struct plm_sequence_files files = files_of(paths, 1, &progress, &listener);
  struct plm_sequence_file_counts counts;
  struct plm_error error = {0};
  assert_int_equal(plm_sequence_files_read(&files, &counts, NULL, &error), PLM_LIMIT);
  assert_string_equal(error.what, "no more of this");
  assert_string_equal(listener.heard.data, "0 a L\n0 b A\n");
  listener.heard.length = 0;
  listener.refused = NULL;
  listener.stopped_at = "b";
  assert_int_equal(plm_sequence_files_read(&files, &counts, NULL, &error), PLM_TERMINATED);
  assert_non_null(strstr(error.what, "; nothing was written"));
  assert_string_equal(listener.heard.data, "0 a L\n0 b A\n");
  plm_stop_requested = 0;
  plm_text_deinit(&listener.heard);
}

/* Twenty are shown; the rest is only counted. */
static void bad_records_are_shown_up_to_a_limit(void **state)
{
  (void)state;
  for (unsigned bad = 19; bad <= 21; bad++) {
    struct plm_text text = {0}, expected = {0};
    struct plm_progress progress;
    struct listener listener = {0};
    struct plm_sequence_file_counts counts;
    plm_text_puts(&text, ">a\nLA\n");
    for (unsigned i = 0; i < bad; i++) {
      plm_text_printf(&text, ">b%u\n", i);
      if (i < 20)
        plm_text_printf(&expected,
                        "test: warning: FILE:%u: record \"b%u\": empty sequence: skipped\n", 3 + i,
                        i);
    }
    if (bad >= 20)
      plm_text_puts(&expected, "test: warning: further bad records are counted, not shown\n");
    const char *path = write_file("bad.fasta", text.data);
    const struct plm_sequence_files files = files_of(&path, 1, &progress, &listener);
    plm_log_init("test", PLM_LOG_INFO);
    captured_begin(STDERR_FILENO);
    const plm_status status = plm_sequence_files_read(&files, &counts, NULL, NULL);
    const char *said = captured_end();
    plm_text_clear(&text);
    for (const char *at; (at = strstr(said, path)) != NULL; said = at + strlen(path))
      plm_text_printf(&text, "%.*sFILE", (int)(at - said), said);
    plm_text_puts(&text, said);
    assert_int_equal(status, PLM_OK);
    assert_string_equal(text.data, expected.data);
    assert_int_equal(counts.bad, bad);
    assert_int_equal(counts.records, bad + 1);
    plm_text_deinit(&text);
    plm_text_deinit(&expected);
    plm_text_deinit(&listener.heard);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_of_all_files_are_counted),
      cmocka_unit_test(a_pipe_has_no_size),
      cmocka_unit_test(a_missing_file_is_found_behind_a_pipe),
      cmocka_unit_test(standard_input_has_no_size),
      cmocka_unit_test(files_without_a_good_record_are_errors),
      cmocka_unit_test(errors_and_stop_signals_end_it),
      cmocka_unit_test(bad_records_are_shown_up_to_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
