/* How the ranks' devices are connected, and what becomes of a rank if that fails. The other rank
 * says what this one does. */
#include "trainer/open/open_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/peers/fake_collective.h"

struct scene {
  struct plm_config config;
  struct fake_collective fake;
  struct plm_ranks ranks;
  struct plm_trainer trainer;
};

static plm_status open_scene(struct scene *s, const char *device, struct plm_error *error)
{
  char yaml[128];
  *s = (struct scene){0};
  snprintf(yaml, sizeof yaml, "version: 1\ntrainer: {ranks: 2, threads: 1, device: %s}\n", device);
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), &s->config, NULL), PLM_OK);
  fake_collective_init(&s->fake, 0, 2);
  s->ranks = (struct plm_ranks){.collective = &s->fake.base, .rank = 0, .ranks = 2};
  s->trainer = (struct plm_trainer){.config = &s->config, .ranks = &s->ranks};
  return plm_open_device(&s->trainer, false, error);
}

static void close_scene(struct scene *s)
{
  plm_close_device(&s->trainer);
  assert_null(s->ranks.transport);
  assert_null(s->ranks.room);
  fake_collective_deinit(&s->fake);
  plm_config_deinit(&s->config);
}

/* On the host, a collective moves the operators' memory itself, so no room is needed. */
static void hosts_exchange_directly(void **state)
{
  (void)state;
  struct scene s;
  assert_int_equal(open_scene(&s, "cpu", NULL), PLM_OK);
  assert_string_equal(s.ranks.transport->name, "direct");
  assert_null(s.ranks.room);
  assert_ptr_equal(s.ranks.ops, s.trainer.ops);
  assert_string_equal(s.trainer.state.resolved.level, plm_ops_cpu_level());
  close_scene(&s);
}

static void devices_exchange_through_the_host(void **state)
{
  (void)state;
  struct scene s;
  setenv("PLM_COLLECTIVE", "mpi", 1);
  assert_int_equal(open_scene(&s, "cuda", NULL), PLM_OK);
  assert_string_equal(s.ranks.transport->name, "staged");
  assert_non_null(s.ranks.room);
  close_scene(&s);
}

/* All ranks find this error, so each of them ends with it. */
static void a_transport_that_does_not_open_ends_it(void **state)
{
  (void)state;
  struct scene s;
  struct plm_error error = {0};
  setenv("PLM_COLLECTIVE", "pigeon", 1);
  assert_int_equal(open_scene(&s, "cuda", &error), PLM_CONFIG);
  assert_string_equal(error.what, "PLM_COLLECTIVE=pigeon: no such transport");
  assert_true(s.ranks.agreed);
  close_scene(&s);
}

/* The rate of products is kept with all on which it depends, and else measured anew. */
static void a_resume_keeps_the_rate_of_products(void **state)
{
  (void)state;
  enum { DEVICE, PRECISION, PRODUCTS, THREADS, NOTHING };
  for (int changed = DEVICE; changed <= NOTHING; changed++) {
    struct scene s;
    assert_int_equal(open_scene(&s, "cpu", NULL), PLM_OK);
    struct plm_resolved *resolved = &s.trainer.state.resolved;
    plm_close_device(&s.trainer);
    resolved->product_flops = 1;
    if (changed == DEVICE) strcpy(resolved->device, "cuda");
    const bool rounds = strcmp(resolved->precision, "bf16") == 0;
    if (changed == PRECISION) strcpy(resolved->precision, rounds ? "fp32" : "bf16");
    if (changed == PRODUCTS) strcpy(resolved->bf16_products, "other");
    resolved->threads += changed == THREADS;
    resolved->anew = (struct plm_anew){.precision = true, .threads = true};
    assert_int_equal(plm_open_device(&s.trainer, true, NULL), PLM_OK);
    assert_int_equal(resolved->product_flops == 1, changed == NOTHING);
    close_scene(&s);
  }
}

/* An instruction set that this machine lacks is given up, and only then. */
static void a_resume_elsewhere_takes_what_there_is(void **state)
{
  (void)state;
  static const char *const saved[] = {"another", "portable"};
  for (int known = 0; known < 2; known++) {
    struct scene s;
    char usual[sizeof s.trainer.state.resolved.isa];
    assert_int_equal(open_scene(&s, "cpu", NULL), PLM_OK);
    struct plm_resolved *resolved = &s.trainer.state.resolved;
    strcpy(usual, resolved->isa);
    plm_close_device(&s.trainer);
    strcpy(resolved->isa, saved[known]);
    assert_int_equal(plm_open_device(&s.trainer, true, NULL), PLM_OK);
    assert_string_equal(resolved->isa, known ? "portable" : usual);
    close_scene(&s);
  }
}

static int find_library(void **state)
{
  static char path[PLM_PATH_SIZE];
  const char *bin = getenv("PLM_BIN");
  (void)state;
  snprintf(path, sizeof path, "%.4000s/../tests/lib/libplm_cuda_emulated.so",
           bin != NULL ? bin : "build/bin");
  return setenv(PLM_CUDA_LIBRARY, path, 1);
}

int main(void)
{
  plm_log_init("t", PLM_LOG_WARNING);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hosts_exchange_directly),
      cmocka_unit_test(devices_exchange_through_the_host),
      cmocka_unit_test(a_transport_that_does_not_open_ends_it),
      cmocka_unit_test(a_resume_keeps_the_rate_of_products),
      cmocka_unit_test(a_resume_elsewhere_takes_what_there_is),
  };
  return cmocka_run_group_tests(tests, find_library, NULL);
}
