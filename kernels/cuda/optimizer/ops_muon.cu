/* Muon (Jordan et al. 2024): the orthogonal matrix nearest to the momentum, by five quintic
 * Newton-Schulz steps X <- a X + (b A + c A^2) X with A = X X^T over the shorter side. A tall
 * matrix is not transposed; there A = X^T X and multiplies from the right. Products are bf16 with
 * fp32 accumulation if the backend is bf16, else fp32. Each result is rounded once.
 *
 * Matrices of one shape form batches: each launch and each product covers a batch. A step is three
 * products, which also add b A and a X. The result for a matrix does not depend on its batch, since
 * the batches of a rank depend on how many ranks there are. */
#include "kernels/cuda/products/products.cuh"

namespace
{

enum {
  THREADS = 256,
  SUM_BLOCKS = plm_most_parts(128),
  STEPS = 5,
  MOST = 32,   /* matrices of a batch, whose addresses are kernel parameters */
  ALIGNED = 64 /* elements; the matrices of a batch begin at multiples of it */
};
static constexpr float NEWTON_SCHULZ[3] = {3.4445f, -4.7750f, 2.0315f};
static constexpr size_t MOST_BYTES =
    (size_t)256 << 20; /* of scratch for a batch, unless one matrix needs more */

struct Batch {
  int64_t n;      /* elements of a matrix */
  int64_t stride; /* elements between their X */
  float *w[MOST], *momentum[MOST];
  const float *g[MOST];
  float weight_decay[MOST], scale[MOST];
  int rate[MOST];
};

/* Nesterov's look-ahead from the stored momentum: lerp(g, buf, m). */
__device__ __forceinline__ float look_ahead(float gradient, float kept, float momentum)
{
  return gradient + momentum * (kept - gradient);
}

/* Updates the momentum, buf = lerp(buf, g, 1 - m), and leaves a block's part of |look-ahead|^2. The
 * grid's y is the matrix. */
__global__ void momentum_kernel(Batch batch, double *partial, const struct plm_update *update)
{
  const float scale = update->decision.gradient_scale, momentum = update->inputs.momentum;
  if (update->decision.skipped) return;
  const float *g = batch.g[blockIdx.y];
  float *buffer = batch.momentum[blockIdx.y];
  double sum = 0;
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < batch.n; i += stride) {
    const float gradient = g[i] * scale;
    const float kept = buffer[i] + (1 - momentum) * (gradient - buffer[i]);
    const float ahead = look_ahead(gradient, kept, momentum);
    buffer[i] = kept;
    sum += (double)ahead * (double)ahead;
  }
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) partial[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

/* X = G / (|G| + 1e-7), where the look-ahead G is computed again. Every block adds up the parts of
 * the norm, in the same order. */
template <class T>
__global__ void normalise_kernel(T *x, Batch batch, const double *partial, int parts,
                                 const struct plm_update *update)
{
  const float scale = update->decision.gradient_scale, momentum = update->inputs.momentum;
  if (update->decision.skipped) return;
  const float *g = batch.g[blockIdx.y], *buffer = batch.momentum[blockIdx.y];
  const int t = (int)threadIdx.x;
  const double sum =
      block_sum(t < parts ? partial[blockIdx.y * parts + t] : 0.0, plm_shared<double>());
  const float inverse = (float)(1 / (sqrt(sum) + 1e-7));
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  x += blockIdx.y * batch.stride;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + t; i < batch.n; i += stride)
    x[i] = from_float<T>(look_ahead(g[i] * scale, buffer[i], momentum) * inverse);
}

template <class T>
__global__ void update_kernel(Batch batch, const T *x, const struct plm_update *update)
{
  if (update->decision.skipped) return;
  const int y = (int)blockIdx.y;
  const float lr = update->inputs.rate[batch.rate[y]];
  const float kept = 1 - lr * batch.weight_decay[y], rate = lr * batch.scale[y];
  float *w = batch.w[y];
  const int64_t stride = (int64_t)gridDim.x * blockDim.x;
  x += y * batch.stride;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < batch.n; i += stride)
    w[i] = w[i] * kept - rate * to_float(x[i]);
}

/* ---- a shape's batches ---- */

int64_t aligned(int64_t n)
{
  return (n + ALIGNED - 1) / ALIGNED * ALIGNED;
}

int64_t side_of(const struct plm_muon_matrix *matrix)
{
  return matrix->rows < matrix->cols ? matrix->rows : matrix->cols;
}

/* Bytes for one matrix: two X, A, and b A + c A^2. */
size_t scratch_bytes(const struct plm_muon_matrix *matrix, size_t act_bytes)
{
  const int64_t side = side_of(matrix);
  return (size_t)(2 * aligned(matrix->rows * matrix->cols) + 2 * aligned(side * side)) * act_bytes;
}

bool alike(const struct plm_muon_matrix *x, const struct plm_muon_matrix *y)
{
  return x->rows == y->rows && x->cols == y->cols;
}

bool is_first_of_shape(const struct plm_muon_matrix *matrices, size_t i)
{
  for (size_t j = 0; j < i; j++)
    if (alike(&matrices[j], &matrices[i])) return false;
  return true;
}

/* How many of `total` matrices of a shape form a batch: sizes are as even as possible, so that
 * there are few different ones. */
size_t batch_size(const struct plm_muon_matrix *matrix, size_t total, size_t act_bytes)
{
  size_t most = MOST_BYTES / scratch_bytes(matrix, act_bytes);
  if (most > MOST) most = MOST;
  if (most < 1) most = 1;
  const size_t batches = (total + most - 1) / most;
  return (total + batches - 1) / batches;
}

