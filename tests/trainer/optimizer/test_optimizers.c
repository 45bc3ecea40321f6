/* trainer/optimizer/optimizers on the CPU against the reference's rules in double precision, over
 * several steps: Muon with both scales, Adam, decay, the average. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/reference/reference_training.h"
#include "trainer/optimizer/optimizers.h"

enum { STEPS = 4 };

/* Any numbers that are not special. */
static double draw(uint64_t stream, uint32_t i)
{
  return plm_philox_unit(plm_philox(99, i, stream, 0).w[0]) - 0.5;
}

struct machine {
  struct plm_config config;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_optimizer *optimizer;
  const struct plm_parameter *table;
  size_t count, arena;
};

static void open_machine(struct machine *machine, const char *settings)
{
  char yaml[1024];
  struct plm_error error = {0};
  snprintf(yaml, sizeof yaml,
           "model: {architecture: unet, hidden_size: 64, num_attention_heads: 2, "
           "num_hidden_layers: 2}\ndata: {max_length: 64}\n"
           "trainer: {batch_tokens: 64, steps: 100, precision: fp32, threads: 1, "
           "ema: 0.99, "
           "schedule: {warmup_steps: 10, cooldown_steps: 10}, optimizer: {%s}}\n",
           settings);
  if (plm_config_load_text(yaml, strlen(yaml), &machine->config, &error) != PLM_OK)
    fail_msg("%s", error.what);
  const struct plm_model_options options = {.max_chunks = 1, .training = true};
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &machine->ops, &error), PLM_OK);
  assert_int_equal(
      plm_model_open(&machine->config.model, machine->ops, &options, &machine->model, &error),
      PLM_OK);
  assert_int_equal(plm_optimizer_open(&machine->config.trainer, machine->model, NULL,
                                      &machine->optimizer, &error),
                   PLM_OK);
  machine->table = plm_model_table(machine->model, &machine->count);
  machine->arena = plm_model_arena_elements(machine->model);
}

static void close_machine(struct machine *machine)
{
  plm_optimizer_close(machine->optimizer);
  plm_model_close(machine->model);
  machine->ops->close(machine->ops);
  plm_config_deinit(&machine->config);
}

/* Draws numbers in (-size/2, size/2) for every parameter. */
static void fill(const struct machine *machine, uint64_t stream, double size, float *values)
{
  memset(values, 0, machine->arena * sizeof *values);
  for (size_t i = 0; i < machine->count; i++)
    for (size_t e = 0; e < machine->table[i].count; e++)
      values[machine->table[i].offset + e] = (float)(size * draw(stream * 1000 + i, (uint32_t)e));
}

static void compare(const struct machine *machine, const char *what, const float *device,
                    const double *wanted, double tolerance)
{
  float *found = malloc(machine->arena * sizeof *found);
  machine->ops->download(machine->ops, found, device, machine->arena * sizeof *found);
  for (size_t i = 0; i < machine->count; i++) {
    const struct plm_parameter *p = &machine->table[i];
    double largest = 1e-3, worst = 0;
    for (size_t e = p->offset; e < p->offset + p->count; e++) {
      largest = fmax(largest, fabs(wanted[e]));
      worst = fmax(worst, fabs((double)found[e] - wanted[e]));
    }
    if (!(worst <= tolerance * largest))
      fail_msg("%s of %s: off by %g of %g", what, p->name, worst, largest);
  }
  free(found);
}

static double *zeros(size_t count)
{
  double *values = calloc(count, sizeof *values);
  assert_non_null(values);
  return values;
}

/* Arenas of the reference. */
struct reference_arenas {
  double *w, *first, *second, *average, *gradient;
};

static void update_reference(const struct machine *machine, struct reference_arenas *arenas,
                             uint64_t s, uint64_t updates)
{
  const struct reference_rules rules = {.config = &machine->config};
  for (size_t i = 0; i < machine->count; i++) {
    const struct plm_parameter *p = &machine->table[i];
    struct reference_weights weights = {.name = p->name,
                                        .rows = p->rows,
                                        .cols = p->cols,
                                        .is_vector = p->ndim == 1,
                                        .w = arenas->w + p->offset,
                                        .first = arenas->first + p->offset,
                                        .second = arenas->second + p->offset,
                                        .average = arenas->average + p->offset};
    reference_update(&rules, &weights, arenas->gradient + p->offset, s, updates);
  }
}

