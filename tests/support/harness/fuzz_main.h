/* The driver of a fuzzer: a main() that needs no libFuzzer. Include it last in tests/fuzz/fuzz_X.c:
 *
 *   static const struct fuzz_seed fuzz_seeds[] = {FUZZ_TEXT("first input"), …, {0}};
 *   int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) { … return 0; }
 *   #include "tests/support/harness/fuzz_main.h"
 *
 * with "tests/support/harness/fuzz_seed.h" at the top. The function must end the process (abort, a
 * failed assertion, a sanitizer's report) when something is wrong, and keep no state between calls.
 *
 * Inputs begin with one of fuzz_seeds or with a file of tests/fuzz/corpus/X. These files are also
 * run as they are; a finding is kept there. Each input is a pure function of (seed, iteration) and
 * of these files. A failure prints both numbers, so that it can be replayed.
 *   PLM_FUZZ_SECONDS    how long to run, default 3
 *   PLM_FUZZ_SEED       the seed, default from the clock; printed
 *   PLM_FUZZ_ITERATION  runs only this iteration
 *   PLM_FUZZ_MEMORY_MB  how much memory the process may take, default 1024: beyond it, allocations
 *                       fail, or the sanitizer ends the process with a report
 *   fuzz_X FILE…        runs the files as inputs instead
 * -DPLM_LIBFUZZER leaves main() to libFuzzer (make fuzz-guided). PLM_FUZZ_SEEDS is then a folder
 * into which fuzz_seeds are written first. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FUZZ_MAIN_H
#define PLM_TESTS_SUPPORT_HARNESS_FUZZ_MAIN_H
#ifdef PLM_LIBFUZZER

#include <stdio.h>
#include <stdlib.h>

#include "common/base/files/file.h"
#include "tests/support/harness/scratch.h"

/* libFuzzer calls it before it reads its folders. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
  (void)argc;
  (void)argv;
  const char *folder = getenv("PLM_FUZZ_SEEDS");
  for (size_t i = 0; folder != NULL && fuzz_seeds[i].bytes != NULL; i++) {
    char path[PLM_PATH_SIZE];
    snprintf(path, sizeof path, "%.4000s/seed_%zu", folder, i);
    scratch_write(path, fuzz_seeds[i].bytes, fuzz_seeds[i].size);
  }
  return 0;
}

#else

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "tests/support/harness/fuzz_seed.h"

enum { FUZZ_INPUT_LIMIT = 1 << 16, FUZZ_ONE_INPUT_SECONDS = 20, FUZZ_FILES = 1024 };

static unsigned long long fuzz_seed_value, fuzz_iteration;
static uint32_t fuzz_draws;

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* AddressSanitizer reserves terabytes of addresses, so it limits resident memory by itself. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
  return "hard_rss_limit_mb=1024:max_allocation_size_mb=512";
}

static struct fuzz_seed fuzz_kept[FUZZ_FILES]; /* the files of the corpus, by name */
static size_t fuzz_kept_count, fuzz_file;      /* the file that is run as it is, from 1; else 0 */

static int fuzz_is_file(const struct dirent *entry)
{
  return entry->d_name[0] != '.';
}

/* Reads tests/fuzz/corpus/X for the program fuzz_X. */
static void fuzz_read_corpus(const char *program)
{
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  const char *root = getenv("PLM_ROOT"), *slash = strrchr(program, '/');
  const char *name = slash != NULL ? slash + 1 : program;
  struct dirent **entries;
  snprintf(folder, sizeof folder, "%.2000s/tests/fuzz/corpus/%.200s", root != NULL ? root : ".",
           strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);
  const int count = scandir(folder, &entries, fuzz_is_file, alphasort);
  for (int i = 0; i < count; i++) {
    char *bytes;
    size_t size;
    if (fuzz_kept_count < FUZZ_FILES &&
        plm_path_join(path, folder, entries[i]->d_name, NULL) == PLM_OK &&
        plm_file_read(path, FUZZ_INPUT_LIMIT, &bytes, &size, NULL) == PLM_OK)
      fuzz_kept[fuzz_kept_count++] = (struct fuzz_seed){bytes, size};
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}

static void fuzz_say_how_to_replay(void)
{
  char line[160];
  int length = snprintf(line, sizeof line,
                        "\nfuzz: replay with PLM_FUZZ_SEED=%llu PLM_FUZZ_ITERATION=%llu\n",
                        fuzz_seed_value, fuzz_iteration);
  if (fuzz_file != 0)
    length = snprintf(line, sizeof line, "\nfuzz: it was file %zu of the corpus\n", fuzz_file);
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)length);
  (void)ignored;
}

