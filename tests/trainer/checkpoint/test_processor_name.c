/* The name of the processor, which a resume compares, from /proc/cpuinfo. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "trainer/checkpoint/trainer_state.h"

static const char *told; /* what is in /proc/cpuinfo; NULL: there is none */

/* Takes the place of libc's function in this program, which opens other files only to read them. */
FILE *fopen(const char *path, const char *mode)
{
  if (strcmp(path, "/proc/cpuinfo") == 0)
    return told != NULL ? fmemopen((void *)told, strlen(told), "r") : NULL;
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  return descriptor < 0 ? NULL : fdopen(descriptor, mode);
}

static void the_first_processor_is_named(void **state)
{
  struct utsname machine;
  char longest[300] = "model name\t: ", name[128], part[128];
  (void)state;
  assert_int_equal(uname(&machine), 0);
  memset(longest + strlen(longest), 'a', 200);
  snprintf(part, sizeof part, "%.127s", longest + strlen("model name\t: "));
  const struct {
    const char *told, *name;
  } rows[] = {
      {NULL, machine.machine},
      {"flags\t\t: fpu\n", machine.machine},
      {"processor\t: 0\nmodel name\t: A CPU @ 2 GHz\ncpu family\t: 6\nmodel\t\t: 85\n"
       "stepping\t: 7\nmodel names\t: no\nflags\t\t: fpu\n\nmodel name\t: Another\n",
       "A CPU @ 2 GHz, 6, 85, 7"},
      {"no colon\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n"
       "CPU part\t: 0xd0c\n",
       "0x41, 0x3, 0xd0c"},
      {longest, part},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    told = rows[i].told;
    plm_processor_name(name);
    assert_string_equal(name, rows[i].name);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_processor_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
