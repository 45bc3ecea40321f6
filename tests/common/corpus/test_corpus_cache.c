/* Copies of corpora in a cache: they are made once, checked, shared, and stay while they are used.
 */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus.h"
#include "common/corpus/corpus_cache.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

static char directory[PLM_PATH_SIZE], cache[PLM_PATH_SIZE];
static const struct plm_corpus_options options = {.cache_dir = cache};

static int begin(void **state)
{
  (void)state;
  static const char residues[] = "LAGVSERTIDPKQNFYMHWC";
  const struct plm_corpus_writer_options writing = {
      .directory = directory, .tokenizer = PLM_TOKENIZER_ESM, .threads = 1};
  const struct plm_ingested_file source = {.name = "some", .bytes = 1, .documents = 300};
  struct plm_corpus_writer *writer;
  snprintf(directory, sizeof directory, "%s", scratch_path("remote"));
  snprintf(cache, sizeof cache, "%s", scratch_path("cache"));
  assert_int_equal(plm_corpus_writer_open(&writing, &writer, NULL), PLM_OK);
  for (size_t d = 0; d < 300; d++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "a", 1,
                                           (const uint8_t *)residues, 1 + d % 20, NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  return 0;
}

static int end(void **state)
{
  (void)state;
  plm_path_remove(directory, NULL);
  plm_path_remove(cache, NULL);
  return 0;
}

/* Opens the corpus and closes it. local receives the folder of the copy. */
static void open_once(char local[PLM_PATH_SIZE])
{
  struct plm_corpus *corpus;
  assert_int_equal(plm_corpus_open(directory, &options, &corpus, NULL), PLM_OK);
  snprintf(local, PLM_PATH_SIZE, "%s", plm_corpus_path(corpus));
  plm_corpus_close(corpus);
}

static void a_cache_is_filled_once(void **state)
{
  (void)state;
  char data[PLM_PATH_SIZE], local[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  plm_path_join(data, directory, PLM_CORPUS_DATA, NULL);
  open_once(local);
  assert_int_equal(strncmp(local, cache, strlen(cache)), 0);
  assert_int_equal(rename(data, scratch_path("moved")), 0);
  struct stat lock;
  assert_true(snprintf(path, sizeof path, "%s.lock", local) < (int)sizeof path);
  assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{0}}, 0), 0);
  open_once(local); /* finds the copy, and notes its use */
  assert_int_equal(stat(path, &lock), 0);
  assert_true(lock.st_mtime > 0);
  assert_int_equal(rename(scratch_path("moved"), data), 0);
}

static void a_truncated_copy_is_made_again(void **state)
{
  (void)state;
  char data[PLM_PATH_SIZE], local[PLM_PATH_SIZE];
  open_once(local);
  plm_path_join(data, local, PLM_CORPUS_DATA, NULL);
  assert_int_equal(truncate(data, 4096), 0);
  open_once(local);
  plm_path_join(data, local, PLM_CORPUS_DESCRIPTION, NULL);
  assert_int_equal(unlink(data), 0);
  open_once(local);
}

static void a_damaged_original_is_not_copied(void **state)
{
  (void)state;
  enum { PLACE = 20000 };
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  char data[PLM_PATH_SIZE], local[PLM_PATH_SIZE];
  unsigned char byte;
  open_once(local);
  plm_path_remove(local, NULL);
  plm_path_join(data, directory, PLM_CORPUS_DATA, NULL);
  const int descriptor = open(data, O_RDWR);
  assert_int_equal(pread(descriptor, &byte, 1, PLACE), 1);
  byte ^= 1;
  assert_int_equal(pwrite(descriptor, &byte, 1, PLACE), 1);
  close(descriptor);
  assert_int_equal(plm_corpus_open(directory, &options, &corpus, &error), PLM_CORRUPT);
  assert_false(plm_file_exists(local));
}