/* Any division into ranges gives the same update: all at once, then one parameter after another,
 * then two halves. */
static void update_in_ranges(struct machine *machine, struct plm_update *device, uint64_t update)
{
  const struct plm_parameter_range all = plm_optimizer_all(machine->optimizer);
  const size_t step = update % 3 == 0 ? all.end : update % 3 == 1 ? 1 : all.end / 2;
  for (size_t first = 0; first < all.end; first += step) {
    const size_t end = first + step < all.end ? first + step : all.end;
    plm_optimizer_update(machine->optimizer, device, (struct plm_parameter_range){first, end});
  }
}

static void run_against_reference(const char *settings)
{
  struct machine machine = {0};
  open_machine(&machine, settings);
  const size_t n = machine.arena, bytes = n * sizeof(float);
  struct plm_ops *ops = machine.ops;
  float *values = malloc(bytes);
  struct plm_update *device;
  assert_int_equal(ops->allocate(ops, sizeof *device, (void **)&device, NULL), PLM_OK);
  struct reference_arenas arenas = {zeros(n), zeros(n), zeros(n), zeros(n), zeros(n)};
  fill(&machine, 1, 1, values);
  ops->upload(ops, plm_model_parameter_arena(machine.model), values, bytes);
  plm_optimizer_start_average(machine.optimizer);
  for (size_t e = 0; e < n; e++) arenas.w[e] = arenas.average[e] = values[e];

  for (uint64_t update = 0; update < STEPS; update++) {
    const uint64_t s = 3 * update; /* the steps between were skipped, so s and t differ */
    const double scale = 0.25, count = 4;
    fill(&machine, 2 + update, 1 + (double)update, values);
    ops->upload(ops, plm_model_gradient_arena(machine.model), values, bytes);
    double squares = 0;
    for (size_t e = 0; e < n; e++) squares += (double)values[e] * values[e];
    struct plm_update host = {.inputs = {.count = count}};
    plm_optimizer_prepare(machine.optimizer, s, &host.inputs);
    ops->upload(ops, device, &host, sizeof host);
    const struct plm_array gradient = {.x = plm_model_gradient_arena(machine.model), .n = n};
    ops->sum_squares(ops, &device->sums.squares, &gradient, 1);
    ops->decide_update(ops, device);
    update_in_ranges(&machine, device, update);
    ops->download(ops, &host, device, sizeof host);
    assert_false(host.decision.skipped);
    assert_true(host.decision.gradient_scale == (float)scale);
    assert_true(fabs(host.sums.squares - squares) < 1e-5 * squares);
    plm_optimizer_set_updates(machine.optimizer, update + 1);
    for (size_t e = 0; e < n; e++) arenas.gradient[e] = scale * values[e];
    update_reference(&machine, &arenas, s, update);
  }
  compare(&machine, "weights", plm_model_parameter_arena(machine.model), arenas.w, 2e-5);
  const struct plm_optimizer_state state = plm_optimizer_state(machine.optimizer);
  compare(&machine, "first moment", state.first, arenas.first, 1e-5);
  compare(&machine, "average", state.average, arenas.average, 2e-5);
  assert_int_equal(plm_optimizer_updates(machine.optimizer), STEPS);
  ops->release(ops, device);
  free(values);
  free(arenas.w);
  free(arenas.first);
  free(arenas.second);
  free(arenas.average);
  free(arenas.gradient);
  close_machine(&machine);
}

static void muon_matches_adamw_scale(void **state)
{
  (void)state;
  run_against_reference("name: muon, weight_decay: 0.1, scale: match_adamw");
}

static void muon_spectral_scale(void **state)
{
  (void)state;
  run_against_reference("name: muon, weight_decay: 0.0, scale: spectral, momentum: 0.9, "
                        "momentum_warmup_steps: 6");
}

