/* Products under the emulation: plain loops in double, rounded once. An "algorithm" is the number
 * of parts into which K is cut. Each part is summed and rounded to fp32, and the parts are added in
 * their order, so algorithms differ in their bits as a library's do. The proposal depends on the
 * size of the batch; tuning draws a number, which may differ from run to run as with real timing.
 */
#include "kernels/cuda/products/kernel_choices.cuh"
#include "kernels/cuda/products/product_algorithms.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace
{

/* A result is computed in blocks of so many rows and columns, whose sums a processor holds in its
 * registers. */
enum { ROWS = 4, COLUMNS = 8 };

/* Rows of op(A), or columns of op(B), as doubles: `side` of them beside each other, element k of
 * each after the elements k - 1. Those beyond the last one are 0. */
template <class T>
std::vector<double> packed(const T *x, int64_t count, int64_t K, int64_t stride, int64_t k_stride,
                           int64_t side)
{
  std::vector<double> wide((size_t)((count + side - 1) / side * side * K));
  for (int64_t i = 0; i < count; i++) {
    double *to = wide.data() + i / side * side * K + i % side;
    for (int64_t k = 0; k < K; k++) to[k * side] = (double)to_float(x[i * stride + k * k_stride]);
  }
  return wide;
}

/* As many columns as a register of AVX2 has; an array of doubles of any alignment may be read as
 * such. */
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));

/* sums = the products of ROWS rows and COLUMNS columns of K elements, each added in the order of
 * k. */
PLM_WIDE void multiply_block(double sums[ROWS][COLUMNS], const double *a, const double *b,
                             int64_t K)
{
  enum { FOURS = COLUMNS / 4 };
  Four held[ROWS][FOURS] = {};
  for (int64_t k = 0; k < K; k++) {
    const Four *columns = reinterpret_cast<const Four *>(b + k * COLUMNS);
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < FOURS; i++) held[row][i] += a[k * ROWS + row] * columns[i];
  }
  memcpy(sums, held, sizeof held);
}

/* The same for K in parts. */
void multiply_parts(double sums[ROWS][COLUMNS], const double *a, const double *b, int64_t K,
                    int64_t parts)
{
  double part_sums[ROWS][COLUMNS];
  multiply_block(sums, a, b, K / parts);
  for (int64_t part = 1; part < parts; part++) {
    const int64_t begin = part * K / parts, end = (part + 1) * K / parts;
    multiply_block(part_sums, a + begin * ROWS, b + begin * COLUMNS, end - begin);
    for (int row = 0; row < ROWS; row++)
      for (int column = 0; column < COLUMNS; column++)
        sums[row][column] = (double)((float)sums[row][column] + (float)part_sums[row][column]);
  }
}

template <class C, class T>
void multiply(const struct plm_cuda_shape *s, int64_t parts, float alpha, float beta, C *c,
              const T *a, const T *b, const C *addend)
{
  const int64_t K = s->K;
  const std::vector<double> rows =
      packed(a, s->M, K, s->transpose_a ? 1 : s->lda, s->transpose_a ? s->lda : 1, ROWS);
  const std::vector<double> columns =
      packed(b, s->N, K, s->transpose_b ? s->ldb : 1, s->transpose_b ? 1 : s->ldb, COLUMNS);
  double sums[ROWS][COLUMNS];
  for (int64_t n = 0; n < s->N; n += COLUMNS)
    for (int64_t m = 0; m < s->M; m += ROWS) {
      multiply_parts(sums, rows.data() + m * K, columns.data() + n * K, K, parts);
      for (int64_t i = m; i < std::min(m + ROWS, s->M); i++)
        for (int64_t j = n; j < std::min(n + COLUMNS, s->N); j++) {
          double sum = sums[i - m][j - n] * (double)alpha;
          if (s->add) sum += (double)beta * (double)to_float(addend[i * s->ldc + j]);
          c[i * s->ldc + j] = from_float<C>((float)sum);
        }
    }
}

/* Ends the process if the result overlaps an operand, since a library reads operands while it
 * writes. */
void check_apart(const void *c, int64_t c_bytes, const void *operand, int64_t bytes)
{
  const char *x = static_cast<const char *>(c), *y = static_cast<const char *>(operand);
  if (x < y + bytes && y < x + c_bytes) plm::emulation::stop("a product writes to its own operand");
}