static plm_status stop_now(const char *consequence, struct plm_error *error)
{
  return plm_error_set(error, PLM_INTERRUPTED, "stopped%s", consequence);
}

/* An open corpus keeps its copy from being removed, and others open the same copy meanwhile.
 * Whoever waits for a copy, or makes it, can be stopped. */
static void an_open_copy_stays_and_waiting_can_be_stopped(void **state)
{
  (void)state;
  struct plm_corpus *first, *second;
  char path[PLM_PATH_SIZE], local[PLM_PATH_SIZE];
  open_once(local);
  assert_true(snprintf(path, sizeof path, "%s.lock", local) < (int)sizeof path);
  const int lock = open(path, O_RDWR);
  assert_true(lock >= 0);
  assert_int_equal(plm_corpus_open(directory, &options, &first, NULL), PLM_OK);
  assert_int_equal(plm_corpus_open(directory, &options, &second, NULL), PLM_OK);
  assert_string_equal(plm_corpus_path(second), local);
  plm_corpus_close(second);
  assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), -1);
  plm_corpus_close(first);
  assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
  const struct plm_corpus_options stopping = {.cache_dir = cache, .stop = stop_now};
  struct plm_error error = {0};
  assert_int_equal(plm_corpus_open(directory, &stopping, &first, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "stopped");
  assert_int_equal(plm_path_remove(local, NULL), PLM_OK);
  assert_int_equal(flock(lock, LOCK_SH),
                   0); /* somebody else still looks for it: wait, then make it */
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_corpus_open(directory, &stopping, &first, &error);
  const char *said = captured_end();
  assert_int_equal(status, PLM_INTERRUPTED);
  assert_non_null(
      strstr(said, "waiting for another process of this host that puts the same corpus"));
  assert_string_equal(error.what, "stopped");
  close(lock);
  assert_int_equal(plm_corpus_open(directory, &stopping, &first, &error), PLM_INTERRUPTED);
  assert_string_equal(error.what, "stopped; nothing of the copy is kept");
  assert_false(plm_file_exists(local));
  assert_true(snprintf(path, sizeof path, "%s.part", local) < (int)sizeof path);
  assert_false(plm_file_exists(path));
}

/* What is told while a corpus is opened. */
struct told {
  int works, calls; /* of work that begins at 0 */
  uint64_t done, total;
  int lock; /* closed at the third call; -1: none */
};

static void keep_told(void *context, uint64_t done, uint64_t total)
{
  struct told *told = context;
  assert_true(done <= total);
  if (told->calls == 0 || done < told->done || total != told->total) told->works++;
  told->done = done;
  told->total = total;
  if (++told->calls != 3 || told->lock < 0) return;
  close(told->lock);
  told->lock = -1;
}

/* Making a copy and reading the tables may take long; so may the wait for another process. */
static void opening_is_told(void **state)
{
  (void)state;
  struct plm_corpus *corpus;
  struct told told = {.lock = -1};
  struct plm_advance advance = {.tell = keep_told, .context = &told};
  const struct plm_corpus_options telling = {.cache_dir = cache, .advance = &advance};
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_corpus_open(directory, &telling, &corpus, NULL), PLM_OK);
  assert_int_equal(told.works, 2); /* the copy, then the tables */
  const uint64_t groups = 2, check_bytes = 16, root_bytes = 32;
  assert_true(told.total == groups * (check_bytes + root_bytes));
  assert_true(told.done == told.total);
  assert_true(snprintf(path, sizeof path, "%s.lock", plm_corpus_path(corpus)) < (int)sizeof path);
  plm_corpus_close(corpus);
  told = (struct told){.lock = open(path, O_RDWR)};
  assert_int_equal(flock(told.lock, LOCK_EX | LOCK_NB), 0); /* another process makes it */
  assert_int_equal(plm_corpus_open(directory, &telling, &corpus, NULL), PLM_OK);
  assert_true(told.lock < 0 && told.calls > 3 && told.done == told.total);
  plm_corpus_close(corpus);
}

