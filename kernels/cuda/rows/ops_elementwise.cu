/* Operators on elements and rows: conversions, activations, the residual stream, gather and
 * scatter. Memory bounds them, so a thread moves 16 bytes at a time. */
#include "kernels/cuda/device/cuda_ops.cuh"
#include "kernels/cuda/rows/gelu.cuh"

namespace
{

enum { THREADS = 256, FEW_SUMS = 4 };

/* ---- one loop for all ---- */

/* Calls body.vector(i) for N elements from i on, and body.single(i) for those of the tail. */
template <int N, class Body> __device__ __forceinline__ void each_vector(int64_t n, Body body)
{
  const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (at + N <= n)
    body.vector(at);
  else
    for (int64_t i = at; i < n; i++) body.single(i);
}

template <class From, class To> struct Convert {
  To *out;
  const From *in;
  static constexpr int N = plm_vector<float>::N; /* 16 bytes of the wider type */
  __device__ void vector(int64_t i) const
  {
    struct alignas(N * sizeof(From)) Read {
      From elements[N];
    } read = *reinterpret_cast<const Read *>(in + i);
    struct alignas(N * sizeof(To)) Write {
      To elements[N];
    } write;
#pragma unroll
    for (int j = 0; j < N; j++) write.elements[j] = from_float<To>(to_float(read.elements[j]));
    *reinterpret_cast<Write *>(out + i) = write;
  }
  __device__ void single(int64_t i) const
  {
    out[i] = from_float<To>(to_float(in[i]));
  }
};

struct Relu2 {
  static __device__ float value(float x)
  {
    return x > 0 ? x * x : x != x ? x : 0;
  }
  /* The slope where the value is `out`. */
  static __device__ float slope(float out)
  {
    return 2 * sqrtf(out);
  }
};

template <class F, class T> struct Activate {
  T *out;
  const T *in;
  static constexpr int N = plm_vector<T>::N;
  __device__ void vector(int64_t i) const
  {
    float x[N];
    load_vector(x, in + i);
#pragma unroll
    for (int j = 0; j < N; j++) x[j] = F::value(x[j]);
    store_vector(out + i, x);
  }
  __device__ void single(int64_t i) const
  {
    out[i] = from_float<T>(F::value(to_float(in[i])));
  }
};

/* d *= the slope of relu2, computed from its output */
struct Relu2Slope {
  static __device__ float value(float d, float out)
  {
    return d * Relu2::slope(out);
  }
};

struct Sum {
  static __device__ float value(float x, float y)
  {
    return x + y;
  }
};

/* x = F(x, y) */
template <class F, class T> struct Combine {
  T *x;
  const T *y;
  static constexpr int N = plm_vector<T>::N;
  __device__ void vector(int64_t i) const
  {
    float a[N], b[N];
    load_vector(a, x + i);
    load_vector(b, y + i);
#pragma unroll
    for (int j = 0; j < N; j++) a[j] = F::value(a[j], b[j]);
    store_vector(x + i, a);
  }
  __device__ void single(int64_t i) const
  {
    x[i] = from_float<T>(F::value(to_float(x[i]), to_float(y[i])));
  }
};

/* dx = dy gelu'(x); dx may be dy */
template <class T> struct GeluBackward {
  T *dx;
  const T *dy, *x;
  static constexpr int N = plm_vector<T>::N;
  __device__ void vector(int64_t i) const
  {
    float d[N], at[N];
    load_vector(d, dy + i);
    load_vector(at, x + i);
#pragma unroll
    for (int j = 0; j < N; j++) d[j] *= Gelu::slope(at[j]);
    store_vector(dx + i, d);
  }
  __device__ void single(int64_t i) const
  {
    dx[i] = from_float<T>(to_float(dy[i]) * Gelu::slope(to_float(x[i])));
  }
};

template <class T> struct Scale {
  T *x;
  float factor;
  static constexpr int N = plm_vector<T>::N;
  __device__ void vector(int64_t i) const
  {
    float v[N];
    load_vector(v, x + i);
#pragma unroll
    for (int j = 0; j < N; j++) v[j] *= factor;
    store_vector(x + i, v);
  }
  __device__ void single(int64_t i) const
  {
    x[i] = from_float<T>(to_float(x[i]) * factor);
  }
};

template <class Body> __global__ void vector_kernel(Body body, int64_t n)
{
  each_vector<Body::N>(n, body);
}

template <class Body> void run_vectors(struct plm_cuda *cuda, const Body &body, int64_t n)
{
  if (n <= 0) return;
  plm_launch(cuda->stream, vector_kernel<Body>, dim3(plm_blocks(n, (int64_t)THREADS * Body::N)),
             dim3(THREADS), 0, body, n);
}

/* ---- the table's functions ---- */

void round_weights(struct plm_ops *ops, act *out, const float *in, size_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda, Convert<float, T>{static_cast<T *>(out), in}, (int64_t)n);
  });
}

void act_to_float(struct plm_ops *ops, float *out, const act *in, size_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda, Convert<T, float>{out, static_cast<const T *>(in)}, (int64_t)n);
  });
}

void float_to_bf16(struct plm_ops *ops, bf16 *out, const float *in, size_t n)
{
  run_vectors(plm_cuda_of(ops), Convert<float, plm_bf16>{reinterpret_cast<plm_bf16 *>(out), in},
              (int64_t)n);
}

