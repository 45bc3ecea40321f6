/* Products of queries and keys by a small kernel, and the softmax of each row. */
#include "evaluator/embed/attention_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/process/pool.h"

enum { LANES = 4, PANEL = 2 * LANES, GROUP = 4 }; /* the kernel: GROUP rows by PANEL columns */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

struct plm_attention_map {
  struct plm_pool *pool;
  float *panels; /* (heads, columns / PANEL, inner, PANEL) the right side */
  size_t panel_room;
  float *scores; /* (threads, PLM_MAP_TILE, padded) */
  size_t score_room;
};

/* One call. */
struct run {
  struct plm_attention_map *map;
  const struct plm_map_source *source; /* NULL: no softmax */
  const float *left, *right;           /* of the first head */
  int64_t left_stride, right_stride, padded;
  int32_t rows, columns, inner, head, heads;
  plm_attention_map_take *take;
  void *context;
};

plm_status plm_attention_map_open(uint32_t threads, struct plm_attention_map **map,
                                  struct plm_error *error)
{
  struct plm_attention_map *opened = plm_alloc_zeroed(1, sizeof *opened);
  const plm_status status = plm_pool_open(threads, &opened->pool, error);
  if (status != PLM_OK) {
    plm_attention_map_close(opened);
    return status;
  }
  *map = opened;
  return PLM_OK;
}

void plm_attention_map_close(struct plm_attention_map *map)
{
  if (map == NULL) return;
  plm_pool_close(map->pool);
  free(map->panels);
  free(map->scores);
  free(map);
}

static plm_status attention_map_reserve(float **buffer, size_t *room, size_t wanted,
                                        struct plm_error *error)
{
  if (wanted <= *room) return PLM_OK;
  free(*buffer);
  *room = 0;
  *buffer = malloc(wanted * sizeof **buffer);
  if (*buffer == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for attention maps: %zu bytes",
                         wanted * sizeof **buffer);
  *room = wanted;
  return PLM_OK;
}

static float *panels_of(const struct run *run, int32_t h)
{
  return run->map->panels + (size_t)h * (size_t)run->padded * (size_t)run->inner;
}

/* Packs the right side of one head: PANEL columns side by side, and zeros after the last. */
static void pack(void *context, int64_t h, uint32_t thread)
{
  const struct run *run = context;
  float *to = panels_of(run, (int32_t)h);
  const float *from = run->right + h * run->inner;
  (void)thread;
  for (int64_t first = 0; first < run->padded; first += PANEL)
    for (int32_t i = 0; i < run->inner; i++)
      for (int64_t column = first; column < first + PANEL; column++)
        *to++ = column < run->columns ? from[column * run->right_stride + i] : 0;
}

/* scores (GROUP, padded) of four rows of the left side. */
static void group_product(const struct run *run, const float *panels,
                          const float *const rows[GROUP], float *scores)
{
  const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
  const int64_t padded = run->padded;
  for (int64_t first = 0; first < padded; first += PANEL) {
    lanes a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0}, c0 = {0}, c1 = {0}, d0 = {0}, d1 = {0};
    for (int32_t i = 0; i < run->inner; i++, panels += PANEL) {
      const lanes x = *(const lanes *)panels, y = *(const lanes *)(panels + LANES);
      a0 += a[i] * x;
      a1 += a[i] * y;
      b0 += b[i] * x;
      b1 += b[i] * y;
      c0 += c[i] * x;
      c1 += c[i] * y;
      d0 += d[i] * x;
      d1 += d[i] * y;
    }
    lanes *out[GROUP];
    for (int r = 0; r < GROUP; r++) out[r] = (lanes *)(scores + r * padded + first);
    out[0][0] = a0, out[0][1] = a1;
    out[1][0] = b0, out[1][1] = b1;
    out[2][0] = c0, out[2][1] = c1;
    out[3][0] = d0, out[3][1] = d1;
  }
}