enum call { NONE, STATFS, FLOCK, INTERRUPTED_FLOCK, FSYNC, FSYNC_FOLDER, RENAME, REMOVE };
static enum call failing, failing_then; /* then: once the files are made */

static plm_status link_files(void *context, const char *part, struct plm_error *error)
{
  static const char *const names[] = {PLM_CORPUS_DATA, PLM_CORPUS_DESCRIPTION};
  char from[PLM_PATH_SIZE], to[PLM_PATH_SIZE];
  assert_memory_equal(part, cache, strlen(cache));
  PLM_TRY(plm_directory_make(part, error));
  for (int i = 0; i < 2; i++) {
    PLM_TRY(plm_path_join(from, context, names[i], error));
    PLM_TRY(plm_path_join(to, part, names[i], error));
    assert_int_equal(link(from, to), 0);
  }
  failing = failing_then;
  return PLM_OK;
}

/* What is made with other first bytes than stated is refused, and not made again and again. */
static void other_edges_than_stated_are_refused(void **state)
{
  (void)state;
  const struct plm_corpus_cache where = {.folder = cache};
  const struct plm_corpus_maker maker = {link_files, directory};
  struct plm_corpus_description description;
  struct plm_error error = {0};
  char local[PLM_PATH_SIZE], part[PLM_PATH_SIZE], hash[PLM_HASH_HEX_SIZE];
  int lock;
  assert_int_equal(plm_corpus_cache_open(cache, NULL), PLM_OK);
  assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
  struct plm_corpus_files files = description.files;
  plm_corpus_description_deinit(&description);
  failing_then = FSYNC_FOLDER;
  assert_int_equal(plm_corpus_cache_provide(&where, &files, &maker, local, &lock, &error), PLM_IO);
  failing = failing_then = NONE;
  assert_non_null(strstr(error.what, ".part: Input/output error"));
  files.whole.low++; /* another name */
  files.first.low++;
  assert_int_equal(plm_corpus_cache_provide(&where, &files, &maker, local, &lock, &error),
                   PLM_CORRUPT);
  assert_int_equal(lock, -1);
  assert_false(plm_file_exists(local));
  plm_hash_to_hex(files.whole, hash);
  assert_int_equal(plm_corpus_cache_path(part, cache, hash, ".part", NULL), PLM_OK);
  assert_false(plm_file_exists(part));
}

