/* Newton-Schulz in blocks. A block of a product is computed into a small buffer. While it is in the
 * cache, it is rounded or combined with another matrix and stored in its place. For the symmetric
 * products, only the blocks on and below the diagonal are computed; their transposes are stored
 * above it.
 *
 * The iterate X_LS is stored with its long side first. The other layouts follow from what the
 * product library does fast. In fp32, every product is fast unless its second factor is transposed,
 * so A = X_LS^T X_LS and X_LS B are computed directly. In bf16, products are fast if the rows of
 * both factors are dense along the depth, so the transpose X_SL is stored as well, for
 * A = X_SL X_SL^T. A and B are symmetric and need no transpose.
 *
 * If the backend widens bf16 operands, the matrices are stored as floats whose values bf16 has, and
 * everything is laid out as in fp32.
 */
#include "kernels/cpu/newton_schulz.h"

#include "kernels/cpu/product.h"

static const float polynomial[3] = {3.4445f, -4.7750f, 2.0315f};
/* Limits of a block's rows and columns. Small blocks suffice for the symmetric products in fp32. */
enum { STEPS = 5, GRAIN = 16, LINE = 16 };
enum { SYMMETRIC_FLOAT = 96, SYMMETRIC_BF16 = 192, HEIGHT = 256, WIDTH = 384, BAND = 64 };
enum { BLOCK = HEIGHT * WIDTH /* floats in the buffer of a thread */ };

struct cut { /* n cut into `count` blocks of `step`; the last block may be smaller */
  int64_t n, step, count;
};

static struct cut cut_of(int64_t n, int64_t limit)
{
  const int64_t parts = (n + limit - 1) / limit, even = (n + parts - 1) / parts;
  const int64_t step = (even + GRAIN - 1) / GRAIN * GRAIN;
  return (struct cut){.n = n, .step = step, .count = (n + step - 1) / step};
}

static int64_t block_size(const struct cut *cut, int64_t i)
{
  return i + 1 < cut->count ? cut->step : cut->n - i * cut->step;
}

/* A product whose result C is cut into blocks. The operands are dense. */
struct blocks {
  struct cut rows, cols;
  struct plm_product_shape shape;           /* of the whole product */
  const struct plm_product *products[2][2]; /* [is last row][is last column] of blocks */
};

/* Whether the matrices are stored as bf16, else as floats. */
static bool stores_bf16(const struct plm_cpu *cpu)
{
  return cpu->bf16 && !cpu->widens;
}

/* The kernels for what the matrices are stored as. */
static const struct plm_cpu_vector *kernels_of(const struct plm_cpu *cpu)
{
  return cpu->widens ? &cpu->floats : &cpu->vector;
}

/* Address of an element of a matrix. */
static void *element(const struct plm_cpu *cpu, const act *matrix, int64_t i)
{
  return (char *)(uintptr_t)matrix + i * (stores_bf16(cpu) ? 2 : 4);
}

/* Rounds what was computed in fp32, unless storing it has rounded it. */
static void round_stored(const struct plm_cpu *cpu, act *matrix, int64_t n)
{
  if (cpu->widens) cpu->floats.round_to_bf16(matrix, n);
}

static struct blocks choose_blocks(struct plm_cpu *cpu, struct plm_product_shape shape,
                                   struct cut rows, struct cut cols)
{
  struct blocks blocks = {.rows = rows, .cols = cols, .shape = shape};
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      if ((i == 0 && rows.count == 1) || (j == 0 && cols.count == 1)) continue;
      shape.M = i == 0 ? rows.step : block_size(&rows, rows.count - 1);
      shape.N = j == 0 ? cols.step : block_size(&cols, cols.count - 1);
      shape.ldc = shape.N;
      blocks.products[i][j] = plm_products_get(cpu->products, &shape);
    }
  return blocks;
}

struct products {
  struct blocks gram, square, apply;
};

static struct products products_of(struct plm_cpu *cpu, int64_t rows, int64_t cols)
{
  const int64_t S = rows < cols ? rows : cols, L = rows < cols ? cols : rows;
  const uint8_t is_bf16 = stores_bf16(cpu);
  const struct cut side = cut_of(S, is_bf16 ? SYMMETRIC_BF16 : SYMMETRIC_FLOAT);
  const struct plm_product_shape of_x = {.K = L,
                                         .lda = is_bf16 ? L : S,
                                         .ldb = is_bf16 ? L : S,
                                         .transpose_a = !is_bf16,
                                         .transpose_b = is_bf16,
                                         .is_bf16 = is_bf16};
  const struct plm_product_shape of_a = {
      .K = S, .lda = S, .ldb = S, .transpose_b = is_bf16, .is_bf16 = is_bf16};
  return (struct products){
      .gram = choose_blocks(cpu, of_x, side, side),
      .square = choose_blocks(cpu, of_a, side, side),
      .apply = choose_blocks(cpu, of_a, cut_of(L, HEIGHT), cut_of(S, WIDTH)),
  };
}

