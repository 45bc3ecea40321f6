/* Product algorithms from the first step into trainer.json and back, on the emulated CUDA
 * backend. Tuning draws algorithms there that round differently, so a resume that measured again
 * would give other bits. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/plan/plan.h"
#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/peers/fake_collective.h"
#include "trainer/tuning/tuning.h"

static struct plm_ranks alone;
static const uint32_t lengths[] = {9, 5, 16, 3, 7, 0};
enum { LENGTH = 16 };
static const char yaml[] = "run: /tmp/r\nseed: 3\ncorpus: /tmp/c\n"
                           "trainer: {steps: 50}\n";

static struct plm_ops *open_ops(uint64_t tuning)
{
  struct plm_ops *ops;
  plm_emulation_tuning(tuning);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_BF16, 0, &ops, NULL), PLM_OK);
  return ops;
}

static struct plm_model_config model_config(void)
{
  return case_config(PLM_UNET, 2, LENGTH);
}

/* Returns the gradients of one batch and closes ops. If end is not NULL, ends tuning into it first.
 */
static float *gradients_on(struct plm_ops *ops, struct plm_trainer_state *end, size_t *elements)
{
  const struct plm_model_config config = model_config();
  struct case_documents documents;
  struct case_batch placed;
  struct model_case c;
  double loss;
  case_documents_draw(&documents, lengths, config.vocab_size, 11);
  case_batch_place(&placed, &documents, LENGTH, 4, false);
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks, .training = true};
  model_case_open_on(&c, ops, &config, &options, 13);
  float *gradients = model_case_gradients_of(&c, &placed, &loss);
  *elements = plm_model_arena_elements(c.model);
  if (end != NULL) assert_int_equal(plm_tuning_end(end, ops, &alone, NULL), PLM_OK);
  model_case_close(&c);
  case_batch_free(&placed);
  return gradients;
}

static void open_state(struct plm_trainer_state *state, struct plm_config *config)
{
  assert_int_equal(plm_config_load_text(yaml, strlen(yaml), config, NULL), PLM_OK);
  const struct plm_plan_parameters plan = plm_config_training_plan(config);
  *state = (struct plm_trainer_state){.exact = true};
  plm_data_cursor_init(&state->cursor, plm_plan_hash(&plan), config->seed);
}

/* Writes the state to trainer.json and reads it back, as a resume does. */
static void reopen_state(struct plm_trainer_state *state, struct plm_config *config)
{
  char *text, *saved;
  text = plm_trainer_state_print(state, config, (struct plm_hash){3, 4});
  assert_int_equal(plm_file_write(scratch_path("trainer.json"), text, strlen(text), 0644, NULL),
                   PLM_OK);
  plm_trainer_state_deinit(state);
  plm_config_deinit(config);
  open_state(state, config);
  assert_int_equal(plm_trainer_state_read(scratch_directory(), state, &saved, NULL), PLM_OK);
  free(saved);
  free(text);
}

/* Makes a run's first step with algorithms drawn from `tuning`: its gradients, and its state after
 * a resume. */
static float *first_step(uint64_t tuning, struct plm_trainer_state *state,
                         struct plm_config *config, size_t *elements)
{
  bool on = false;
  struct plm_ops *ops = open_ops(tuning);
  open_state(state, config);
  assert_int_equal(plm_tuning_begin(state, ops, &alone, &on, NULL), PLM_OK);
  assert_true(on);
  float *gradients = gradients_on(ops, state, elements);
  reopen_state(state, config);
  return gradients;
}

/* Checks that a resume from the state measures nothing and gives the same gradients. */
static void resumes(struct plm_trainer_state *state, const float *before, size_t n)
{
  bool on = true;
  struct plm_ops *ops = open_ops(2);
  assert_int_equal(plm_tuning_begin(state, ops, &alone, &on, NULL), PLM_OK);
  assert_false(on);
  assert_true(state->exact);
  float *resumed = gradients_on(ops, NULL, &n);
  assert_memory_equal(before, resumed, n * sizeof *before);
  free(resumed);
}