size_t count_alike(const struct plm_muon_matrix *matrices, size_t count, size_t i)
{
  size_t total = 0;
  for (size_t j = i; j < count; j++) total += alike(&matrices[i], &matrices[j]);
  return total;
}

/* One Newton-Schulz step on a batch, from x to out. */
template <class T>
void newton_schulz(struct plm_cuda *cuda, const struct plm_muon_matrix *matrix, int32_t count,
                   T *out, T *x, T *a, T *b)
{
  const int64_t rows = matrix->rows, cols = matrix->cols, side = side_of(matrix);
  const int64_t stride = aligned(rows * cols), square = aligned(side * side);
  const bool tall = rows > cols;
  struct plm_cuda_shape gram = {}, power = {}, apply = {};
  gram.M = gram.N = side, gram.K = tall ? rows : cols;
  gram.lda = gram.ldb = cols, gram.ldc = side;
  gram.transpose_a = tall, gram.transpose_b = !tall;
  gram.stride_a = gram.stride_b = stride, gram.stride_c = square;
  power.M = power.N = power.K = power.lda = power.ldb = power.ldc = side;
  power.stride_a = power.stride_b = power.stride_c = square;
  power.add = true, power.alpha = NEWTON_SCHULZ[2], power.beta = NEWTON_SCHULZ[1];
  apply.M = rows, apply.N = cols, apply.K = side;
  apply.lda = tall ? cols : side, apply.ldb = cols, apply.ldc = cols;
  apply.stride_a = tall ? stride : square, apply.stride_b = tall ? square : stride;
  apply.stride_c = stride;
  apply.add = true, apply.beta = NEWTON_SCHULZ[0];
  gram.batch = power.batch = apply.batch = count;
  gram.alike = power.alike = apply.alike = true;
  plm_cuda_multiply(cuda, &gram, a, x, x, nullptr);
  plm_cuda_multiply(cuda, &power, b, a, a, a);
  plm_cuda_multiply(cuda, &apply, out, tall ? x : b, tall ? b : x, x);
}

template <class T>
void step_batch(struct plm_cuda *cuda, const struct plm_muon_matrix *matrix, const Batch &batch,
                unsigned count, float *scratch, const struct plm_update *update)
{
  const int64_t square = aligned(side_of(matrix) * side_of(matrix));
  T *x = reinterpret_cast<T *>(scratch), *other = x + count * batch.stride;
  T *a = other + count * batch.stride, *b = a + count * square;
  const unsigned blocks = min(plm_blocks(batch.n, THREADS), (unsigned)SUM_BLOCKS);
  double *partial = plm_cuda_scratch<double>(cuda, (size_t)MOST * SUM_BLOCKS);
  const dim3 grid(blocks, count);
  plm_launch(cuda->stream, momentum_kernel, grid, dim3(THREADS), 33 * sizeof(double), batch,
             partial, update);
  plm_launch(cuda->stream, normalise_kernel<T>, grid, dim3(THREADS), 33 * sizeof(double), x, batch,
             partial, (int)blocks, update);
  for (int i = 0; i < STEPS; i++) {
    newton_schulz(cuda, matrix, (int32_t)count, other, x, a, b);
    T *made = other;
    other = x, x = made;
  }
  plm_launch(cuda->stream, update_kernel<T>, grid, dim3(THREADS), 0, batch, x, update);
}

/* Updates all matrices with the shape of matrices[first], the first one of that shape. */
template <class T>
void step_shape(struct plm_cuda *cuda, const struct plm_muon_matrix *matrices, size_t count,
                size_t first, float *scratch, const struct plm_update *update)
{
  const struct plm_muon_matrix *shape = &matrices[first];
  const size_t each = batch_size(shape, count_alike(matrices, count, first), cuda->ops.act_bytes);
  Batch batch = {};
  unsigned gathered = 0;
  size_t left = count_alike(matrices, count, first);
  batch.n = shape->rows * shape->cols;
  batch.stride = aligned(batch.n);
  for (size_t i = first; i < count; i++) {
    const struct plm_muon_matrix *matrix = &matrices[i];
    if (!alike(shape, matrix)) continue;
    batch.w[gathered] = matrix->w;
    batch.momentum[gathered] = matrix->momentum;
    batch.g[gathered] = matrix->g;
    batch.weight_decay[gathered] = matrix->weight_decay;
    batch.scale[gathered] = matrix->update_scale;
    batch.rate[gathered++] = matrix->rate;
    left--;
    if (gathered < each && left > 0) continue;
    step_batch<T>(cuda, shape, batch, gathered, scratch, update);
    gathered = 0;
  }
}

void muon_step(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
               float *scratch, const struct plm_update *update)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  for (size_t i = 0; i < count; i++) {
    if (!is_first_of_shape(matrices, i)) continue;
    plm_with_act(cuda, [&](auto *type) {
      typedef std::remove_pointer_t<decltype(type)> T;
      step_shape<T>(cuda, matrices, count, i, scratch, update);
    });
  }
}

size_t muon_scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count)
{
  size_t most = 0;
  for (size_t i = 0; i < count; i++) {
    if (!is_first_of_shape(matrices, i)) continue;
    const size_t total = count_alike(matrices, count, i);
    const size_t bytes = batch_size(&matrices[i], total, ops->act_bytes) *
                         scratch_bytes(&matrices[i], ops->act_bytes);
    if (bytes > most) most = bytes;
  }
  return (most + sizeof(float) - 1) / sizeof(float);
}

} // namespace

void plm_cuda_muon_register(struct plm_cuda *cuda)
{
  cuda->ops.muon_step = muon_step;
  cuda->ops.muon_scratch = muon_scratch;
}