/* Turns the scores of a row into weights. */
static void weigh(const struct plm_map_source *source, int32_t row, float *values)
{
  const float scale = (float)(1 / sqrt((double)source->K));
  const int32_t begin = source->key_begin[row] - source->first;
  const int32_t end = source->key_end[row] - source->first;
  float most = -INFINITY;
  double sum = 0;
  if (begin >= end) {
    memset(values, 0, (size_t)source->tokens * sizeof *values);
    return;
  }
  for (int32_t j = begin; j < end; j++) most = fmaxf(most, values[j]);
  for (int32_t j = begin; j < end; j++) {
    values[j] = expf(scale * (values[j] - most));
    sum += (double)values[j];
  }
  const float factor = (float)(1 / sum);
  for (int32_t j = 0; j < begin; j++) values[j] = 0;
  for (int32_t j = begin; j < end; j++) values[j] *= factor;
  for (int32_t j = end; j < source->tokens; j++) values[j] = 0;
}

static void do_tile(void *context, int64_t tile, uint32_t thread)
{
  const struct run *run = context;
  const int32_t row = (int32_t)tile * PLM_MAP_TILE;
  const int32_t rows = run->rows - row < PLM_MAP_TILE ? run->rows - row : PLM_MAP_TILE;
  float *scores = run->map->scores + (size_t)thread * PLM_MAP_TILE * (size_t)run->padded;
  for (int32_t h = 0; h < run->heads; h++) {
    const float *left = run->left + (int64_t)h * run->inner;
    for (int32_t r = 0; r < rows; r += GROUP) {
      const float *group[GROUP];
      for (int32_t g = 0; g < GROUP; g++)
        group[g] = left + (row + (r + g < rows ? r + g : rows - 1)) * run->left_stride;
      group_product(run, panels_of(run, h), group, scores + r * run->padded);
    }
    for (int32_t r = 0; r < rows && run->source != NULL; r++)
      weigh(run->source, row + r, scores + r * run->padded);
    run->take(run->context, run->head + h, row, rows, scores, run->padded);
  }
}

static plm_status run_all(struct run *run, struct plm_error *error)
{
  struct plm_attention_map *map = run->map;
  run->padded = ((int64_t)run->columns + PANEL - 1) / PANEL * PANEL;
  const size_t padded = (size_t)run->padded;
  PLM_TRY(attention_map_reserve(&map->panels, &map->panel_room,
                                (size_t)run->heads * padded * (size_t)run->inner, error));
  PLM_TRY(attention_map_reserve(&map->scores, &map->score_room,
                                plm_pool_threads(map->pool) * PLM_MAP_TILE * padded, error));
  plm_pool_tiles(map->pool, run->heads, pack, run);
  plm_pool_tiles(map->pool, (run->rows + PLM_MAP_TILE - 1) / PLM_MAP_TILE, do_tile, run);
  return PLM_OK;
}

plm_status plm_attention_map_run(struct plm_attention_map *map, const struct plm_map_source *source,
                                 int32_t head, int32_t heads, plm_attention_map_take *take,
                                 void *context, struct plm_error *error)
{
  const int64_t column = (int64_t)head * source->K;
  struct run run = {.map = map,
                    .source = source,
                    .left = source->queries + column,
                    .right = source->keys + column,
                    .left_stride = source->stride,
                    .right_stride = source->stride,
                    .rows = source->tokens,
                    .columns = source->tokens,
                    .inner = source->K,
                    .head = head,
                    .heads = heads,
                    .take = take,
                    .context = context};
  PLM_ASSERT(head >= 0 && heads > 0 && head + heads <= source->H);
  return run_all(&run, error);
}

plm_status plm_attention_map_product(struct plm_attention_map *map,
                                     const struct plm_map_product *product,
                                     plm_attention_map_take *take, void *context,
                                     struct plm_error *error)
{
  struct run run = {.map = map,
                    .left = product->left,
                    .right = product->right,
                    .left_stride = product->left_stride,
                    .right_stride = product->right_stride,
                    .rows = product->rows,
                    .columns = product->columns,
                    .inner = product->inner,
                    .heads = 1,
                    .take = take,
                    .context = context};
  return run_all(&run, error);
}
