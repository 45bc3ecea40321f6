/* A signal while a table of labels or the ids of assays are read: a stop request ends it at the
 * next look, others do not, and a disk that fails later than at the first file is an error too. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zstd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "common/sequences/assay_ids.h"
#include "common/sequences/labelled_table.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { ROWS = 9 };
enum action { NOTHING, STOP, STOP_WAITING, INTERRUPT, BREAK, REMOVE };
enum work { LABELS_CSV, LABELS_ZSTD, LABELS_JSON, IDS, IDS_PIPE, WORKS };

static char paths[WORKS][PLM_PATH_SIZE];
static const char ids_text[] = "DMS_id,file\nfirst,a.csv\nlast,b.csv\n";
static enum action action;
static int reads, at;   /* how many there were, and the one at which it is done */
static int writer = -1; /* of the pipe, until it is read */

/* Takes the place of libc's function in this program. */
ssize_t read(int file, void *bytes, size_t size)
{
  struct stat about;
  if (action == NOTHING || fstat(file, &about) != 0 ||
      (!S_ISREG(about.st_mode) && !S_ISFIFO(about.st_mode)))
    return syscall(SYS_read, file, bytes, size);
  if (S_ISFIFO(about.st_mode) && writer >= 0) writer = close(writer) - 1;
  const int number = reads++;
  if (number > at + 1) return syscall(SYS_read, file, bytes, size);
  if (number == at && (action == STOP || action == STOP_WAITING)) plm_stop_requested = SIGTERM;
  if (number == at && action == REMOVE) unlink(paths[IDS]);
  errno = action == BREAK ? EIO : EINTR;
  if (number >= at && action == STOP_WAITING) return -1;
  if (number == at && (action == INTERRUPT || action == BREAK)) return -1;
  return syscall(SYS_read, file, bytes, size);
}

static plm_status do_work(enum work work, struct plm_error *error)
{
  if (work >= IDS) {
    static const char *const ids[] = {"last", "first"};
    const ssize_t size = sizeof ids_text - 1;
    if (work == IDS_PIPE) writer = open(paths[work], O_RDWR | O_CLOEXEC);
    if (work == IDS_PIPE) assert_int_equal(write(writer, ids_text, (size_t)size), size);
    return plm_assay_ids_check(paths[work], ids, 2, error);
  }
  const struct plm_labelled_request request = {.path = paths[work],
                                               .target_column = "label",
                                               .kind = PLM_LABEL_NUMBER,
                                               .tokenizer = PLM_TOKENIZER_ESM};
  struct plm_labelled_table table;
  const plm_status status = plm_labelled_table_read(&request, &table, error);
  if (status == PLM_OK) assert_int_equal(table.count, ROWS);
  plm_labelled_table_deinit(&table); /* also after an error */
  return status;
}

static int write_files(void **state)
{
  static const char *const names[WORKS] = {"labels.csv", "labels.csv.zst", "labels.jsonl",
                                           "ids.csv", "pipe"};
  (void)state;
  for (enum work work = 0; work < WORKS; work++) {
    struct plm_text text = {0};
    char packed[1024];
    if (work == LABELS_CSV || work == LABELS_ZSTD) plm_text_puts(&text, "sequence,label\n");
    if (work == IDS) plm_text_puts(&text, ids_text);
    for (int row = 0; row < ROWS && work < IDS; row++)
      plm_text_printf(&text,
                      work == LABELS_JSON ? "{\"sequence\": \"MKV%.*s\", \"label\": %d.5}\n"
                                          : "MKV%.*s,%d.5\n",
                      row, "AAAAAAAAA", row);
    snprintf(paths[work], PLM_PATH_SIZE, "%s", scratch_path(names[work]));
    if (work == IDS_PIPE)
      assert_int_equal(mkfifo(paths[work], 0600), 0);
    else if (work == LABELS_ZSTD)
      scratch_write(paths[work], packed,
                    ZSTD_compress(packed, sizeof packed, text.data, text.length, 1));
    else
      scratch_write(paths[work], text.data, text.length);
    plm_text_deinit(&text);
  }
  return 0;
}

/* Does something at each read in turn; the status of each attempt has to be the expected one, with
 * these words. Returns the number of reads. */
static int try_each(enum work work, enum action what, plm_status expected, const char *words)
{
  for (at = 0;; at++) {
    struct plm_error error = {0};
    action = what;
    reads = 0;
    const plm_status status = do_work(work, &error);
    action = NOTHING;
    plm_stop_requested = 0;
    if (reads <= at) {
      assert_int_equal(status, PLM_OK);
      return reads;
    }
    if (status != expected || strstr(error.what, words) == NULL)
      fail_msg("work %d, read %d: status %d, \"%s\"", (int)work, at, (int)status, error.what);
    if (what == STOP_WAITING) assert_int_equal(reads, at + 1); /* it does not wait again */
  }
}

static void a_stop_request_is_seen(void **state)
{
  (void)state;
  for (enum work work = 0; work < IDS; work++) {
    struct plm_error error = {0};
    const int count = try_each(work, STOP, PLM_TERMINATED,
                               "stopped by SIGTERM while reading; nothing was written");
    assert_true(count >= 2); /* the last one says that nothing follows */
    try_each(work, STOP_WAITING, PLM_TERMINATED, "stopped by SIGTERM while reading");
    plm_stop_requested = SIGINT;
    assert_int_equal(do_work(work, &error), PLM_INTERRUPTED);
    plm_stop_requested = 0;
    assert_string_equal(error.what, "stopped by Ctrl-C while reading; nothing was written");
  }
  assert_true(try_each(IDS, STOP, PLM_TERMINATED, "stopped by SIGTERM while reading") >= 2);
}

static void other_signals_do_not_matter(void **state)
{
  (void)state;
  for (enum work work = 0; work < WORKS; work++)
    assert_true(try_each(work, INTERRUPT, PLM_OK, "") >= 2);
}

static void each_failed_read_is_an_error(void **state)
{
  (void)state;
  for (enum work work = 0; work < WORKS; work++)
    assert_true(try_each(work, BREAK, PLM_IO, strerror(EIO)) >= 2);
}

/* Each id is looked for from the beginning of the file. */
static void a_file_that_vanishes_is_an_error(void **state)
{
  struct plm_error error = {0};
  (void)state;
  action = REMOVE;
  reads = at = 0;
  assert_int_equal(do_work(IDS, &error), PLM_NOT_FOUND);
  action = NOTHING;
  assert_non_null(strstr(error.what, "ids.csv"));
  scratch_write(paths[IDS], ids_text, sizeof ids_text - 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stop_request_is_seen),
      cmocka_unit_test(other_signals_do_not_matter),
      cmocka_unit_test(each_failed_read_is_an_error),
      cmocka_unit_test(a_file_that_vanishes_is_an_error),
  };
  return cmocka_run_group_tests(tests, write_files, NULL);
}
