/* Products under the emulation: plain loops in double, rounded once. An "algorithm" is the number
 * of parts into which K is cut. Each part is summed and rounded to fp32, and the parts are added in
 * their order, so algorithms differ in their bits as a library's do. The proposal depends on the
 * size of the batch; tuning draws a number, which may differ from run to run as with real timing.
 */
#include "kernels/cuda/products/kernel_choices.cuh"
#include "kernels/cuda/products/product_algorithms.cuh"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace
{

/* op(X) as doubles, row by row, in the order in which the loops below read it. */
template <class T>
std::vector<double> widened(const T *x, int64_t rows, int64_t columns, int64_t ld, bool transposed)
{
  std::vector<double> wide((size_t)(rows * columns));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      wide[(size_t)(i * columns + j)] =
          (double)to_float(transposed ? x[j * ld + i] : x[i * ld + j]);
  return wide;
}

/* sums[n] = the sum over k in [begin, end) of a row of op(A) times column n of op(B). */
void dot_columns(double *sums, const double *a, const double *b, int64_t N, int64_t begin,
                 int64_t end)
{
  for (int64_t n = 0; n < N; n++) sums[n] = 0;
  for (int64_t k = begin; k < end; k++)
    for (int64_t n = 0; n < N; n++) sums[n] += a[k] * b[k * N + n];
}

template <class C, class T>
void multiply(const struct plm_cuda_shape *s, int64_t parts, float alpha, float beta, C *c,
              const T *a, const T *b, const C *addend)
{
  const std::vector<double> wide_a = widened(a, s->M, s->K, s->lda, s->transpose_a);
  const std::vector<double> wide_b = widened(b, s->K, s->N, s->ldb, s->transpose_b);
  std::vector<double> sums((size_t)s->N), part_sums((size_t)s->N);
  for (int64_t m = 0; m < s->M; m++) {
    const double *row = wide_a.data() + m * s->K;
    dot_columns(sums.data(), row, wide_b.data(), s->N, 0, s->K / parts);
    for (int64_t part = 1; part < parts; part++) {
      dot_columns(part_sums.data(), row, wide_b.data(), s->N, part * s->K / parts,
                  (part + 1) * s->K / parts);
      for (size_t n = 0; n < sums.size(); n++)
        sums[n] = (double)((float)sums[n] + (float)part_sums[n]);
    }
    for (int64_t n = 0; n < s->N; n++) {
      double sum = sums[(size_t)n] * (double)alpha;
      if (s->add) sum += (double)beta * (double)to_float(addend[m * s->ldc + n]);
      c[m * s->ldc + n] = from_float<C>((float)sum);
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
