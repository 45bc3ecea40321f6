/* Products under the emulation: plain loops, fp32 operands and accumulation, rounded once. */
#include "kernels/cuda/products.cuh"

namespace
{

template <class T> float element(const T *x, int64_t row, int64_t column, int64_t ld, bool turned)
{
  return to_float(turned ? x[column * ld + row] : x[row * ld + column]);
}

template <class C, class T>
void multiply(const struct plm_cuda_shape *s, C *c, const T *a, const T *b, const C *addend)
{
  for (int64_t m = 0; m < s->M; m++) {
    for (int64_t n = 0; n < s->N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < s->K; k++)
        sum += (double)element(a, m, k, s->lda, s->transpose_a) *
               (double)element(b, k, n, s->ldb, s->transpose_b);
      if (s->add) sum += (double)to_float(addend[m * s->ldc + n]);
      c[m * s->ldc + n] = from_float<C>((float)sum);
    }
  }
}

template <class C, class T>
void multiply_all(const struct plm_cuda_shape *s, void *c, const void *a, const void *b,
                  const void *addend)
{
  for (int64_t i = 0; i < s->batch; i++)
    multiply(s, static_cast<C *>(c) + i * s->stride_c, static_cast<const T *>(a) + i * s->stride_a,
             static_cast<const T *>(b) + i * s->stride_b,
             s->add ? static_cast<const C *>(addend) + i * s->stride_c : nullptr);
}

} // namespace

plm_status plm_cuda_products_open(struct plm_cuda *, struct plm_error *)
{
  return PLM_OK;
}

void plm_cuda_products_close(struct plm_cuda *)
{
}

void plm_cuda_multiply(struct plm_cuda *cuda, const struct plm_cuda_shape *shape, void *c,
                       const void *a, const void *b, const void *addend)
{
  const bool narrow = cuda->narrow;
  const struct plm_cuda_shape s = *shape;
  plm_enqueue(cuda->stream, [=] {
    const plm::emulation::Reach reach;
    if (!narrow)
      multiply_all<float, float>(&s, c, a, b, addend);
    else if (s.float_c)
      multiply_all<float, plm_bf16>(&s, c, a, b, addend);
    else
      multiply_all<plm_bf16, plm_bf16>(&s, c, a, b, addend);
  });
}