template <class C, class T>
void multiply_all(const struct plm_cuda_algorithm *algorithm, const struct plm_cuda_operands *o)
{
  const void *a = o->a, *b = o->b, *addend = o->addend;
  void *c = o->c;
  const struct plm_cuda_shape *s = &algorithm->shape;
  const auto bytes = [&](int64_t rows, int64_t columns, int64_t ld, int64_t stride, size_t size) {
    return ((s->batch - 1) * stride + (rows - 1) * ld + columns) * (int64_t)size;
  };
  const int64_t c_bytes = bytes(s->M, s->N, s->ldc, s->stride_c, sizeof(C));
  check_apart(c, c_bytes, a,
              s->transpose_a ? bytes(s->K, s->M, s->lda, s->stride_a, sizeof(T))
                             : bytes(s->M, s->K, s->lda, s->stride_a, sizeof(T)));
  check_apart(c, c_bytes, b,
              s->transpose_b ? bytes(s->N, s->K, s->ldb, s->stride_b, sizeof(T))
                             : bytes(s->K, s->N, s->ldb, s->stride_b, sizeof(T)));
  for (int64_t i = 0; i < s->batch; i++)
    multiply(s, (int64_t)algorithm->words[0], o->alpha, o->beta,
             static_cast<C *>(c) + i * s->stride_c, static_cast<const T *>(a) + i * s->stride_a,
             static_cast<const T *>(b) + i * s->stride_b,
             s->add ? static_cast<const C *>(addend) + i * s->stride_c : nullptr);
}

enum { MOST_PARTS = 4 };

} // namespace

/* ---- algorithms ---- */

void plm_cuda_library_name(const struct plm_cuda *, char name[128])
{
  snprintf(name, 128, "plain loops 1, emulated");
}

plm_status plm_cuda_algorithm_make(struct plm_cuda *, struct plm_cuda_algorithm *,
                                   struct plm_error *)
{
  return PLM_OK;
}

void plm_cuda_algorithm_release(struct plm_cuda_algorithm *)
{
}

plm_status plm_cuda_algorithm_propose(struct plm_cuda *, struct plm_cuda_algorithm *algorithm,
                                      struct plm_error *)
{
  algorithm->words[0] = 1 + (uint64_t)(algorithm->shape.batch - 1) % MOST_PARTS;
  return PLM_OK;
}

/* Depends only on the seed and the shape. */
static uint64_t draw(int64_t a, int64_t b, int64_t c)
{
  uint64_t drawn = plm::emulation::tuning_seed() + 1;
  for (int64_t number : {a, b, c}) {
    drawn = (drawn ^ (uint64_t)number) * 0x9e3779b97f4a7c15;
    drawn ^= drawn >> 32;
  }
  return drawn;
}

bool plm_cuda_algorithm_measure(struct plm_cuda *, struct plm_cuda_algorithm *algorithm,
                                const struct plm_cuda_operands *)
{
  const struct plm_cuda_shape *s = &algorithm->shape;
  algorithm->words[0] = 1 + draw(s->M, s->N, s->K) % MOST_PARTS;
  return true;
}

/* Runs both ways, as a real measurement does. */
bool plm_cuda_choice_measure(struct plm_cuda *cuda, const struct plm_choice_shape *shape,
                             plm_choice_run run, const void *context, bool *second)
{
  const int64_t *n = shape->numbers;
  if (!run(cuda, context, false) || !run(cuda, context, true)) return false;
  *second = (draw(n[0], n[1], n[2]) >> 8 & 1) != 0;
  return true;
}

/* Like a real library, it need not take every algorithm for every batch. */
bool plm_cuda_algorithm_accepts(struct plm_cuda *, const struct plm_cuda_algorithm *algorithm)
{
  if (algorithm->shape.alike && algorithm->shape.batch == 3) return false;
  return algorithm->words[0] >= 1 && algorithm->words[0] <= MOST_PARTS;
}

/* ---- products ---- */

plm_status plm_cuda_products_open(struct plm_cuda *cuda, struct plm_error *error)
{
  return plm_cuda_algorithms_open(cuda, error);
}

void plm_cuda_products_close(struct plm_cuda *cuda)
{
  plm_cuda_algorithms_close(cuda);
}

plm_status plm_cuda_algorithm_run(struct plm_cuda *cuda, const struct plm_cuda_algorithm *chosen,
                                  const struct plm_cuda_operands *operands, struct plm_error *)
{
  const bool in_bf16 = cuda->bf16;
  const struct plm_cuda_algorithm algorithm = *chosen;
  const struct plm_cuda_operands o = *operands;
  plm_enqueue(cuda->stream, [=] {
    const plm::emulation::Reach reach;
    if (!in_bf16)
      multiply_all<float, float>(&algorithm, &o);
    else if (algorithm.shape.float_c)
      multiply_all<float, plm_bf16>(&algorithm, &o);
    else
      multiply_all<plm_bf16, plm_bf16>(&algorithm, &o);
  });
  return PLM_OK;
}