static void fuzz_died(int number)
{
  fuzz_say_how_to_replay();
  signal(number, SIG_DFL);
  raise(number);
}

/* Draws a number below bound (> 0) from this iteration's stream. */
static uint32_t fuzz_below(uint32_t bound)
{
  const struct plm_philox_words words =
      plm_philox(fuzz_seed_value, fuzz_draws++, fuzz_iteration, 0xF022u);
  return (uint32_t)((uint64_t)words.w[0] * bound >> 32);
}

/* Draws a byte, half of the time one that parsers treat specially. */
static uint8_t fuzz_byte(void)
{
  static const uint8_t minded[] = {0,    1,   0x7f, 0x80, 0xff, '\n', '\r', ' ',
                                   '\t', '"', '\\', '>',  '{',  '}',  '[',  ']',
                                   ':',  ',', '-',  '*',  '0',  '9',  'A',  'z'};
  return fuzz_below(2) == 0 ? minded[fuzz_below(sizeof minded)] : (uint8_t)fuzz_below(256);
}

static void fuzz_remove(uint8_t *input, size_t *size, size_t at, size_t count)
{
  if (count > *size - at) count = *size - at;
  memmove(input + at, input + at + count, *size - at - count);
  *size -= count;
}

static void fuzz_insert(uint8_t *input, size_t *size, size_t at, const uint8_t *bytes, size_t count)
{
  if (count > FUZZ_INPUT_LIMIT - *size) count = FUZZ_INPUT_LIMIT - *size;
  memmove(input + at + count, input + at, *size - at);
  memcpy(input + at, bytes, count);
  *size += count;
}

static void fuzz_mutate(uint8_t *input, size_t *size)
{
  uint8_t part[256];
  const size_t at = *size == 0 ? 0 : fuzz_below((uint32_t)*size);
  const uint32_t count = 1 + fuzz_below(fuzz_below(4) == 0 ? sizeof part : 8);
  switch (fuzz_below(7)) {
  case 0: /* a flipped bit */
    if (*size != 0) input[at] ^= (uint8_t)(1u << fuzz_below(8));
    break;
  case 1:
    if (*size != 0) input[at] = fuzz_byte();
    break;
  case 2: fuzz_remove(input, size, at, count); break;
  case 3: /* new bytes */
    for (uint32_t i = 0; i < count; i++) part[i] = fuzz_byte();
    fuzz_insert(input, size, at, part, count);
    break;
  case 4: /* a copied part */
  {
    const size_t length = count < *size - at ? count : *size - at;
    memcpy(part, input + at, length);
    fuzz_insert(input, size, *size == 0 ? 0 : fuzz_below((uint32_t)*size), part, length);
    break;
  }
  case 5: *size = at; break; /* a shorter input */
  default:                   /* a little-endian number changed by a little */
    if (*size - at >= 4) {
      uint32_t number;
      memcpy(&number, input + at, sizeof number);
      number += fuzz_below(17) - 8;
      memcpy(input + at, &number, sizeof number);
    }
  }
}

/* In an allocation of the exact size, so that a sanitizer notices a read beyond its end. */
static void fuzz_run(const void *input, size_t size)
{
  uint8_t *exact = malloc(size == 0 ? 1 : size);
  PLM_ASSERT(exact != NULL);
  memcpy(exact, input, size);
  alarm(FUZZ_ONE_INPUT_SECONDS);
  LLVMFuzzerTestOneInput(exact, size);
  alarm(0);
  free(exact);
}

