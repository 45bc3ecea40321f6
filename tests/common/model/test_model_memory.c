/* The memory of a model: bytes by purpose of small models in every mode, and that a model and its
 * masks take exactly so many. */
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases/model_case.h"

enum { CHUNKS = 3 };

static plm_status (*allocate)(struct plm_ops *ops, size_t bytes, void **buffer,
                              struct plm_error *error);
static uint64_t taken;

static plm_status count_allocation(struct plm_ops *ops, size_t bytes, void **buffer,
                                   struct plm_error *error)
{
  taken += bytes;
  const plm_status status = allocate(ops, bytes, buffer, error);
  if (status == PLM_OK) memset(*buffer, 0xaa, bytes);
  return status;
}

/* The levels of the patch_unet have three widths. */
static struct plm_model_config config_of(enum plm_architecture architecture)
{
  struct plm_model_config config = model_case_small(architecture);
  config.num_hidden_layers = 4;
  config.num_unet_layers = 6;
  config.expansion_ratio = 3;
  config.max_length = 64;
  config.pattern[1] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL;
  config.pattern_count = 2;
  return config;
}

/* Without training, bf16 keeps in fp32 only what not only products read: of the transformer, 33
 * rows of 64 of the embedding table, and the head's bias in room for 48. */
static const struct {
  enum plm_architecture architecture;
  bool training;
  enum plm_recompute recompute;
  struct plm_model_memory fp32, bf16;
} cases[] = {
    {PLM_TRANSFORMER,
     true,
     PLM_RECOMPUTE_NONE,
     {819904, 0, 819904, 3182592, 526848},
     {819904, 409952, 819904, 1597440, 246272}},
    {PLM_TRANSFORMER,
     true,
     PLM_RECOMPUTE_MLP,
     {819904, 0, 819904, 2445312, 526848},
     {819904, 409952, 819904, 1228800, 246272}},
    {PLM_TRANSFORMER,
     true,
     PLM_RECOMPUTE_BLOCK,
     {819904, 0, 819904, 1162752, 526848},
     {819904, 409952, 819904, 585216, 246272}},
    {PLM_TRANSFORMER,
     false,
     PLM_RECOMPUTE_NONE,
     {819904, 0, 0, 1138944, 157440},
     {8640, 409952, 0, 585984, 112128}},
    {PLM_UNET,
     true,
     PLM_RECOMPUTE_NONE,
     {837376, 0, 837376, 3182592, 609792},
     {837376, 418688, 837376, 1597440, 292096}},
    {PLM_UNET,
     true,
     PLM_RECOMPUTE_MLP,
     {837376, 0, 837376, 2445312, 609792},
     {837376, 418688, 837376, 1228800, 292096}},
    {PLM_UNET,
     true,
     PLM_RECOMPUTE_BLOCK,
     {837376, 0, 837376, 1162752, 609792},
     {837376, 418688, 837376, 585216, 292096}},
    {PLM_UNET,
     false,
     PLM_RECOMPUTE_NONE,
     {837376, 0, 0, 1237248, 182784},
     {26112, 418688, 0, 635136, 137728}},
    {PLM_PATCH_UNET,
     true,
     PLM_RECOMPUTE_NONE,
     {4378624, 0, 4378624, 5014528, 726528},
     {4378624, 2189312, 4378624, 2513920, 390400}},
    {PLM_PATCH_UNET,
     true,
     PLM_RECOMPUTE_MLP,
     {4378624, 0, 4378624, 3785728, 726528},
     {4378624, 2189312, 4378624, 1899520, 390400}},
    {PLM_PATCH_UNET,
     true,
     PLM_RECOMPUTE_BLOCK,
     {4378624, 0, 4378624, 1469952, 726528},
     {4378624, 2189312, 4378624, 738816, 390400}},
    {PLM_PATCH_UNET,
     false,
     PLM_RECOMPUTE_NONE,
     {4378624, 0, 0, 1298688, 262656},
     {93952, 2189312, 0, 665856, 217600}},
};

static void bytes_are_counted_by_purpose(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_model_config config = config_of(cases[i].architecture);
    const struct plm_model_options options = {
        .max_chunks = CHUNKS, .training = cases[i].training, .recompute = cases[i].recompute};
    for (size_t act_bytes = 2; act_bytes <= 4; act_bytes += 2) {
      const struct plm_model_memory *wanted = act_bytes == 2 ? &cases[i].bf16 : &cases[i].fp32;
      struct plm_model_memory memory;
      assert_int_equal(plm_model_memory(&config, act_bytes, &options, &memory, NULL), PLM_OK);
      assert_int_equal(memory.parameters, wanted->parameters);
      assert_int_equal(memory.weights, wanted->weights);
      assert_int_equal(memory.gradients, wanted->gradients);
      assert_int_equal(memory.activations, wanted->activations);
      assert_int_equal(memory.workspace, wanted->workspace);
    }
  }
}

static void a_model_takes_what_is_counted(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_model_config config = config_of(cases[i].architecture);
    const struct plm_model_memory *m = &cases[i].fp32;
    const struct plm_model_options options = {
        .max_chunks = CHUNKS, .training = cases[i].training, .recompute = cases[i].recompute};
    struct plm_ops *ops;
    struct plm_model *model;
    struct plm_masks *masks;
    assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
    allocate = ops->allocate;
    ops->allocate = count_allocation;
    taken = 0;
    assert_int_equal(plm_model_open(&config, ops, &options, &model, NULL), PLM_OK);
    assert_int_equal(taken, m->parameters + m->gradients + m->activations + m->workspace);
    for (size_t e = 0; e < m->parameters / sizeof(float); e++)
      assert_true(plm_model_parameter_arena(model)[e] == 0 &&
                  (m->gradients == 0 || plm_model_gradient_arena(model)[e] == 0));
    taken = 0;
    assert_int_equal(plm_masks_open(&config, ops, CHUNKS, &masks, NULL), PLM_OK);
    assert_int_equal(taken, 4 * plm_masks_values(&config, CHUNKS, config.max_length));
    plm_masks_close(masks);
    plm_model_close(model);
    ops->close(ops);
  }
}

static plm_status open_model(void *context, struct plm_error *error)
{
  struct plm_model_config config = config_of(PLM_PATCH_UNET);
  const struct plm_model_options options = {.max_chunks = CHUNKS, .training = true};
  struct plm_model *model;
  const uint32_t begin[2] = {0};
  const struct plm_batch batch = {.chunks = 1, .max_length = 64, .document_begin = begin};
  struct plm_masks *masks;
  float *room;
  config.lora = (struct plm_lora_config){.rank = 2, .alpha = 4, .targets = 1, .dropout = 0.5};
  PLM_TRY(plm_model_open(&config, context, &options, &model, error));
  plm_status status = plm_masks_open(&config, context, CHUNKS, &masks, error);
  if (status == PLM_OK) {
    status = plm_model_parameter_room(model, &room, error);
    if (status == PLM_OK) free(room);
    plm_model_attention_masks(model, &batch, config.max_length, masks);
    plm_masks_close(masks);
  }
  plm_model_close(model);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  struct plm_ops *ops;
  assert_int_equal(plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL), PLM_OK);
  failing_memory_try(open_model, ops, 5);
  ops->close(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_counted_by_purpose),
      cmocka_unit_test(a_model_takes_what_is_counted),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
