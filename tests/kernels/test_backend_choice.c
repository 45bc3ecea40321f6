/* Which backend is opened, and what is said of one that cannot be. dlopen and dlsym give a CUDA
 * backend of this test, and glob finds devices as the test says. */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "kernels/backend_library.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/true_dlsym.h"

#ifdef PLM_SANITIZED
int main(void)
{
  puts("dlsym cannot be replaced in a program with a sanitizer");
  return 77;
}
#else

/* ---- what takes the place of a library and of the system ------------------------------------- */

static struct plm_backend_library library;
static bool loads, has_entry, has_node, has_driver;
static int devices, opened_ordinal, library_loads;
static size_t opened_bytes;
static plm_status open_fails;
static struct plm_ops cuda_ops = {.name = "cuda"}, estimate_ops = {.name = "cuda"};

static plm_status open_cuda(size_t act_bytes, int ordinal, struct plm_ops **ops,
                            struct plm_error *error)
{
  opened_bytes = act_bytes;
  opened_ordinal = ordinal;
  if (open_fails != PLM_OK) return plm_error_set(error, open_fails, "the device is too old");
  *ops = &cuda_ops;
  return PLM_OK;
}

static int count_devices(void)
{
  return devices;
}

static plm_status preview_cuda(size_t act_bytes, struct plm_ops **ops, struct plm_error *error)
{
  (void)error;
  opened_bytes = act_bytes;
  *ops = &estimate_ops;
  return PLM_OK;
}

static const struct plm_backend_library *entry(void)
{
  return &library;
}

void *dlopen(const char *path, int how)
{
  (void)how;
  if (strcmp(path, "libcuda.so.1") == 0) return has_driver ? &has_driver : NULL;
  assert_string_equal(path, "/dev/null");
  library_loads++;
  return loads ? &library : NULL;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
  if (handle != &library) return true_dlsym(handle, name);
  void *found = NULL;
  const plm_backend_entry_function function = entry;
  if (has_entry && strcmp(name, PLM_BACKEND_ENTRY) == 0) memcpy(&found, &function, sizeof found);
  return found;
}

int dlclose(void *handle)
{
  (void)handle;
  return 0;
}

char *dlerror(void)
{
  static char why[] = "no cuBLAS";
  return why;
}

int glob(const char *pattern, int flags, int (*failed)(const char *path, int number), glob_t *found)
{
  (void)flags;
  (void)failed;
  *found = (glob_t){0};
  return has_node && strcmp(pattern, "/dev/dxg") == 0 ? 0 : GLOB_NOMATCH;
}

void globfree(glob_t *found)
{
  (void)found;
}

static void begin(const char *path)
{
  loads = has_entry = true;
  has_node = has_driver = false;
  devices = 1;
  opened_ordinal = -1;
  opened_bytes = 0;
  library_loads = 0;
  open_fails = PLM_OK;
  library = (struct plm_backend_library){.struct_bytes = sizeof library,
                                         .ops_bytes = sizeof(struct plm_ops),
                                         .version = PLM_VERSION,
                                         .interface = PLM_BACKEND_INTERFACE,
                                         .own_bytes = 1234,
                                         .open = open_cuda,
                                         .count_devices = count_devices,
                                         .preview = preview_cuda};
  if (path == NULL)
    unsetenv(PLM_CUDA_LIBRARY);
  else
    setenv(PLM_CUDA_LIBRARY, path, 1);
}

/* ---- the CPU --------------------------------------------------------------------------------- */