static void adamw_alone(void **state)
{
  (void)state;
  run_against_reference("name: adamw, weight_decay: 0.1, lr_hidden: 0.001, lr_embed: 0.002, "
                        "lr_head: 0.003, lr_scalar: 0.004");
}

/* Query, key and value have separate momenta, and no two tensors of the state overlap. */
static void tensors_cover_the_state(void **state)
{
  (void)state;
  struct machine machine = {0};
  open_machine(&machine, "name: muon");
  size_t count, momenta = 0, moments = 0;
  const struct plm_optimizer_tensor *tensors = plm_optimizer_tensors(machine.optimizer, &count);
  for (size_t i = 0; i < count; i++) {
    momenta += strstr(tensors[i].name, ".momentum") != NULL;
    moments += strstr(tensors[i].name, "_moment") != NULL;
    for (size_t j = 0; j < i; j++)
      if (tensors[j].second == tensors[i].second &&
          tensors[j].offset < tensors[i].offset + tensors[i].count &&
          tensors[i].offset < tensors[j].offset + tensors[j].count)
        fail_msg("%s and %s overlap", tensors[i].name, tensors[j].name);
  }
  size_t hidden = 0;
  for (size_t i = 0; i < machine.count; i++)
    hidden += reference_is_hidden_matrix(&(struct reference_weights){
        .name = machine.table[i].name, .is_vector = machine.table[i].ndim == 1});
  assert_int_equal(momenta, hidden);
  assert_int_equal(moments, 2 * (machine.count - hidden));
  assert_true(hidden >= 12); /* two blocks of q, k, v, o, up, down */
  close_machine(&machine);
}

static uint64_t allocated;
static plm_status (*backend_allocate)(struct plm_ops *ops, size_t bytes, void **buffer,
                                      struct plm_error *error);

static plm_status counting_allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                                    struct plm_error *error)
{
  allocated += bytes;
  return backend_allocate(ops, bytes, buffer, error);
}

/* The memory estimate equals what opening allocates, including the scratch of every thread. */
static void memory_is_known_before(void **state)
{
  (void)state;
  enum { MOST_THREADS = 3 };
  uint64_t bytes[MOST_THREADS + 1], scratch[MOST_THREADS + 1];
  for (uint32_t threads = 1; threads <= MOST_THREADS; threads += 2) {
    struct machine machine;
    struct plm_optimizer *optimizer;
    struct plm_ops *ops;
    struct plm_model *model;
    const struct plm_model_options options = {.max_chunks = 1, .training = true};
    open_machine(&machine, "name: muon");
    assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, threads, NULL, &ops, NULL), PLM_OK);
    assert_int_equal(plm_model_open(&machine.config.model, ops, &options, &model, NULL), PLM_OK);
    assert_int_equal(plm_optimizer_memory(&machine.config.trainer, &machine.config.model, ops, NULL,
                                          &bytes[threads], &scratch[threads], NULL),
                     PLM_OK);
    backend_allocate = ops->allocate;
    ops->allocate = counting_allocate;
    allocated = 0;
    assert_int_equal(plm_optimizer_open(&machine.config.trainer, model, NULL, &optimizer, NULL),
                     PLM_OK);
    assert_int_equal(allocated, bytes[threads]);
    plm_optimizer_close(optimizer);
    plm_model_close(model);
    ops->close(ops);
    close_machine(&machine);
  }
  assert_true(scratch[3] == 3 * scratch[1] &&
              scratch[1] > 0); /* a small model: each thread works on one matrix */
  assert_int_equal(bytes[3] - bytes[1], scratch[3] - scratch[1]);
}

