/* An engine is only opened if it was built together with this program. dlopen and dlsym give an
 * engine of this test, which says different things. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/collective/collective.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/true_dlsym.h"

#ifdef PLM_SANITIZED
int main(void)
{
  puts("dlsym cannot be replaced in a program with a sanitizer");
  return 77;
}
#else

static struct plm_collective_library library;
static bool has_entry, has_library;
static plm_collective_say said_with;
static struct plm_collective engine;
static char loaded[64];
static int loaded_how;

static plm_status open_engine(plm_collective_say say, struct plm_collective **collective,
                              struct plm_error *error)
{
  (void)error;
  said_with = say;
  *collective = &engine;
  return PLM_AGAIN; /* no status of the checks */
}

static const struct plm_collective_library *entry(void)
{
  return has_library ? &library : NULL;
}

/* These take the place of libc's functions in this program. */
void *dlopen(const char *path, int how)
{
  strncpy(loaded, path, sizeof loaded - 1);
  loaded_how = how;
  return &library;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
  if (handle != &library) return true_dlsym(handle, name);
  void *found = NULL;
  const plm_collective_entry_function function = entry;
  if (has_entry && strcmp(name, PLM_COLLECTIVE_ENTRY) == 0) memcpy(&found, &function, sizeof found);
  return found;
}

static void say(const struct plm_error *error)
{
  (void)error;
}

/* Opens it; an engine of another build is refused. */
static bool opens(void)
{
  struct plm_error error = {0};
  struct plm_collective *collective = NULL;
  said_with = NULL;
  assert_int_equal(setenv("PLM_MPI_LIBRARY", "/dev/../dev/null", 1), 0);
  const plm_status status = plm_collective_open(say, &collective, &error);
  assert_string_equal(loaded, "/dev/null");
  assert_int_equal(loaded_how, RTLD_NOW | RTLD_GLOBAL);
  if (status == PLM_AGAIN) {
    assert_ptr_equal(collective, &engine);
    assert_ptr_equal(said_with, say);
    return true;
  }
  assert_int_equal(status, PLM_CONFIG);
  assert_string_equal(error.what, "the MPI engine is from another build than this program");
  assert_string_equal(error.hint, "run `make` again");
  assert_string_equal(error.where, "/dev/../dev/null");
  assert_true(said_with == NULL && collective == NULL);
  return false;
}

static void begin(void)
{
  has_entry = has_library = true;
  library = (struct plm_collective_library){.struct_bytes = sizeof library,
                                            .collective_bytes = sizeof engine,
                                            .version = PLM_VERSION,
                                            .open = open_engine};
}

static void an_engine_of_this_build_is_opened(void **state)
{
  (void)state;
  begin();
  assert_true(opens());
}

static void others_are_refused(void **state)
{
  (void)state;
  begin();
  has_entry = false;
  assert_false(opens());
  begin();
  has_library = false;
  assert_false(opens());
  for (int off = -1; off <= 1; off += 2) {
    begin();
    library.struct_bytes += (uint32_t)off;
    assert_false(opens());
    begin();
    library.collective_bytes += (uint32_t)off;
    assert_false(opens());
  }
  begin();
  library.version = "another";
  assert_false(opens());
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_engine_of_this_build_is_opened),
      cmocka_unit_test(others_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