void plm_newton_schulz_prepare(struct plm_cpu *cpu, int64_t rows, int64_t cols)
{
  (void)products_of(cpu, rows, cols);
}

struct iteration {
  struct plm_cpu *cpu;
  int thread;
  int64_t S, L;
  struct products products;
  float *buffers;      /* BLOCK floats for each thread */
  act *X_LS, *next_LS; /* the iterate, and space for the next one */
  act *X_SL;           /* its transpose, used in bf16 */
  act *A_SS, *B_SS;
  bool last_step, wide;
};

static float *buffer_of(const struct iteration *it, uint32_t thread)
{
  return it->buffers + (it->thread == PLM_CPU_ALL ? thread : 0) * BLOCK;
}

static void newton_schulz_run(struct iteration *it, int64_t tiles, plm_pool_tile function)
{
  if (it->thread == PLM_CPU_ALL)
    plm_pool_tiles(it->cpu->pool, tiles, function, it);
  else
    for (int64_t i = 0; i < tiles; i++) function(it, i, (uint32_t)it->thread);
}

/* Computes block (i, j) of C = A B into the buffer of the thread, and returns the buffer. */
static float *newton_schulz_multiply(const struct iteration *it, const struct blocks *blocks,
                                     uint32_t thread, int64_t i, int64_t j, const act *A,
                                     const act *B)
{
  const struct plm_product_shape *s = &blocks->shape;
  const int64_t row = i * blocks->rows.step, col = j * blocks->cols.step;
  float *C = buffer_of(it, thread);
  plm_product_run(blocks->products[i + 1 == blocks->rows.count][j + 1 == blocks->cols.count],
                  thread, C, element(it->cpu, A, row * (s->transpose_a ? 1 : s->lda)),
                  element(it->cpu, B, col * (s->transpose_b ? s->ldb : 1)));
  return C;
}

/* Indices of the tile-th block on or below the diagonal, counted along the rows of blocks. */
static void triangle(int64_t tile, int64_t *i, int64_t *j)
{
  *i = 0;
  while (tile > *i) tile -= ++*i;
  *j = tile;
}

/* Stores block (i, j) of out_SS, and its transpose at (j, i). The block is C if A is NULL,
 * otherwise b A + c C. */
static void store_symmetric(const struct iteration *it, const struct blocks *blocks, int64_t i,
                            int64_t j, act *out, const act *A, const float *C)
{
  const struct plm_cpu *cpu = it->cpu;
  const struct plm_cpu_vector *kernels = kernels_of(cpu);
  const int64_t S = it->S, height = block_size(&blocks->rows, i),
                width = block_size(&blocks->cols, j);
  const int64_t row = i * blocks->rows.step, col = j * blocks->cols.step;
  for (int64_t k = 0; k < height; k++) {
    const int64_t at = (row + k) * S + col;
    if (A == NULL)
      kernels->scale_to(element(cpu, out, at), C + k * width, 1, width);
    else
      kernels->combine(element(cpu, out, at), element(cpu, A, at), C + k * width, polynomial[1],
                       polynomial[2], width);
    round_stored(cpu, element(cpu, out, at), width);
  }
  if (i != j)
    kernels->transpose(element(cpu, out, col * S + row), S, element(cpu, out, row * S + col), S,
                       height, width);
}

static void gram_block(void *context, int64_t tile, uint32_t thread)
{
  const struct iteration *it = context;
  const act *X = stores_bf16(it->cpu) ? it->X_SL : it->X_LS;
  int64_t i, j;
  triangle(tile, &i, &j);
  const float *C = newton_schulz_multiply(it, &it->products.gram, thread, i, j, X, X);
  store_symmetric(it, &it->products.gram, i, j, it->A_SS, NULL, C);
}

static void square_block(void *context, int64_t tile, uint32_t thread)
{
  const struct iteration *it = context;
  int64_t i, j;
  triangle(tile, &i, &j);
  const float *C =
      newton_schulz_multiply(it, &it->products.square, thread, i, j, it->A_SS, it->A_SS);
  store_symmetric(it, &it->products.square, i, j, it->B_SS, it->A_SS, C);
}

/* Computes a block of a X + X B. In bf16, also stores its transpose if that will be read. */
static void apply_block(void *context, int64_t tile, uint32_t thread)
{
  const struct iteration *it = context;
  const struct plm_cpu *cpu = it->cpu;
  const struct plm_cpu_vector *kernels = kernels_of(cpu);
  const struct blocks *blocks = &it->products.apply;
  const int64_t i = tile / blocks->cols.count, j = tile % blocks->cols.count, S = it->S;
  const int64_t height = block_size(&blocks->rows, i), width = block_size(&blocks->cols, j);
  const int64_t row = i * blocks->rows.step, col = j * blocks->cols.step;
  const float *C = newton_schulz_multiply(it, blocks, thread, i, j, it->X_LS, it->B_SS);
  for (int64_t k = 0; k < height; k++) {
    const int64_t at = (row + k) * S + col;
    kernels->combine(element(cpu, it->next_LS, at), element(cpu, it->X_LS, at), C + k * width,
                     polynomial[0], 1, width);
    round_stored(cpu, element(cpu, it->next_LS, at), width);
  }
  if (stores_bf16(cpu) && (!it->last_step || it->wide))
    kernels->transpose(element(cpu, it->X_SL, col * it->L + row), it->L,
                       element(cpu, it->next_LS, row * S + col), S, height, width);
}