static void a_resume_takes_the_algorithms(void **unused)
{
  (void)unused;
  struct plm_trainer_state state, other;
  struct plm_config config, other_config;
  size_t n;
  float *before = first_step(1, &state, &config, &n);
  float *measured_again = first_step(2, &other, &other_config, &n);
  assert_memory_not_equal(before, measured_again, n * sizeof *before);

  resumes(&state, before, n);
  free(before);
  free(measured_again);
  plm_trainer_state_deinit(&state);
  plm_trainer_state_deinit(&other);
  plm_config_deinit(&config);
  plm_config_deinit(&other_config);
}

/* On a device of capability 9.0 products and relu2 may be one kernel. A resume does what the first
 * step chose, or says that it cannot. */
static void a_resume_takes_the_fused_products(void **unused)
{
  (void)unused;
  struct plm_trainer_state state;
  struct plm_config config;
  size_t n;
  bool on = true;
  assert_int_equal(setenv("PLM_CUDA_ATTENTION", "mma", 1), 0); /* then the two are not compared */
  plm_emulation_capability(90, false);
  float *before = NULL;
  for (uint64_t seed = 1; before == NULL; seed++) {
    assert_true(seed < 32);
    before = first_step(seed, &state, &config, &n);
    if (strstr(state.algorithms, " fused\n") != NULL) break;
    free(before);
    before = NULL;
    plm_trainer_state_deinit(&state);
    plm_config_deinit(&config);
  }
  resumes(&state, before, n);
  free(before);
  assert_int_equal(setenv("PLM_CUDA_RELU2", "library", 1), 0);
  struct plm_ops *ops = open_ops(2);
  assert_int_equal(plm_tuning_begin(&state, ops, &alone, &on, NULL), PLM_OK);
  assert_true(on);
  assert_false(state.exact);
  ops->close(ops);
  assert_int_equal(unsetenv("PLM_CUDA_RELU2"), 0);
  assert_int_equal(unsetenv("PLM_CUDA_ATTENTION"), 0);
  plm_emulation_capability(80, false);
  plm_trainer_state_deinit(&state);
  plm_config_deinit(&config);
}

/* A resume exports the algorithms that it took. */
static void algorithms_are_kept_as_they_are(void **unused)
{
  (void)unused;
  struct plm_trainer_state state;
  struct plm_config config;
  size_t n;
  bool on;
  char *again;
  free(first_step(5, &state, &config, &n));
  struct plm_ops *ops = open_ops(2);
  assert_int_equal(plm_tuning_begin(&state, ops, &alone, &on, NULL), PLM_OK);
  assert_int_equal(ops->export_algorithms(ops, &again, NULL), PLM_OK);
  assert_string_equal(again, state.algorithms);
  assert_non_null(strchr(again, '\n')[1] != '\0' ? again : NULL);
  ops->close(ops);
  free(again);
  plm_trainer_state_deinit(&state);
  plm_config_deinit(&config);
}

/* Replaces the first occurrence by a text of the same length. */
static void change(char *text, const char *from, const char *to)
{
  char *at = strstr(text, from);
  assert_non_null(at);
  memcpy(at, to, strlen(to));
}

static void algorithms_of_elsewhere_are_inexact(void **unused)
{
  (void)unused;
  static const char *const changes[][2] = {
      {"plain loops 1", "plain loops 2"},       /* another version */
      {"bf16", "fp32"},                         /* another precision */
      {" 000000000000000", " 100000000000000"}, /* an algorithm that the library does not know */
  };
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    struct plm_trainer_state state;
    struct plm_config config;
    size_t n;
    bool on = false;
    free(first_step(1, &state, &config, &n));
    change(state.algorithms, changes[i][0], changes[i][1]);
    struct plm_ops *ops = open_ops(2);
    assert_int_equal(plm_tuning_begin(&state, ops, &alone, &on, NULL), PLM_OK);
    assert_false(state.exact);
    assert_null(state.algorithms);
    assert_true(on); /* measured again */
    ops->close(ops);
    plm_trainer_state_deinit(&state);
    plm_config_deinit(&config);
  }
}