/* Muon is for hidden matrices that are not adapters. */
static void which_parameters_muon_updates(void **state)
{
  (void)state;
  struct machine machine = {0};
  open_machine(&machine, "name: muon");
  struct plm_config_trainer adamw = machine.config.trainer;
  const struct plm_config_trainer *muon = &machine.config.trainer;
  adamw.optimizer.name = PLM_OPTIMIZER_ADAMW;
  const struct plm_parameter hidden = {.group = PLM_GROUP_HIDDEN, .ndim = 2};
  struct plm_parameter other = hidden;
  assert_true(plm_optimizer_is_muon(muon, &hidden));
  assert_false(plm_optimizer_is_muon(&adamw, &hidden));
  other.ndim = 1;
  assert_false(plm_optimizer_is_muon(muon, &other));
  for (int group = 0; group < PLM_GROUP_COUNT; group++) {
    other = hidden;
    other.group = (enum plm_parameter_group)group;
    assert_int_equal(plm_optimizer_is_muon(muon, &other), group == PLM_GROUP_HIDDEN);
  }
  other = hidden;
  other.adapter = 1;
  assert_false(plm_optimizer_is_muon(muon, &other));
  close_machine(&machine);
}

static struct plm_muon_matrix asked[64];
static size_t asked_count;

/* In place of a backend's: notes what it is asked for. */
static size_t noting_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                             size_t count)
{
  (void)ops;
  assert_in_range(count, 0, sizeof asked / sizeof *asked);
  memcpy(asked, matrices, count * sizeof *matrices);
  asked_count = count;
  return 5;
}

/* The elements of a tensor in an arena: a multiple of the alignment. */
static uint64_t elements_of(const struct plm_parameter *parameter)
{
  const size_t whole = parameter->count / PLM_PARAMETER_ALIGNMENT;
  return (whole + (parameter->count % PLM_PARAMETER_ALIGNMENT != 0)) * PLM_PARAMETER_ALIGNMENT;
}

/* Scratch is for the matrices that Muon updates and that are held; moments are for all that are
 * held: one for Muon and two for Adam, and the average. */
static void memory_is_for_what_is_held(void **state)
{
  (void)state;
  enum { RANK = 1 };
  static const char *const settings[] = {"name: muon", "name: adamw"};
  for (int s = 0; s < 2; s++) {
    struct machine machine = {0};
    uint32_t owners[256];
    open_machine(&machine, settings[s]);
    assert_in_range(machine.count, 1, sizeof owners / sizeof *owners);
    for (size_t i = 0; i < machine.count; i++)
      owners[i] = i % 4 == 3 ? PLM_OWNED_BY_ALL : (uint32_t)(i % 4);
    const struct plm_held part = {.owners = owners, .rank = RANK};
    machine.ops->muon_scratch = noting_scratch;
    for (int all = 0; all < 2; all++) {
      uint64_t bytes, scratch, elements = 5, matrices = 0, others = 0;
      assert_int_equal(plm_optimizer_memory(&machine.config.trainer, &machine.config.model,
                                            machine.ops, all ? NULL : &part, &bytes, &scratch,
                                            NULL),
                       PLM_OK);
      for (size_t i = 0; i < machine.count; i++) {
        const struct plm_parameter *parameter = &machine.table[i];
        const bool muon = plm_optimizer_is_muon(&machine.config.trainer, parameter);
        if (!all && i % 4 != RANK && i % 4 != 3) continue;
        elements += elements_of(parameter) * (muon ? 2 : 3);
        others += !muon;
        if (!muon) continue;
        assert_int_equal(asked[matrices].rows, parameter->rows);
        assert_int_equal(asked[matrices].cols, parameter->cols);
        matrices++;
      }
      assert_int_equal(asked_count, matrices);
      assert_true(others > 0 && (matrices > 0) == (s == 0));
      assert_int_equal(scratch, 5 * sizeof(float));
      assert_int_equal(bytes, elements * sizeof(float));
    }
    close_machine(&machine);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(muon_matches_adamw_scale),
      cmocka_unit_test(muon_spectral_scale),
      cmocka_unit_test(adamw_alone),
      cmocka_unit_test(tensors_cover_the_state),
      cmocka_unit_test(memory_is_known_before),
      cmocka_unit_test(memory_is_for_what_is_held),
      cmocka_unit_test(which_parameters_muon_updates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
