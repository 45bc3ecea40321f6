/* Small allocations: what they return, and how a process ends that does not get them. */
#include "tests/support/harness/captured.h"
#include "tests/support/harness/checked_memory.h"
#include "tests/support/harness/cmocka_all.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/status.h"
#include "common/base/text/text.h"

static void blocks_are_as_those_of_the_c_library(void **state)
{
  (void)state;
  char *block = plm_alloc(3);
  memcpy(block, "ab", 3);
  block = plm_realloc(block, 100000);
  assert_string_equal(block, "ab");
  free(block);
  uint64_t *zeroed = plm_alloc_zeroed(1000, sizeof *zeroed);
  for (int i = 0; i < 1000; i++) assert_int_equal(zeroed[i], 0);
  free(zeroed);
  char *copy = plm_strdup("name"), *part = plm_strndup("name=value", 4);
  assert_string_equal(copy, "name");
  assert_string_equal(part, "name");
  free(copy);
  free(part);
  char *text = plm_format("%s of %d", "one", 300);
  assert_string_equal(text, "one of 300");
  free(text);
}

static void blocks_of_pages_begin_at_a_page(void **state)
{
  static const size_t sizes[] = {0, 1, PLM_ALLOC_PAGE - 1, PLM_ALLOC_PAGE, 100000, 1 << 20};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char *block = plm_alloc_pages(sizes[i]);
    assert_int_equal((uintptr_t)block % PLM_ALLOC_PAGE, 0);
    memset(block, 1, sizes[i]);
    free(block);
  }
}

/* Also a list that may be empty is one block, which is released. */
static void a_size_of_0_is_a_block(void **state)
{
  (void)state;
  free(plm_alloc(0));
  free(plm_alloc_zeroed(0, 8));
  void *block = plm_realloc(plm_alloc(8), 0);
  assert_non_null(block);
  free(block);
}

static void take(void)
{
  free(plm_alloc(4321));
}

static void take_zeroed(void)
{
  free(plm_alloc_zeroed(3, 1000));
}

static void take_product(void) /* larger than the address space */
{
  volatile size_t half = SIZE_MAX / 2;
  free(plm_alloc_zeroed(half, 4));
}

static void take_larger(void)
{
  free(plm_realloc(NULL, 77));
}

static void take_name(void)
{
  free(plm_strdup("trainer"));
}

static void take_part(void)
{
  free(plm_strndup("trainer", 5));
}

static void take_text(void)
{
  free(plm_format("%d", 12));
}

static void take_pages(void)
{
  free(plm_alloc_pages(5000));
}

static void take_growing(void)
{
  struct plm_text text = {0};
  plm_text_puts(&text, "a");
  plm_text_deinit(&text);
}

static const struct {
  void (*take)(void);
  const char *bytes;
} takers[] = {{take, "4321"},      {take_zeroed, "3000"}, {take_product, "18446744073709551615"},
              {take_larger, "77"}, {take_name, "8"},      {take_part, "6"},
              {take_text, "3"},    {take_growing, "64"},  {take_pages, "8192"}};

static void a_process_without_memory_says_so_and_ends(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
    char expected[400];
    int result = 0;
    snprintf(expected, sizeof expected,
             "plm-trainer: error: out of memory: %s bytes are not available (free memory on this "
             "host, or raise the limit of this process or container, and start again: a run "
             "resumes from its last checkpoint to the bit)\n",
             takers[i].bytes);
    captured_begin(STDERR_FILENO);
    const pid_t child = fork();
    if (child == 0) {
      plm_log_init("plm-trainer", PLM_LOG_ERROR);
      checked_memory_fail(0);
      takers[i].take();
      _exit(0);
    }
    waitpid(child, &result, 0);
    const char *said = captured_end();
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), PLM_EXIT_MAY_PASS);
    assert_string_equal(said, expected);
  }
}

static void one_that_persists_gets_it_later(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  plm_alloc_persist(1);
  for (size_t i = 0; i < sizeof takers / sizeof *takers; i++) {
    char expected[100];
    if (takers[i].take == take_product) continue; /* it never comes */
    snprintf(expected, sizeof expected, "warning: out of memory: %s bytes are not available; ",
             takers[i].bytes);
    captured_begin(STDERR_FILENO);
    checked_memory_fail(0);
    takers[i].take();
    checked_memory_pause();
    const char *said = captured_end();
    assert_non_null(strstr(said, expected));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* once */
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_as_those_of_the_c_library),
      cmocka_unit_test(a_size_of_0_is_a_block),
      cmocka_unit_test(blocks_of_pages_begin_at_a_page),
      cmocka_unit_test(a_process_without_memory_says_so_and_ends),
      cmocka_unit_test(one_that_persists_gets_it_later),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
