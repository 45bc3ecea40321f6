/* PLM_CPU_ISA makes the program treat the processor as one with fewer instruction sets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/ops/device.h"
#include "common/ops/ops.h"
#include "kernels/cpu/processor.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/operators/ops_case.h"

static plm_status open_cpu(const char *level, int precision, const char *isa, struct plm_ops **ops,
                           struct plm_error *error)
{
  assert_int_equal(setenv("PLM_CPU_ISA", level, 1), 0);
  *error = (struct plm_error){0};
  return plm_ops_cpu_open(precision, 1, isa, ops, error);
}

static void lesser_levels_are_kept_to(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error;
  unsetenv("PLM_CPU_ISA");
  const enum plm_processor_level best = plm_processor_level();
  assert_int_equal(open_cpu("portable", PLM_PRECISION_AUTO, NULL, &ops, &error), PLM_OK);
  assert_string_equal(ops->isa, "portable");
  assert_int_equal(ops->act_bytes, 4);
  ops->close(ops);
  assert_int_equal(open_cpu("portable", PLM_PRECISION_AUTO, "avx2", &ops, &error), PLM_UNSUPPORTED);
  /* the limit holds for the product library as well */
  const struct plm_cpu_request native = {
      .precision = PLM_PRECISION_BF16, .bf16 = PLM_BF16_NATIVE, .threads = 1};
  assert_int_equal(plm_ops_cpu_open_as(&native, &ops, &error), PLM_UNSUPPORTED);
  assert_non_null(strstr(error.what, "no bf16 instructions"));
  assert_int_equal(open_cpu("portable", PLM_PRECISION_BF16, NULL, &ops, &error), PLM_OK);
  assert_string_equal(ops->bf16_products, "fp32");
  assert_int_equal(ops->act_bytes, 2);
  ops->close(ops);
  for (int i = 0; i < PLM_PROCESSOR_LEVELS; i++) {
    assert_int_equal(setenv("PLM_CPU_ISA", plm_processor_level_name(i), 1), 0);
    if (i <= (int)best) assert_int_equal(plm_processor_level(), i);
    if (i > (int)best)
      assert_int_equal(
          open_cpu(plm_processor_level_name(i), PLM_PRECISION_FP32, NULL, &ops, &error),
          PLM_UNSUPPORTED);
  }
}

#if defined(__x86_64__)
/* The value of a line of /proc/cpuinfo, "" if there is none. */
static void read_value(const char *text, const char *name, char value[40])
{
  const char *line = strstr(text, name);
  value[0] = '\0';
  if (line != NULL) (void)sscanf(line + strlen(name), " : %39[^\n]", value);
}

/* Zen 4 has the family of Zen 3, which has no such vectors, so that the answer means nothing. */
static void the_vendor_and_the_family_are_those_of_the_processor(void **state)
{
  (void)state;
  char *text, named[40], family[40], vendor[PLM_PROCESSOR_VENDOR_SIZE];
  size_t size;
  if (ops_case_quick()) skip("qemu shows the /proc/cpuinfo of its host");
  assert_int_equal(plm_file_read("/proc/cpuinfo", 1 << 24, &text, &size, NULL), PLM_OK);
  read_value(text, "\nvendor_id", named);
  read_value(text, "\ncpu family", family);
  free(text);
  memset(vendor, 'x', sizeof vendor);
  plm_processor_vendor(vendor);
  assert_string_equal(vendor, named);
  assert_int_equal(plm_processor_splits_vectors(),
                   strcmp(named, "AuthenticAMD") == 0 && atoi(family) == 25);
}

/* Without a limit, the level is what the kernel lists as the processor's features. */
static void the_level_is_that_of_the_processor(void **state)
{
  (void)state;
  static const char *const needed[] = {[PLM_PROCESSOR_AVX2] = " avx2 fma bmi2 ",
                                       [PLM_PROCESSOR_AVX512] =
                                           " avx512f avx512bw avx512cd avx512dq avx512vl ",
                                       [PLM_PROCESSOR_AVX512_BF16] = " avx512_bf16 ",
                                       [PLM_PROCESSOR_AMX] = " amx_bf16 amx_tile "};
  char *text;
  size_t size;
  if (ops_case_quick()) skip("qemu shows the /proc/cpuinfo of its host");
  unsetenv("PLM_CPU_ISA");
  assert_int_equal(plm_file_read("/proc/cpuinfo", 1 << 24, &text, &size, NULL), PLM_OK);
  char *flags = strstr(text, "\nflags");
  assert_non_null(flags);
  flags[strcspn(flags + 1, "\n") + 1] = ' '; /* also behind the last one */
  int level = PLM_PROCESSOR_PORTABLE;
  for (bool has = true; has && level + 1 < PLM_PROCESSOR_LEVELS; level += has) {
    char words[100], *rest, *saved = NULL;
    snprintf(words, sizeof words, "%s", needed[level + 1]);
    for (rest = strtok_r(words, " ", &saved); rest != NULL; rest = strtok_r(NULL, " ", &saved)) {
      char flag[40];
      snprintf(flag, sizeof flag, " %s ", rest);
      has = has && strstr(flags, flag) != NULL;
    }
  }
  free(text);
  if (level == PLM_PROCESSOR_AMX && plm_processor_level() == PLM_PROCESSOR_AVX512_BF16)
    skip("the kernel gives no permission to use AMX");
  assert_int_equal(plm_processor_level(), level);
}
#endif

static void unknown_levels_are_refused(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error;
  assert_int_equal(open_cpu("avx1024", PLM_PRECISION_FP32, NULL, &ops, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "PLM_CPU_ISA: unknown instruction set \"avx1024\""));
  assert_non_null(strstr(error.hint, "avx512_bf16"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(lesser_levels_are_kept_to),
#if defined(__x86_64__)
    cmocka_unit_test(the_level_is_that_of_the_processor),
    cmocka_unit_test(the_vendor_and_the_family_are_those_of_the_processor),
#endif
    cmocka_unit_test(unknown_levels_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
