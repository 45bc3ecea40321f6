/* Files that threads read ahead: their records come in the same order, with the same errors, as one
 * file after the other gives them, however little may wait in memory. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "common/sequences/sequence_ahead.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/failing_starts.h"
#include "tests/support/harness/scratch.h"

enum { FILES = 9, MANY_BAD = 30, LONG = 5 << 18 };

static char paths[FILES][256];
static const char *names[FILES];

/* FASTA of about `bytes` bytes, in which every `bad`-th record is bad (0: none). */
static void write_fasta(int file, size_t bytes, unsigned bad)
{
  struct plm_text text = {0};
  for (unsigned r = 0; text.length < bytes; r++) {
    plm_text_printf(&text, ">f%d.%u\n", file, r);
    for (unsigned line = 0; line <= r % 5; line++) plm_text_puts(&text, "LAGVSERTIDPKQNFYMHWC\n");
    if (bad != 0 && r % bad == 0) plm_text_puts(&text, "L1\n");
  }
  scratch_write(paths[file], text.data, text.length);
  plm_text_deinit(&text);
}

static void write_zstd(int file, size_t cut)
{
  static char plain[3 << 19], packed[ZSTD_COMPRESSBOUND(sizeof plain)];
  size_t length = 0;
  for (unsigned r = 0; length < sizeof plain - 64; r++)
    length += (size_t)sprintf(plain + length, "LAGVSERT%c%c\n", 'A' + (int)(r % 7 == 1), 'C');
  const size_t size = ZSTD_compress(packed, sizeof packed, plain, length, 1);
  scratch_write(paths[file], packed, size - cut);
}

static int set_up(void **state)
{
  (void)state;
  static const char *const endings[FILES] = {".fa",  ".txt.zst", ".fa", ".jsonl", ".fa",
                                             ".txt", ".fa",      ".fa", ".fa"};
  for (int i = 0; i < FILES; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/%d%s", scratch_directory(), i, endings[i]);
    names[i] = paths[i];
  }
  write_fasta(0, 5 << 19, 1000);
  write_zstd(1, 0);
  write_fasta(2, 100, 0);
  scratch_write(paths[3], "{\"sequence\": \"LA\", \"name\": \"one\"}\nno object\n", 45);
  write_fasta(4, 3 << 19, MANY_BAD);
  scratch_write(paths[5], "LAG\nLA2\nSE\n", 11);
  write_fasta(6, 1 << 18, 0);
  write_fasta(7, 40, 0);
  write_fasta(8, 5 << 18, 7);
  return 0;
}

/* What is read of the files, as text: one line for each record. Bad ones only with `errors`, and of
 * the bad ones of a file only the first 20 say why. */
struct heard {
  struct plm_text text;
  uint64_t consumed, produced;
};

static void hear(struct heard *heard, size_t file, enum plm_sequence_result result,
                 const struct plm_sequence *sequence, const struct plm_error *error)
{
  if (result == PLM_SEQUENCE_READ)
    plm_text_printf(&heard->text, "%zu %llu %llu %d %.*s %.*s\n", file,
                    (unsigned long long)sequence->line, (unsigned long long)sequence->length,
                    sequence->too_long, (int)sequence->name_size, sequence->name,
                    (int)sequence->size, (const char *)sequence->residues);
  else
    plm_text_printf(&heard->text, "%zu: %d %s %s\n", file, (int)result, error->where, error->what);
}

static void read_one_after_the_other(size_t count, struct heard *heard)
{
  for (size_t file = 0; file < count; file++) {
    struct plm_byte_stream *stream;
    struct plm_sequence_reader *reader;
    struct plm_sequence sequence;
    enum plm_sequence_result result;
    unsigned bad = 0;
    assert_int_equal(plm_byte_stream_open(paths[file], &stream, NULL), PLM_OK);
    reader = plm_sequence_reader_open(stream, PLM_TOKENIZER_ESM, 90);
    do {
      struct plm_error error = {0};
      result = plm_sequence_reader_next(reader, &sequence, &error);
      if (result == PLM_SEQUENCE_BAD && bad++ >= 20) error = (struct plm_error){0};
      hear(heard, file, result, &sequence, &error);
    } while (result != PLM_SEQUENCE_END && result != PLM_SEQUENCE_FAILED);
    heard->consumed += plm_byte_stream_consumed(stream);
    heard->produced += plm_byte_stream_produced(stream);
    plm_sequence_reader_close(reader);
    if (result == PLM_SEQUENCE_FAILED) return;
  }
}