static void newton_schulz_step(struct iteration *it)
{
  const int64_t side = it->products.gram.rows.count;
  newton_schulz_run(it, side * (side + 1) / 2, gram_block);
  newton_schulz_run(it, side * (side + 1) / 2, square_block);
  newton_schulz_run(it, it->products.apply.rows.count * it->products.apply.cols.count, apply_block);
  act *before = it->X_LS;
  it->X_LS = it->next_LS;
  it->next_LS = before;
}

/* ---- passes done once per matrix, over bands of rows ---- */
struct bands {
  const struct plm_cpu *cpu;
  act *out;
  const act *in;
  const float *direction;
  float factor;
  int64_t rows, cols;
};

static int64_t band_rows(const struct bands *bands, int64_t band)
{
  return plm_tile_extent(bands->rows, band * BAND, BAND);
}

static void scale_band(void *context, int64_t band, uint32_t thread)
{
  const struct bands *bands = context;
  const int64_t begin = band * BAND * bands->cols, count = band_rows(bands, band) * bands->cols;
  void *out = element(bands->cpu, bands->out, begin);
  (void)thread;
  kernels_of(bands->cpu)->scale_to(out, bands->direction + begin, bands->factor, count);
  round_stored(bands->cpu, out, count);
}

static void transpose_band(void *context, int64_t band, uint32_t thread)
{
  const struct bands *bands = context;
  const int64_t begin = band * BAND;
  (void)thread;
  kernels_of(bands->cpu)
      ->transpose(element(bands->cpu, bands->out, begin), bands->rows,
                  element(bands->cpu, bands->in, begin * bands->cols), bands->cols,
                  band_rows(bands, band), bands->cols);
}

static void run_bands(int thread, struct bands *bands, plm_pool_tile function)
{
  const int64_t count = (bands->rows + BAND - 1) / BAND;
  if (thread == PLM_CPU_ALL)
    plm_pool_tiles(bands->cpu->pool, count, function, bands);
  else
    for (int64_t i = 0; i < count; i++) function(bands, i, (uint32_t)thread);
}

static void transpose(struct plm_cpu *cpu, int thread, act *out, const act *in, int64_t rows,
                      int64_t cols)
{
  struct bands bands = {.cpu = cpu, .out = out, .in = in, .rows = rows, .cols = cols};
  run_bands(thread, &bands, transpose_band);
}

static int64_t newton_schulz_lines(int64_t floats)
{
  return (floats + LINE - 1) / LINE * LINE;
}

size_t plm_newton_schulz_scratch(int64_t rows, int64_t cols, uint32_t threads)
{
  const int64_t S = rows < cols ? rows : cols;
  return (size_t)(threads * BLOCK + newton_schulz_lines(rows * cols) +
                  2 * newton_schulz_lines(S * S));
}

const act *plm_newton_schulz(struct plm_cpu *cpu, int thread, int64_t rows, int64_t cols,
                             float *direction, float factor, float *scratch)
{
  const bool wide = rows < cols, is_bf16 = stores_bf16(cpu);
  const int64_t n = rows * cols;
  struct iteration it = {.cpu = cpu,
                         .thread = thread,
                         .S = wide ? rows : cols,
                         .L = wide ? cols : rows,
                         .products = products_of(cpu, rows, cols),
                         .buffers = scratch,
                         .wide = wide};
  act *own = scratch + (thread == PLM_CPU_ALL ? cpu->ops.threads : 1) * BLOCK;
  it.A_SS = (float *)own + newton_schulz_lines(n);
  it.B_SS = (float *)it.A_SS + newton_schulz_lines(it.S * it.S);
  struct bands start = {
      .cpu = cpu, .out = own, .direction = direction, .factor = factor, .rows = rows, .cols = cols};
  run_bands(thread, &start, scale_band);
  /* the memory of `direction` holds one iterate in fp32, or two in bf16 */
  act *first = direction, *second = is_bf16 ? element(cpu, direction, n) : own;
  if (wide || is_bf16) transpose(cpu, thread, first, own, rows, cols);
  it.X_LS = wide ? first : own;
  it.X_SL = wide ? own : first;
  it.next_LS = wide || is_bf16 ? second : first;
  for (int i = 0; i < STEPS; i++) {
    it.last_step = i + 1 == STEPS;
    newton_schulz_step(&it);
  }
  if (!wide) return it.X_LS;
  if (is_bf16) return it.X_SL;
  transpose(cpu, thread, it.next_LS, it.X_LS, cols, rows);
  return it.next_LS;
}
