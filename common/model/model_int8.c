/* Weights of products as int8 (common/ops/int8_matrix.h): which matrices there are, and how they
 * are filled. Products of the blocks are int8: attention, MLP, merges, expands and the projections
 * of x0. The head, adapters and all that is no product stay fp32. */
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/numbers/size.h"
#include "common/model/model_state.h"

/* A matrix of a product, which may compute several layers side by side. */
struct int8_matrix {
  size_t place; /* its place in the arenas */
  int64_t rows, cols;
  size_t at; /* bytes from the start of all matrices */
};

struct int8_matrices {
  struct int8_matrix *items; /* in the order of the blocks */
  size_t count, capacity;
  size_t bytes;
  int64_t most_cols;
};

static void add_matrix(struct int8_matrices *matrices, size_t place, int64_t rows, int64_t cols)
{
  PLM_ASSERT(matrices->count < matrices->capacity);
  if (cols > matrices->most_cols) matrices->most_cols = cols;
  matrices->items[matrices->count++] =
      (struct int8_matrix){.place = place, .rows = rows, .cols = cols, .at = matrices->bytes};
  matrices->bytes = plm_size_sum(matrices->bytes, plm_int8_matrix_bytes(rows, cols));
}

static void add_block(const struct plm_model *model, struct int8_matrices *matrices,
                      const struct model_block *block)
{
  const struct plm_block_shape *shape = &block->shape;
  const struct block_places *places = &block->places;
  const int64_t D = shape->width, F = shape->hidden;
  if (shape->input != PLM_INPUT_SAME) {
    int64_t inputs, outputs;
    model_resample_sizes(model, shape, &inputs, &outputs);
    add_matrix(matrices, places->resample, outputs, inputs);
  }
  if (block->projects) add_matrix(matrices, places->projection, D, model->config.hidden_size);
  if (shape->kind != PLM_BLOCK_BOTTLENECK) {
    add_matrix(matrices, places->qkv.weight, 3 * D, D);
    add_matrix(matrices, places->output.weight, D, D);
  }
  add_matrix(matrices, places->up.weight, shape->traits->mlp == PLM_MLP_SWIGLU ? 2 * F : F, D);
  add_matrix(matrices, places->down.weight, D, F);
}

plm_status plm_model_plan_int8(struct plm_model *model, struct plm_error *error)
{
  enum { MOST_OF_BLOCK = 6 };
  struct int8_matrices *matrices = plm_alloc_zeroed(1, sizeof *matrices);
  matrices->capacity = (size_t)model->block_count * MOST_OF_BLOCK;
  matrices->items = plm_alloc_zeroed(matrices->capacity, sizeof *matrices->items);
  for (uint32_t i = 0; i < model->block_count; i++) add_block(model, matrices, &model->blocks[i]);
  model->int8 = matrices;
  if (matrices->most_cols <= PLM_INT8_INPUTS_MOST) return PLM_OK;
  return plm_error_set(error, PLM_UNSUPPORTED,
                       "int8 takes layers of at most %d inputs, and this model has one of %lld",
                       PLM_INT8_INPUTS_MOST, (long long)matrices->most_cols);
}

void plm_model_forget_int8(struct plm_model *model)
{
  if (model->int8 != NULL) free(model->int8->items);
  free(model->int8);
}

size_t plm_model_int8_bytes(const struct plm_model *model)
{
  return model->int8 != NULL ? model->int8->bytes : 0;
}

/* The matrix that has a place of the arenas; NULL if there is none. */
static const struct int8_matrix *matrix_at(const struct plm_model *model, size_t place)
{
  for (size_t i = 0; i < model->int8->count; i++) {
    const struct int8_matrix *matrix = &model->int8->items[i];
    if (place >= matrix->place && place - matrix->place < (size_t)(matrix->rows * matrix->cols))
      return matrix;
  }
  return NULL;
}

bool plm_model_is_int8(const struct plm_model *model, const struct plm_parameter *parameter)
{
  return model->int8 != NULL && matrix_at(model, parameter->offset) != NULL;
}

const void *model_int8_weight(const struct plm_model *model, size_t place)
{
  const struct int8_matrix *matrix = matrix_at(model, place);
  PLM_ASSERT(matrix != NULL && matrix->place == place);
  return (const char *)model->weights + matrix->at;
}

void plm_model_load_int8(struct plm_model *model, size_t i, const float *values)
{
  struct plm_ops *ops = model->ops;
  const struct plm_parameter *parameter = &model->table[i];
  const struct int8_matrix *matrix = matrix_at(model, parameter->offset);
  const int64_t cols = parameter->cols;
  float *room = (float *)model->activations.base;
  const int64_t most = (int64_t)(model->activations.used_bytes / sizeof(float)) / cols;
  PLM_ASSERT(matrix != NULL && matrix->cols == cols && most > 0);
  const int64_t before = (int64_t)(parameter->offset - matrix->place) / cols;
  for (int64_t row = 0, part; row < parameter->rows; row += part) {
    part = parameter->rows - row < most ? parameter->rows - row : most;
    ops->upload(ops, room, values + row * cols, (size_t)(part * cols) * sizeof(float));
    ops->quantise_rows(ops, (char *)model->weights + matrix->at, room, before + row, part, cols,
                       matrix->rows);
  }
}