static struct plm_sequence_ahead *open_ahead(size_t count, unsigned jobs, size_t limit)
{
  const struct plm_sequence_ahead_options options = {
      .paths = names,
      .path_count = count,
      .jobs = jobs,
      .tokenizer = PLM_TOKENIZER_ESM,
      .max_residues = 90,
      .stop_consequence = "; nothing was written",
      .limit_bytes = limit,
  };
  struct plm_sequence_ahead *ahead;
  assert_int_equal(plm_sequence_ahead_open(&options, &ahead, NULL), PLM_OK);
  return ahead;
}

static void read_ahead(size_t count, unsigned jobs, size_t limit, struct heard *heard)
{
  struct plm_sequence_ahead *ahead = open_ahead(count, jobs, limit);
  enum plm_sequence_result result = PLM_SEQUENCE_END;
  for (size_t file = 0; file < count && result == PLM_SEQUENCE_END; file++) {
    do {
      struct plm_sequence sequence;
      struct plm_error error = {0};
      result = plm_sequence_ahead_next(ahead, file, &sequence, &error);
      hear(heard, file, result, &sequence, &error);
    } while (result != PLM_SEQUENCE_END && result != PLM_SEQUENCE_FAILED);
    heard->consumed += plm_sequence_ahead_position(ahead).consumed;
    heard->produced += plm_sequence_ahead_position(ahead).produced;
  }
  plm_sequence_ahead_close(ahead);
}

static void compare(size_t count)
{
  struct heard expected = {.consumed = 0};
  read_one_after_the_other(count, &expected);
  static const unsigned jobs[] = {1, 3, 20};
  static const size_t limits[] = {1, 0};
  for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
    for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
      struct heard heard = {.consumed = 0};
      read_ahead(count, jobs[j], limits[l], &heard);
      assert_int_equal(heard.text.length, expected.text.length);
      assert_memory_equal(heard.text.data, expected.text.data, expected.text.length);
      assert_int_equal(heard.consumed, expected.consumed);
      assert_int_equal(heard.produced, expected.produced);
      plm_text_deinit(&heard.text);
    }
  plm_text_deinit(&expected.text);
}

static void records_and_errors_are_those_of_reading_in_order(void **state)
{
  (void)state;
  compare(FILES);
}

static void a_damaged_file_fails_when_its_turn_comes(void **state)
{
  (void)state;
  write_zstd(1, 100);
  compare(4);
  write_zstd(1, 0);
}

static void a_missing_file_fails_when_its_turn_comes(void **state)
{
  (void)state;
  assert_int_equal(remove(paths[2]), 0);
  struct heard heard = {.consumed = 0};
  read_ahead(4, 3, 0, &heard);
  plm_text_append(&heard.text, "", 1);
  assert_non_null(strstr(heard.text.data, "1: 2"));
  assert_non_null(strstr(heard.text.data, "2: 3"));
  assert_non_null(strstr(heard.text.data, "2.fa"));
  assert_null(strstr(heard.text.data, "\n3 "));
  plm_text_deinit(&heard.text);
  write_fasta(2, 100, 0);
}

static void it_closes_while_files_wait(void **state)
{
  (void)state;
  for (unsigned jobs = 1; jobs < 5; jobs++) {
    struct plm_sequence_ahead *ahead = open_ahead(FILES, jobs, 1);
    struct plm_sequence sequence;
    struct plm_error error = {0};
    for (unsigned i = 0; i < jobs - 1; i++)
      (void)plm_sequence_ahead_next(ahead, 0, &sequence, &error);
    plm_sequence_ahead_close(ahead);
  }
}

static void a_stop_signal_ends_it_before_the_next_record(void **state)
{
  (void)state;
  struct plm_sequence_ahead *ahead = open_ahead(FILES, 2, 0);
  struct plm_sequence sequence;
  struct plm_error error = {0};
  assert_int_equal(plm_sequence_ahead_next(ahead, 0, &sequence, &error), PLM_SEQUENCE_BAD);
  assert_int_equal(plm_sequence_ahead_next(ahead, 0, &sequence, &error), PLM_SEQUENCE_READ);
  plm_stop_requested = SIGTERM;
  assert_int_equal(plm_sequence_ahead_next(ahead, 0, &sequence, &error), PLM_SEQUENCE_FAILED);
  assert_int_equal(error.status, PLM_TERMINATED);
  assert_non_null(strstr(error.what, "; nothing was written"));
  plm_sequence_ahead_close(ahead);
  plm_stop_requested = 0;
}