static void damaged_algorithms_are_named(void **unused)
{
  (void)unused;
  static const char *const damaged[] = {
      "",
      "plain loops 1, emulated, bf16",
      "plain loops 1, emulated, bf16\n1 2 3\n",
      "plain loops 1, emulated, bf16\n1 2 3 4 5 6 0 1 0 0 1 0 0 0 16 00zz\n",
  };
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    struct plm_error error = {0};
    struct plm_ops *ops = open_ops(1);
    struct plm_trainer_state state = {.algorithms = strdup(damaged[i])};
    bool on = true;
    assert_int_equal(plm_tuning_begin(&state, ops, &alone, &on, &error), PLM_FORMAT);
    assert_true(strlen(error.what) > 0 && strchr(error.what, '\n') == NULL && !on);
    free(state.algorithms);
    ops->close(ops);
  }
}

/* The CPU has no algorithms; those that another device measured are dropped. */
static void a_backend_without_algorithms_takes_none(void **unused)
{
  (void)unused;
  struct plm_trainer_state state = {.exact = true, .algorithms = strdup("head\n")};
  struct plm_ops *ops;
  bool on = true;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  assert_int_equal(plm_tuning_begin(&state, ops, &alone, &on, NULL), PLM_OK);
  assert_false(on);
  assert_null(state.algorithms);
  ops->close(ops);
}

static uint32_t lines_of(const char *text)
{
  uint32_t lines = 0;
  for (; (text = strchr(text, '\n')) != NULL; text++) lines++;
  return lines;
}

/* Evaluation meets many shapes, which are forgotten again; measured ones are kept. */
static void measured_algorithms_outlive_many_shapes(void **unused)
{
  (void)unused;
  enum { SHAPES = 2500, MEASURED = 40, K = 8 };
  static uint16_t x[SHAPES * K], w[K * K], y[SHAPES * K];
  struct plm_ops *ops = open_ops(1);
  struct plm_ops_tuned tuned;
  char *before, *after;
  ops->tune(ops, true, NULL);
  for (int64_t n = 1; n <= MEASURED; n++) ops->linear_forward(ops, y, x, w, NULL, n, K, K);
  ops->linear_forward(ops, y, x, w, NULL, 1, K, K); /* a shape that was met before */
  ops->tune(ops, false, &tuned);
  assert_int_equal(tuned.products, MEASURED);
  assert_int_equal(ops->export_algorithms(ops, &before, NULL), PLM_OK);
  assert_int_equal(lines_of(before), MEASURED + 1);
  for (int64_t n = 1; n <= SHAPES; n++) ops->linear_forward(ops, y, x, w, NULL, n, 1, 1);
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  assert_int_equal(ops->export_algorithms(ops, &after, NULL), PLM_OK);
  assert_string_equal(before, after);
  free(before);
  free(after);
  ops->close(ops);
}

/* The path of the only file in a folder, besides its lock. */
static void only_file(const char *directory, char path[512])
{
  DIR *opened = opendir(directory);
  assert_non_null(opened);
  path[0] = '\0';
  for (const struct dirent *entry; (entry = readdir(opened)) != NULL;)
    if (entry->d_name[0] != '.' && !plm_text_ends_with(entry->d_name, ".lock")) {
      assert_true(path[0] == '\0');
      snprintf(path, 512, "%s/%s", directory, entry->d_name);
    }
  closedir(opened);
  assert_true(path[0] != '\0');
}

static void the_next_run_takes_the_algorithms_that_were_kept(void **unused)
{
  (void)unused;
  const char *cache = scratch_path("algorithms");
  struct plm_trainer_state state;
  struct plm_config config;
  size_t n;
  char file[512];
  float *runs[3];
  assert_int_equal(setenv("PLM_ALGORITHM_CACHE", cache, 1), 0);
  for (uint64_t run = 0; run < 3; run++) {
    if (run == 2) { /* after a damaged file products are tuned again */
      only_file(cache, file);
      assert_int_equal(plm_file_write(file, "nonsense", 8, 0644, NULL), PLM_OK);
    }
    runs[run] = first_step(run + 1, &state, &config, &n);
    assert_true(state.exact && state.algorithms != NULL);
    plm_trainer_state_deinit(&state);
    plm_config_deinit(&config);
  }
  assert_int_equal(setenv("PLM_ALGORITHM_CACHE", "", 1), 0);
  assert_memory_equal(runs[0], runs[1], n * sizeof *runs[0]);
  assert_memory_not_equal(runs[0], runs[2], n * sizeof *runs[0]);
  for (int run = 0; run < 3; run++) free(runs[run]);
}