/* Each part of the request goes where it belongs. */
static void the_cpu(void **state)
{
  (void)state;
  static const struct {
    struct plm_ops_request request;
    uint32_t threads;
    size_t act_bytes;
    const char *isa, *bf16;
    bool int8;
  } rows[] = {
      {{.device = PLM_DEVICE_CPU,
        .precision = PLM_PRECISION_FP32,
        .bf16 = PLM_BF16_BY_FP32,
        .threads = 3},
       3,
       4,
       "",
       NULL,
       false},
      {{.device = PLM_DEVICE_CPU,
        .precision = PLM_PRECISION_BF16,
        .bf16 = PLM_BF16_BY_FP32,
        .threads = 1,
        .isa = "portable"},
       1,
       2,
       "portable",
       "fp32",
       false},
      {{.device = PLM_DEVICE_AUTO, .precision = PLM_PRECISION_INT8, .threads = 2},
       2,
       4,
       "",
       NULL,
       true},
      {{.device = PLM_DEVICE_AUTO, .precision = PLM_PRECISION_FP32, .threads = 2},
       2,
       4,
       "",
       NULL,
       false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_ops *ops;
    begin(NULL);
    has_node = i == 2; /* int8 is for the CPU, even if there is a device */
    assert_int_equal(plm_ops_open(&rows[i].request, &ops, NULL), PLM_OK);
    assert_string_equal(ops->name, "cpu");
    assert_int_equal(ops->threads, rows[i].threads);
    assert_int_equal(ops->act_bytes, rows[i].act_bytes);
    assert_int_equal(ops->int8, rows[i].int8);
    assert_int_equal(((const struct plm_cpu *)ops->context)->widens, i == 1);
    if (rows[i].isa[0] != '\0') assert_string_equal(ops->isa, rows[i].isa);
    if (rows[i].bf16 == NULL)
      assert_null(ops->bf16_products);
    else
      assert_string_equal(ops->bf16_products, rows[i].bf16);
    assert_null(ops->fallback);
    assert_int_equal(library_loads, 0);
    ops->close(ops);
  }
}

/* ---- CUDA ------------------------------------------------------------------------------------ */

static plm_status open_device(enum plm_device device, enum plm_precision precision, int ordinal,
                              bool of_rank, struct plm_ops **ops, struct plm_error *error)
{
  const struct plm_ops_request request = {.device = device,
                                          .precision = precision,
                                          .threads = 1,
                                          .ordinal = ordinal,
                                          .of_rank = of_rank};
  *error = (struct plm_error){0};
  return plm_ops_open(&request, ops, error);
}

static void a_device(void **state)
{
  (void)state;
  struct plm_ops *ops;
  struct plm_error error;
  static const enum plm_precision precisions[] = {PLM_PRECISION_FP32, PLM_PRECISION_BF16,
                                                  PLM_PRECISION_AUTO};
  for (int i = 0; i < 3; i++) {
    begin("/dev/null");
    assert_int_equal(open_device(PLM_DEVICE_CUDA, precisions[i], 5, false, &ops, &error), PLM_OK);
    assert_ptr_equal(ops, &cuda_ops);
    assert_int_equal(opened_bytes, i == 0 ? 4 : 2);
    assert_int_equal(opened_ordinal, 5);
  }
  begin("/dev/null");
  assert_int_equal(open_device(PLM_DEVICE_CUDA, PLM_PRECISION_INT8, 0, false, &ops, &error),
                   PLM_CONFIG);
  assert_string_equal(error.what, "the CUDA backend has no int8 products");
  assert_int_equal(library_loads, 0);
}

/* Ranks share the only device, or each has its own. */
static void devices_of_ranks(void **state)
{
  (void)state;
  static const struct {
    int devices, rank, ordinal; /* ordinal -1: refused */
  } rows[] = {{1, 0, 0},  {1, 3, 0}, {2, 0, 0},  {2, 1, 1},
              {2, 2, -1}, {8, 7, 7}, {8, 8, -1}, {0, 3, 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_ops *ops;
    struct plm_error error;
    char expected[100];
    begin("/dev/null");
    devices = rows[i].devices;
    const plm_status status =
        open_device(PLM_DEVICE_CUDA, PLM_PRECISION_FP32, rows[i].rank, true, &ops, &error);
    assert_int_equal(opened_ordinal, rows[i].ordinal);
    assert_int_equal(status, rows[i].ordinal < 0 ? PLM_CONFIG : PLM_OK);
    if (rows[i].ordinal >= 0) continue;
    snprintf(expected, sizeof expected,
             "rank %d of this host has no GPU, because there are only %d", rows[i].rank,
             rows[i].devices);
    assert_string_equal(error.what, expected);
  }
}

/* What is wrong with a library that is asked for will not pass. */
static void libraries_that_are_refused(void **state)
{
  (void)state;
  static const char other[] = "it is from another build than this program";
  for (int what = 0; what < 8; what++) {
    struct plm_ops *ops;
    struct plm_error error;
    const char *expected = other;
    begin(what == 0 ? "/nowhere/libplm_cuda.so" : "/dev/null");
    if (what == 0) expected = "the CUDA backend was not found";
    if (what == 1) loads = false, expected = "the CUDA backend cannot be loaded: no cuBLAS";
    if (what == 2) has_entry = false, expected = "this is not a backend of plm-pipeline";
    if (what == 3) library.struct_bytes++;
    if (what == 4) library.ops_bytes--;
    if (what == 5) library.version = "another";
    if (what == 6) library.interface = "another";
    if (what == 7) open_fails = PLM_NOT_FOUND, expected = "the device is too old";
    assert_int_equal(open_device(PLM_DEVICE_CUDA, PLM_PRECISION_FP32, 0, false, &ops, &error),
                     PLM_CONFIG);
    assert_int_equal(error.status, PLM_CONFIG);
    assert_string_equal(error.what, expected);
    assert_string_equal(error.where, what == 7   ? ""
                                     : what == 0 ? "/nowhere/libplm_cuda.so"
                                                 : "/dev/null");
    assert_null(ops);
  }
  struct plm_ops *ops;
  struct plm_error error;
  begin("/dev/null");
  open_fails = PLM_BUSY; /* this may pass */
  assert_int_equal(open_device(PLM_DEVICE_CUDA, PLM_PRECISION_FP32, 0, false, &ops, &error),
                   PLM_BUSY);
}

/* ---- auto ------------------------------------------------------------------------------------ */

/* Opens by itself. Returns what is said; *is_cuda: which one it is. */
static const char *opens_by_itself(bool *is_cuda, const char **fallback)
{
  struct plm_ops *ops;
  struct plm_error error;
  static char kept[300];
  captured_begin(STDERR_FILENO);
  const plm_status status =
      open_device(PLM_DEVICE_AUTO, PLM_PRECISION_FP32, 0, false, &ops, &error);
  const char *said = captured_end();
  assert_int_equal(status, PLM_OK);
  *is_cuda = ops == &cuda_ops;
  *fallback = NULL;
  if (*is_cuda) return said;
  if (ops->fallback != NULL) *fallback = kept;
  snprintf(kept, sizeof kept, "%s", ops->fallback != NULL ? ops->fallback : "");
  ops->close(ops);
  return said;
}

static void a_device_is_found_by_its_signs(void **state)
{
  (void)state;
  bool is_cuda;
  const char *fallback;
  begin("/dev/null"); /* it is named */
  assert_string_equal(opens_by_itself(&is_cuda, &fallback), "");
  assert_true(is_cuda);
  begin(""); /* no sign, and the library is not looked for */
  assert_string_equal(opens_by_itself(&is_cuda, &fallback), "");
  assert_false(is_cuda || fallback != NULL);
  /* with a driver only, a library that is not there is usual; with a device it is not */
  begin("");
  has_driver = true;
  assert_string_equal(opens_by_itself(&is_cuda, &fallback), "");
  assert_false(is_cuda || fallback != NULL);
  begin("/dev/null");
  open_fails = PLM_NOT_FOUND; /* no device has this number */
  assert_string_equal(opens_by_itself(&is_cuda, &fallback), "");
  assert_false(is_cuda || fallback != NULL);
}

/* What is wrong with it is said once, and kept for each backend. */
static void a_device_that_cannot_be_used_is_warned_of(void **state)
{
  (void)state;
  static const char why[] = "the CPU computes instead of the CUDA device: the device is too old";
  bool is_cuda;
  const char *fallback;
  begin("/dev/null");
  open_fails = PLM_UNSUPPORTED;
  const char *said = opens_by_itself(&is_cuda, &fallback);
  assert_string_equal(said, "t: warning: using the CPU instead of the CUDA device: the device is "
                            "too old\n");
  assert_false(is_cuda);
  assert_string_equal(fallback, why);
  assert_string_equal(opens_by_itself(&is_cuda, &fallback), "");
  assert_string_equal(fallback, why);
  begin("/nowhere/libplm_cuda.so");
  said = opens_by_itself(&is_cuda, &fallback);
  assert_non_null(strstr(said, "using the CPU instead of the CUDA device: /nowhere/libplm_cuda.so: "
                               "the CUDA backend was not found (`make` builds it if "));
  assert_string_equal(
      fallback, "the CPU computes instead of the CUDA device: the CUDA backend was not found");
}

/* ---- estimates ------------------------------------------------------------------------------- */

static struct plm_ops_preview preview_of(enum plm_device device, enum plm_precision precision)
{
  struct plm_ops_preview preview;
  const struct plm_ops_request request = {.device = device, .precision = precision, .threads = 1};
  assert_int_equal(plm_ops_preview(&request, &preview, NULL), PLM_OK);
  return preview;
}

static void previews(void **state)
{
  (void)state;
  begin("/dev/null");
  struct plm_ops_preview preview = preview_of(PLM_DEVICE_CUDA, PLM_PRECISION_FP32);
  assert_ptr_equal(preview.ops, &cuda_ops);
  assert_true(preview.own_bytes == 1234 && !preview.partial && preview.why.status == PLM_OK);
  open_fails = PLM_BUSY; /* then the library only estimates */
  preview = preview_of(PLM_DEVICE_CUDA, PLM_PRECISION_BF16);
  assert_ptr_equal(preview.ops, &estimate_ops);
  assert_true(opened_bytes == 2 && preview.own_bytes == 1234 && !preview.partial);
  assert_int_equal(preview.why.status, PLM_BUSY);
  for (int half = 0; half < 2; half++) { /* without a library, this program does */
    uint64_t free_bytes = 1, total = 1;
    begin("/nowhere/libplm_cuda.so");
    preview = preview_of(PLM_DEVICE_CUDA, half ? PLM_PRECISION_BF16 : PLM_PRECISION_FP32);
    assert_string_equal(preview.ops->name, "cuda");
    assert_true(preview.ops->act_bytes == (half ? 2 : 4) && preview.ops->threads == 1);
    assert_true(preview.partial && preview.own_bytes == 0);
    assert_string_equal(preview.why.what, "the CUDA backend was not found");
    assert_int_equal(preview.ops->muon_scratch(preview.ops, NULL, 3), 0);
    preview.ops->memory_size(preview.ops, &free_bytes, &total);
    assert_true(free_bytes == 0 && total == 0);
    preview.ops->close(preview.ops);
  }
  begin(NULL);
  preview = preview_of(PLM_DEVICE_CPU, PLM_PRECISION_FP32);
  assert_string_equal(preview.ops->name, "cpu");
  assert_true(!preview.partial && preview.own_bytes == 0 && preview.why.status == PLM_OK);
  preview.ops->close(preview.ops);
  struct plm_error error = {0};
  const struct plm_ops_request wrong = {.device = PLM_DEVICE_CPU, .isa = "none"};
  assert_int_not_equal(plm_ops_preview(&wrong, &preview, &error), PLM_OK);
  assert_true(error.what[0] != '\0');
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cpu),
      cmocka_unit_test(a_device),
      cmocka_unit_test(devices_of_ranks),
      cmocka_unit_test(libraries_that_are_refused),
      cmocka_unit_test(a_device_is_found_by_its_signs),
      cmocka_unit_test(a_device_that_cannot_be_used_is_warned_of),
      cmocka_unit_test(previews),
  };
  plm_log_init("t", PLM_LOG_INFO);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