static void pipes_are_left_to_the_caller(void **state)
{
  (void)state;
  char fifo[300];
  snprintf(fifo, sizeof fifo, "%s/fifo", scratch_directory());
  assert_int_equal(mkfifo(fifo, 0600), 0);
  const char *const own[] = {"-", fifo, paths[2]};
  const struct plm_sequence_ahead_options options = {
      .paths = own, .path_count = 3, .jobs = 2, .max_residues = 90, .stop_consequence = ""};
  struct plm_sequence_ahead *ahead;
  assert_int_equal(plm_sequence_ahead_open(&options, &ahead, NULL), PLM_OK);
  assert_false(plm_sequence_ahead_reads(ahead, 0));
  assert_false(plm_sequence_ahead_reads(ahead, 1));
  assert_true(plm_sequence_ahead_reads(ahead, 2));
  struct plm_sequence sequence;
  struct plm_error error = {0};
  assert_int_equal(plm_sequence_ahead_next(ahead, 2, &sequence, &error), PLM_SEQUENCE_READ);
  assert_memory_equal(sequence.name, "f2.0", 4);
  plm_sequence_ahead_close(ahead);
}

/* A record that is too long for a batch as it is. */
static plm_status read_a_long_record(void *context, struct plm_error *error)
{
  const char *const own[] = {context};
  const struct plm_sequence_ahead_options options = {
      .paths = own, .path_count = 1, .jobs = 1, .max_residues = LONG, .stop_consequence = ""};
  struct plm_sequence_ahead *ahead;
  struct plm_sequence sequence;
  PLM_TRY(plm_sequence_ahead_open(&options, &ahead, error));
  const enum plm_sequence_result result = plm_sequence_ahead_next(ahead, 0, &sequence, error);
  if (result != PLM_SEQUENCE_FAILED) {
    assert_int_equal(result, PLM_SEQUENCE_READ);
    assert_int_equal(sequence.size, LONG);
    assert_int_equal(plm_sequence_ahead_next(ahead, 0, &sequence, error), PLM_SEQUENCE_END);
  }
  plm_sequence_ahead_close(ahead);
  return result == PLM_SEQUENCE_FAILED ? error->status : PLM_OK;
}

static void a_lack_of_memory_is_an_error(void **state)
{
  char path[256], *text = malloc(LONG + 4);
  (void)state;
  assert_non_null(text);
  memset(text, 'A', LONG + 4);
  memcpy(text, ">n\n", 3);
  text[LONG + 3] = '\n';
  snprintf(path, sizeof path, "%s/long.fa", scratch_directory());
  scratch_write(path, text, LONG + 4);
  free(text);
  failing_disk_try(read_a_long_record, path, NULL);
  failing_memory_try(read_a_long_record, path, 2);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  const struct plm_sequence_ahead_options options = {
      .paths = names, .path_count = 2, .jobs = 2, .stop_consequence = context, .max_residues = 9};
  struct plm_sequence_ahead *ahead = context;
  const plm_status status = plm_sequence_ahead_open(&options, &ahead, error);
  assert_true(status == PLM_OK || ahead == NULL);
  plm_sequence_ahead_close(ahead);
  return status;
}

static void threads_that_do_not_start_are_an_error(void **state)
{
  (void)state;
  assert_int_equal(failing_starts_try(open_and_close, ""), 2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(records_and_errors_are_those_of_reading_in_order),
      cmocka_unit_test(a_damaged_file_fails_when_its_turn_comes),
      cmocka_unit_test(a_missing_file_fails_when_its_turn_comes),
      cmocka_unit_test(it_closes_while_files_wait),
      cmocka_unit_test(a_stop_signal_ends_it_before_the_next_record),
      cmocka_unit_test(pipes_are_left_to_the_caller),
      cmocka_unit_test(a_lack_of_memory_is_an_error),
      cmocka_unit_test(threads_that_do_not_start_are_an_error),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}