void bf16_to_float(struct plm_ops *ops, float *out, const bf16 *in, size_t n)
{
  run_vectors(plm_cuda_of(ops),
              Convert<plm_bf16, float>{out, reinterpret_cast<const plm_bf16 *>(in)}, (int64_t)n);
}

template <class F> void activate(struct plm_ops *ops, act *out, const act *x, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda, Activate<F, T>{static_cast<T *>(out), static_cast<const T *>(x)}, n);
  });
}

template <class F> void combine(struct plm_ops *ops, act *x, const act *y, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda, Combine<F, T>{static_cast<T *>(x), static_cast<const T *>(y)}, n);
  });
}

void gelu_backward(struct plm_ops *ops, act *dx, const act *dy, const act *x, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda,
                GeluBackward<T>{static_cast<T *>(dx), static_cast<const T *>(dy),
                                static_cast<const T *>(x)},
                n);
  });
}

void scale(struct plm_ops *ops, act *x, float factor, int64_t n)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    run_vectors(cuda, Scale<T>{static_cast<T *>(x), factor}, n);
  });
}

/* ---- rows ---- */
template <class T> __global__ void gather_kernel(T *out, const T *x, const int32_t *rows, int64_t D)
{
  const int64_t to = blockIdx.x, from = rows[blockIdx.x];
  for (int64_t j = threadIdx.x; j < D; j += blockDim.x)
    out[to * D + j] = from < 0 ? from_float<T>(0) : x[from * D + j];
}

template <class T>
__global__ void scatter_kernel(T *out, const T *x, const int32_t *rows, int64_t D)
{
  const int64_t from = blockIdx.x, to = rows[blockIdx.x];
  if (to < 0) return;
  for (int64_t j = threadIdx.x; j < D; j += blockDim.x) {
    const int64_t i = to * D + j;
    out[i] = from_float<T>(to_float(out[i]) + to_float(x[from * D + j]));
  }
}

void gather_rows(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                 int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, gather_kernel<T>, dim3((unsigned)N), dim3(128), 0,
               static_cast<T *>(out), static_cast<const T *>(x), rows, D);
  });
}

void scatter_rows(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                  int64_t D)
{
  struct plm_cuda *cuda = plm_cuda_of(ops);
  if (N <= 0) return;
  plm_with_act(cuda, [&](auto *type) {
    typedef std::remove_pointer_t<decltype(type)> T;
    plm_launch(cuda->stream, scatter_kernel<T>, dim3((unsigned)N), dim3(128), 0,
               static_cast<T *>(out), static_cast<const T *>(x), rows, D);
  });
}

/* ---- partial sums ---- */
__global__ void add_partials_kernel(float *out, const float *partial, int64_t parts, int64_t count)
{
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  double sum = 0;
#pragma unroll 16
  for (int64_t part = 0; part < parts; part++) sum += (double)partial[part * count + i];
  out[i] = (float)((double)out[i] + sum);
}

/* The same with a block for each sum. */
__global__ void add_many_partials_kernel(float *out, const float *partial, int64_t parts,
                                         int64_t count)
{
  const int64_t i = blockIdx.x;
  double sum = 0;
  for (int64_t part = threadIdx.x; part < parts; part += blockDim.x)
    sum += (double)partial[part * count + i];
  sum = block_sum(sum, plm_shared<double>());
  if (threadIdx.x == 0) out[i] = (float)((double)out[i] + sum);
}

} // namespace

void plm_cuda_add_partials(struct plm_cuda *cuda, float *out, const float *partial, int64_t parts,
                           int64_t count)
{
  if (count <= FEW_SUMS) { /* too few threads to add their parts one after the other */
    plm_launch(cuda->stream, add_many_partials_kernel, dim3((unsigned)count), dim3(THREADS),
               33 * sizeof(double), out, partial, parts, count);
    return;
  }
  plm_launch(cuda->stream, add_partials_kernel, dim3(plm_blocks(count, THREADS)), dim3(THREADS), 0,
             out, partial, parts, count);
}

void plm_cuda_relu2(struct plm_cuda *cuda, act *x, int64_t n)
{
  activate<Relu2>(&cuda->ops, x, x, n);
}

void plm_cuda_relu2_backward(struct plm_cuda *cuda, act *dx, const act *out, int64_t n)
{
  combine<Relu2Slope>(&cuda->ops, dx, out, n);
}

static void relu2_forward(struct plm_ops *ops, act *x, int64_t n)
{
  plm_cuda_relu2(plm_cuda_of(ops), x, n);
}

void plm_cuda_elementwise_register(struct plm_cuda *cuda)
{
  struct plm_ops *ops = &cuda->ops;
  ops->round_weights = round_weights;
  ops->act_to_float = act_to_float;
  ops->float_to_bf16 = float_to_bf16;
  ops->bf16_to_float = bf16_to_float;
  ops->gelu_forward = activate<Gelu>;
  ops->gelu_backward = gelu_backward;
  ops->relu2_forward = relu2_forward;
  ops->relu2_backward = combine<Relu2Slope>;
  ops->scale = scale;
  ops->add = combine<Sum>;
  ops->gather_rows = gather_rows;
  ops->scatter_rows = scatter_rows;
}