/* The number of open descriptors. */
static int descriptors(void)
{
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  assert_non_null(folder);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

/* A corpus.json that does not belong to its data.mdb is only found once that is open. */
static void what_is_refused_is_closed(void **state)
{
  (void)state;
  static const uint64_t numbers[] = {1, 10}; /* of as many digits as before, or more */
  for (int i = 0; i < 2; i++) {
    struct plm_corpus_description description;
    struct plm_text text = {0};
    struct plm_error error = {0};
    struct plm_corpus *corpus;
    char path[PLM_PATH_SIZE], wanted[PLM_PATH_SIZE + 64];
    assert_int_equal(plm_corpus_description_read(directory, &description, NULL), PLM_OK);
    /* which the fingerprint leaves out */
    description.info.splits[PLM_SPLIT_TRAIN].histogram[31] = numbers[i];
    plm_corpus_description_print(&description, true, &text);
    plm_corpus_description_deinit(&description);
    assert_int_equal(plm_path_join(path, directory, PLM_CORPUS_DESCRIPTION, NULL), PLM_OK);
    assert_int_equal(plm_file_write(path, text.data, text.length, 0600, NULL), PLM_OK);
    plm_text_deinit(&text);
    const int before = descriptors();
    assert_int_equal(plm_corpus_open(directory, NULL, &corpus, &error), PLM_CORRUPT);
    assert_int_equal(descriptors(), before);
    assert_null(corpus);
    snprintf(wanted, sizeof wanted, "%s/data.mdb and its corpus.json do not belong together",
             directory);
    assert_string_equal(error.what, wanted);
  }
}

static int fails(enum call call)
{
  errno = EIO;
  return call == failing ? -1 : 0;
}

/* These take the place of libc's functions in this program. */
int statfs(const char *path, struct statfs *about)
{
  const int status = (int)syscall(SYS_statfs, path, about);
  if (failing == STATFS) about->f_type = 0x6969;
  return status;
}

int flock(int file, int operation)
{
  if (failing == INTERRUPTED_FLOCK) {
    failing = NONE;
    errno = EINTR;
    return -1;
  }
  return fails(FLOCK) != 0 ? -1 : (int)syscall(SYS_flock, file, operation);
}

int fsync(int file)
{
  struct stat about;
  const bool is_file = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  return fails(is_file ? FSYNC : FSYNC_FOLDER) != 0 ? -1 : (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to)
{
  return fails(RENAME) != 0 ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int remove(const char *path)
{
  struct stat about;
  if (fails(REMOVE) != 0 || lstat(path, &about) != 0) return -1;
  return unlinkat(AT_FDCWD, path, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
}

static void expect_no_copy(plm_status expected, const char *begin, const char *end)
{
  struct plm_corpus *corpus;
  struct plm_error error = {0};
  const plm_status status = plm_corpus_open(directory, &options, &corpus, &error);
  failing = NONE;
  assert_int_equal(status, expected);
  assert_null(corpus);
  if (strstr(error.what, begin) != error.what || strstr(error.what, end) == NULL)
    fail_msg("%s", error.what);
}

static void a_copy_that_cannot_be_made_is_an_error(void **state)
{
  (void)state;
  char local[PLM_PATH_SIZE], data[PLM_PATH_SIZE];
  failing = STATFS;
  expect_no_copy(PLM_CONFIG, "the cache ", "/cache lies on a remote file system (NFS)");
  struct plm_corpus_cache where = {.folder = cache};
  int lock;
  failing = FLOCK;
  assert_int_equal(
      plm_corpus_cache_provide(&where, &(struct plm_corpus_files){0}, NULL, local, &lock, NULL),
      PLM_IO);
  assert_int_equal(lock, -1);
  expect_no_copy(PLM_IO, "cannot lock ", ".lock: Input/output error");
  failing = FSYNC;
  expect_no_copy(PLM_IO, "cannot fsync ", ".part/data.mdb: Input/output error");
  failing = RENAME;
  expect_no_copy(PLM_IO, "cannot rename ", ": Input/output error");
  failing = INTERRUPTED_FLOCK; /* as a remote file system does when a signal comes */
  open_once(local);
  assert_int_equal(failing, NONE);
  assert_int_equal(plm_path_join(data, local, PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(truncate(data, 4096), 0);
  failing = REMOVE;
  expect_no_copy(PLM_IO, "cannot remove ", ": Input/output error");
  open_once(local);
  assert_int_equal(plm_path_remove(cache, NULL), PLM_OK);
  assert_int_equal(plm_path_join(data, directory, PLM_CORPUS_DATA, NULL), PLM_OK);
  assert_int_equal(unlink(data), 0);
  assert_int_equal(mkdir(data, 0700), 0);
  expect_no_copy(PLM_IO, "cannot read ", "/remote/data.mdb: Is a directory");
  struct plm_error error = {0};
  assert_int_equal(plm_corpus_verify(directory, NULL, NULL, &error), PLM_IO);
  assert_non_null(strstr(error.what, "/remote/data.mdb: Is a directory"));
}

static void paths_have_a_limit(void **state)
{
  (void)state;
  static const struct plm_corpus_options remote = {.allow_remote = true};
  struct plm_corpus *corpus;
  struct plm_error error = {0};
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE + 1];
  memset(folder, 'f', sizeof folder);
  folder[PLM_PATH_SIZE] = '\0';
  assert_int_equal(plm_corpus_open(folder, &remote, &corpus, &error), PLM_LIMIT);
  folder[PLM_PATH_SIZE - 6] = '\0';
  assert_int_equal(plm_corpus_cache_path(path, folder, "abc", ".e", &error), PLM_LIMIT);
  assert_memory_equal(error.what, "path ffff", 9);
  folder[PLM_PATH_SIZE - 7] = '\0';
  assert_int_equal(plm_corpus_cache_path(path, folder, "abc", ".e", &error), PLM_OK);
  assert_string_equal(path + PLM_PATH_SIZE - 7, "/abc.e");
  const struct plm_corpus_files files = {0};
  struct plm_corpus_cache where = {.folder = folder};
  int lock = 0;
  folder[PLM_PATH_SIZE - sizeof "/.part" - (PLM_HASH_HEX_SIZE - 1) + 1] = '\0';
  assert_int_equal(plm_corpus_cache_provide(&where, &files, NULL, path, &lock, &error), PLM_LIMIT);
  assert_int_equal(lock, -1);
  where.folder = "/nowhere";
  assert_int_not_equal(plm_corpus_cache_provide(&where, &files, NULL, path, &lock, &error), PLM_OK);
  assert_memory_equal(error.what, "cannot open /nowhere/", 21);
  assert_int_not_equal(plm_corpus_cache_open("/dev/null/cache", &error), PLM_OK);
}

static plm_status open_and_close(void *context, struct plm_error *error)
{
  struct plm_corpus *corpus;
  struct plm_corpus_cursor *cursor;
  PLM_TRY(plm_corpus_open(context, NULL, &corpus, error));
  const plm_status status = plm_corpus_cursor_open(corpus, &cursor, error);
  if (status == PLM_OK) plm_corpus_cursor_close(cursor);
  plm_corpus_close(corpus);
  return status;
}

/* Opens the corpus where no copy is yet. */
static plm_status copy_and_close(void *context, struct plm_error *error)
{
  struct plm_corpus *corpus;
  const long at = failing_disk_pause();
  plm_path_remove(cache, NULL);
  failing_disk_resume(at);
  PLM_TRY(plm_corpus_open(context, &options, &corpus, error));
  plm_corpus_close(corpus);
  return PLM_OK;
}

static void failures_of_memory_and_disk_are_said(void **state)
{
  /* Whether there is a copy is asked twice. What cannot be read of the new one is made again. */
  static const char *const again[] = {
      "open */cache/*/corpus.json", "open */cache/*/corpus.json", "open */cache/*/corpus.json",
      "read */cache/*/corpus.json", "read */cache/*/corpus.json", "open */cache/*/data.mdb",
      "pread */cache/*/data.mdb",   "pread */cache/*/data.mdb",   NULL};
  (void)state;
  failing_disk_try(open_and_close, directory, NULL);
  failing_disk_try(copy_and_close, directory, again);
  failing_memory_try(open_and_close, directory, 20);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_cache_is_filled_once, begin, end),
      cmocka_unit_test_setup_teardown(a_truncated_copy_is_made_again, begin, end),
      cmocka_unit_test_setup_teardown(a_damaged_original_is_not_copied, begin, end),
      cmocka_unit_test_setup_teardown(an_open_copy_stays_and_waiting_can_be_stopped, begin, end),
      cmocka_unit_test_setup_teardown(opening_is_told, begin, end),
      cmocka_unit_test_setup_teardown(other_edges_than_stated_are_refused, begin, end),
      cmocka_unit_test_setup_teardown(what_is_refused_is_closed, begin, end),
      cmocka_unit_test_setup_teardown(a_copy_that_cannot_be_made_is_an_error, begin, end),
      cmocka_unit_test(paths_have_a_limit),
      cmocka_unit_test_setup_teardown(failures_of_memory_and_disk_are_said, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
