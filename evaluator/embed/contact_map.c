/* Adds up the corrected maps of heads. */
#include "evaluator/embed/contact_map.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/alloc.h"

/* One block of one sequence. */
struct contact_block {
  struct plm_contact_sum *sum;
  const float *weights; /* (H) */
  int32_t H;
  double *rows;    /* (residues, H) sums of the rows of A_h */
  float *columns;  /* (tiles, H, residues) sums of its columns over the rows of a tile */
  float *products; /* (residues, H) r */
  float *factors;  /* (residues, H) w / (2 t) r */
};

plm_status plm_contact_sum_init(struct plm_contact_sum *sum, int32_t residues,
                                struct plm_error *error)
{
  const size_t count = (size_t)residues * (size_t)residues;
  *sum = (struct plm_contact_sum){.residues = residues};
  sum->values = calloc(count + 1, sizeof *sum->values);
  if (sum->values != NULL) return PLM_OK;
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for the contacts of %d residues", residues);
}

void plm_contact_sum_deinit(struct plm_contact_sum *sum)
{
  free(sum->values);
  sum->values = NULL;
}

static void contact_map_take(void *context, int32_t head, int32_t row, int32_t rows,
                             const float *values, int64_t padded)
{
  const struct contact_block *block = context;
  const int32_t n = block->sum->residues;
  const float weight = block->weights[head];
  float *columns =
      block->columns + ((size_t)(row / PLM_MAP_TILE) * (size_t)block->H + (size_t)head) * (size_t)n;
  for (int32_t r = 0; r < rows; r++) {
    const int32_t residue = row + r - 1; /* <cls> is row 0 */
    if (residue < 0 || residue >= n) continue;
    const float *weights = values + r * padded + 1;
    float *to = block->sum->values + (int64_t)residue * n;
    double sum = 0;
    for (int32_t j = 0; j < n; j++) {
      to[j] += weight * weights[j];
      columns[j] += weights[j];
      sum += (double)weights[j];
    }
    block->rows[(size_t)residue * (size_t)block->H + (size_t)head] = sum;
  }
}

static void subtract(void *context, int32_t head, int32_t row, int32_t rows, const float *values,
                     int64_t padded)
{
  const struct plm_contact_sum *sum = context;
  (void)head;
  for (int32_t r = 0; r < rows; r++)
    for (int32_t j = 0; j < sum->residues; j++)
      sum->values[(int64_t)(row + r) * sum->residues + j] -= values[r * padded + j];
}

/* r, and w / (2 t) r, of each head. */
static void correct(const struct contact_block *block, int32_t tiles)
{
  const size_t n = (size_t)block->sum->residues, H = (size_t)block->H;
  for (size_t h = 0; h < H; h++) {
    double total = 0;
    for (size_t i = 0; i < n; i++) {
      double sum = block->rows[i * H + h];
      for (size_t t = 0; t < (size_t)tiles; t++) sum += (double)block->columns[(t * H + h) * n + i];
      block->products[i * H + h] = (float)sum;
      total += sum;
    }
    const double factor = total > 0 ? (double)block->weights[h] / (2 * total) : 0;
    for (size_t i = 0; i < n; i++)
      block->factors[i * H + h] = (float)(factor * (double)block->products[i * H + h]);
  }
}

plm_status plm_contact_sum_add(struct plm_contact_sum *sum, struct plm_attention_map *map,
                               const struct plm_map_source *source, const float *weights,
                               struct plm_error *error)
{
  const int32_t tiles = (source->tokens + PLM_MAP_TILE - 1) / PLM_MAP_TILE;
  const size_t H = (size_t)source->H, cells = (size_t)sum->residues * H;
  PLM_ASSERT(sum->residues + 2 == source->tokens);
  if (sum->residues == 0) return PLM_OK;
  struct contact_block block = {.sum = sum, .weights = weights, .H = source->H};
  block.rows = calloc(cells, sizeof *block.rows);
  block.columns = calloc((size_t)tiles * cells, sizeof *block.columns);
  block.products = calloc(cells, sizeof *block.products);
  block.factors = calloc(cells, sizeof *block.factors);
  plm_status status = PLM_OK;
  if (block.rows == NULL || block.columns == NULL || block.products == NULL ||
      block.factors == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the contacts of %d residues",
                           sum->residues);
  if (status == PLM_OK)
    status = plm_attention_map_run(map, source, 0, source->H, contact_map_take, &block, error);
  if (status == PLM_OK) {
    correct(&block, tiles);
    const struct plm_map_product product = {.left = block.factors,
                                            .right = block.products,
                                            .left_stride = source->H,
                                            .right_stride = source->H,
                                            .rows = sum->residues,
                                            .columns = sum->residues,
                                            .inner = source->H};
    status = plm_attention_map_product(map, &product, subtract, sum, error);
  }
  free(block.rows);
  free(block.columns);
  free(block.products);
  free(block.factors);
  return status;
}

void plm_contact_sum_finish(struct plm_contact_sum *sum, float bias)
{
  const size_t n = (size_t)sum->residues;
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j <= i; j++) {
      float *here = &sum->values[i * n + j], *there = &sum->values[j * n + i];
      *here = *there = 1 / (1 + expf(-(bias + *here + *there)));
    }
}