/* ---- several ranks ------------------------------------------------------------------------- */

static struct plm_text imported; /* "[TEXT]" for each import */
static const char *mine;         /* what this rank has measured */

static plm_status export_mine(struct plm_ops *ops, char **text, struct plm_error *error)
{
  (void)ops;
  (void)error;
  *text = strdup(mine);
  return PLM_OK;
}

static plm_status import_text(struct plm_ops *ops, const char *text, struct plm_error *error)
{
  (void)ops;
  (void)error;
  plm_text_printf(&imported, "[%s]", text);
  return PLM_OK;
}

static void tuned_nothing(struct plm_ops *ops, bool begin, struct plm_ops_tuned *tuned)
{
  (void)ops;
  assert_false(begin);
  *tuned = (struct plm_ops_tuned){0};
}

/* The other ranks have measured texts of their own. */
static const char *const measured[] = {"zero", "longer than zero", "2"};

static plm_status gather_measured(struct plm_collective *collective, struct plm_transfer *transfer,
                                  struct plm_error *error)
{
  (void)error;
  assert_int_equal(transfer->kind, PLM_ALL_GATHER);
  assert_int_equal(collective->place.ranks, 3);
  for (uint32_t r = 0; r < 3; r++) {
    const int64_t size = (int64_t)strlen(measured[r]) + 1;
    char *to = (char *)transfer->to + r * transfer->bytes;
    if (r == collective->place.rank) {
      memcpy(to, transfer->from, transfer->bytes);
    } else if (transfer->bytes == sizeof size) {
      memcpy(to, &size, sizeof size);
    } else {
      assert_int_equal(transfer->bytes, strlen(measured[1]) + 1); /* the longest */
      memset(to, 0, transfer->bytes);
      strcpy(to, measured[r]);
    }
  }
  return PLM_OK;
}

/* Every rank takes the algorithms of all of them, those of rank 0 last, so that they count. */
static void ranks_take_the_same_algorithms(void **state)
{
  (void)state;
  for (uint32_t r = 0; r < 3; r++) {
    struct fake_collective fake;
    struct plm_ops ops = {
        .tune = tuned_nothing, .export_algorithms = export_mine, .import_algorithms = import_text};
    struct plm_trainer_state kept = {0};
    fake_collective_init(&fake, r, 3);
    fake.base.wait = gather_measured;
    struct plm_ranks ranks = {.collective = &fake.base, .rank = r, .ranks = 3, .ops = &ops};
    mine = measured[r];
    assert_int_equal(plm_tuning_end(&kept, &ops, &ranks, NULL), PLM_OK);
    assert_string_equal(imported.data, "[2][longer than zero][zero]");
    assert_string_equal(kept.algorithms, mine);
    free(kept.algorithms);
    plm_text_deinit(&imported);
    imported = (struct plm_text){0};
    fake_collective_deinit(&fake);
  }
}

int main(void)
{
  alone = plm_ranks_single();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_resume_takes_the_algorithms),
      cmocka_unit_test(a_resume_takes_the_fused_products),
      cmocka_unit_test(algorithms_are_kept_as_they_are),
      cmocka_unit_test(algorithms_of_elsewhere_are_inexact),
      cmocka_unit_test(damaged_algorithms_are_named),
      cmocka_unit_test(a_backend_without_algorithms_takes_none),
      cmocka_unit_test(measured_algorithms_outlive_many_shapes),
      cmocka_unit_test(ranks_take_the_same_algorithms),
      cmocka_unit_test(the_next_run_takes_the_algorithms_that_were_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