static void fuzz_once(uint8_t *input)
{
  uint32_t seeds = 0;
  while (fuzz_seeds[seeds].bytes != NULL) seeds++;
  fuzz_draws = 0;
  size_t size = 0;
  if (seeds + fuzz_kept_count != 0) {
    const uint32_t drawn = fuzz_below(seeds + (uint32_t)fuzz_kept_count);
    const struct fuzz_seed *seed = drawn < seeds ? &fuzz_seeds[drawn] : &fuzz_kept[drawn - seeds];
    size = seed->size < FUZZ_INPUT_LIMIT ? seed->size : FUZZ_INPUT_LIMIT;
    memcpy(input, seed->bytes, size);
  }
  const uint32_t mutations = fuzz_below(16) == 0 ? 0 : 1 + fuzz_below(12);
  for (uint32_t i = 0; i < mutations; i++) fuzz_mutate(input, &size);
  fuzz_run(input, size);
}

static unsigned long long fuzz_setting(const char *name, unsigned long long fallback)
{
  const char *text = getenv(name);
  return text == NULL ? fallback : strtoull(text, NULL, 0);
}

static void fuzz_limit_memory(void)
{
  if (__sanitizer_set_death_callback != NULL) return; /* see __asan_default_options */
  const rlim_t bytes = (rlim_t)fuzz_setting("PLM_FUZZ_MEMORY_MB", 1024) << 20;
  const struct rlimit limit = {bytes, bytes};
  (void)setrlimit(RLIMIT_AS, &limit);
}

static int fuzz_files(int count, char **paths)
{
  for (int i = 0; i < count; i++) {
    char *bytes;
    size_t size;
    struct plm_error error = {0};
    if (plm_file_read(paths[i], 1 << 30, &bytes, &size, &error) != PLM_OK) {
      plm_error_print("fuzz", &error);
      return 1;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)bytes, size);
    free(bytes);
  }
  return 0;
}

int main(int argc, char **argv)
{
  if (argc > 1) return fuzz_files(argc - 1, argv + 1);
  fuzz_seed_value = fuzz_setting("PLM_FUZZ_SEED", plm_clock_ns());
  const unsigned long long only = fuzz_setting("PLM_FUZZ_ITERATION", UINT64_MAX);
  const uint64_t end = plm_clock_ns() + fuzz_setting("PLM_FUZZ_SECONDS", 3) * 1000000000u;
  printf("fuzz: PLM_FUZZ_SEED=%llu\n", fuzz_seed_value);
  fflush(stdout);
  signal(SIGABRT, fuzz_died);
  signal(SIGALRM, fuzz_died);
  if (__sanitizer_set_death_callback != NULL) {
    __sanitizer_set_death_callback(fuzz_say_how_to_replay);
  } else {
    signal(SIGSEGV, fuzz_died);
    signal(SIGBUS, fuzz_died);
    signal(SIGFPE, fuzz_died);
  }
  fuzz_read_corpus(argv[0]);
  fuzz_limit_memory();
  for (size_t i = 0; i < fuzz_kept_count && only == UINT64_MAX; i++) {
    fuzz_file = i + 1;
    fuzz_run(fuzz_kept[i].bytes, fuzz_kept[i].size);
  }
  fuzz_file = 0;
  uint8_t *input = malloc(FUZZ_INPUT_LIMIT);
  PLM_ASSERT(input != NULL);
  if (only != UINT64_MAX) {
    fuzz_iteration = only;
    fuzz_once(input);
  } else {
    for (; plm_clock_ns() < end; fuzz_iteration++) fuzz_once(input);
  }
  free(input);
  for (size_t i = 0; i < fuzz_kept_count; i++) free((void *)fuzz_kept[i].bytes);
  printf("fuzz: %llu inputs\n", fuzz_iteration);
  return 0;
}

#endif
#endif
