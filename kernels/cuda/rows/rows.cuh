/* Rows of activations; a warp works on a row. A row that is short enough is held in the warp's
 * registers in the layout of memory (16-byte vectors, dealt to the lanes), so it is read only once
 * although a statistic of it is needed first. Longer rows, and widths that are not a multiple of a
 * vector, are read twice. */
#ifndef PLM_KERNELS_CUDA_ROWS_ROWS_CUH
#define PLM_KERNELS_CUDA_ROWS_ROWS_CUH

#include "kernels/cuda/device/cuda_ops.cuh"

/* One access moves a vector if VECTOR (widths are multiples of it), else one element. */
template <class T, bool VECTOR> struct Columns {
  static constexpr int N = VECTOR ? plm_vector<T>::N : 1;
  static __device__ __forceinline__ void load(float *out, const T *p)
  {
    if constexpr (VECTOR)
      load_vector(out, p);
    else
      out[0] = to_float(*p);
  }
  static __device__ __forceinline__ void store(T *p, const float *in)
  {
    if constexpr (VECTOR)
      store_vector(p, in);
    else
      *p = from_float<T>(in[0]);
  }
};

/* Loops over the columns j of this lane, C::N at a time. */
#define EACH_COLUMN(C, D) \
  for (int64_t j = (int64_t)(threadIdx.x % PLM_WARP) * C::N; j < (D); j += PLM_WARP * C::N)

/* A row of at most HELD * 32 vectors in registers. Elements beyond D are 0. */
template <class T, int HELD> struct Row {
  static constexpr int N = plm_vector<T>::N;
  plm_vector<T> vectors[HELD];

  static __device__ __forceinline__ int64_t column(int i)
  {
    return (int64_t)(i * PLM_WARP + (int)(threadIdx.x % PLM_WARP)) * N;
  }
  __device__ __forceinline__ void load(const T *row, int64_t D)
  {
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (column(i) < D) vectors[i].words = *reinterpret_cast<const uint4 *>(row + column(i));
  }
  __device__ __forceinline__ void store(T *row, int64_t D) const
  {
#pragma unroll
    for (int i = 0; i < HELD; i++) store_vector(row, D, i);
  }
  __device__ __forceinline__ void store_vector(T *row, int64_t D, int i) const
  {
    if (column(i) < D) *reinterpret_cast<uint4 *>(row + column(i)) = vectors[i].words;
  }
  /* Hides from the compiler that the elements are those of before. It then converts them again
   * where they are used, instead of keeping what it computed from them in registers until there. */
  __device__ __forceinline__ void hide()
  {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
      uint4 &words = vectors[i].words;
      asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    }
  }
  __device__ __forceinline__ float at(int i, int k) const
  {
    return to_float(vectors[i].elements[k]);
  }
  /* Sets each element to f(vector, index in it), rounded. */
  template <class F> __device__ __forceinline__ void fill(F f)
  {
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
      for (int k = 0; k < N; k++) vectors[i].elements[k] = from_float<T>(f(i, k));
  }
  /* The lane's part of a sum: f over its elements, in their order. */
  template <class F> static __device__ __forceinline__ float sum(F f)
  {
    float total = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
      for (int k = 0; k < N; k++) total += f(i, k);
    return total;
  }
};

/* Whether a row of D elements consists of whole vectors. */
template <class T> static inline bool plm_whole_vectors(int64_t D)
{
  return D % plm_vector<T>::N == 0;
}

/* Calls f with HELD as a compile-time constant, or with 0 if the row cannot be held: it is wider
 * than MOST vectors for each lane, or not a multiple of a vector. */
template <int HELD> struct plm_held {
  static constexpr int value = HELD;
};
template <class T, int MOST, class F> static inline void plm_with_held(int64_t D, F f)
{
  const int64_t vectors =
      (D + (int64_t)PLM_WARP * plm_vector<T>::N - 1) / ((int64_t)PLM_WARP * plm_vector<T>::N);
  if (!plm_whole_vectors<T>(D) || vectors > MOST) return f(plm_held<0>());
  if (vectors == 1) return f(plm_held<1>());
  if (vectors == 2) return f(plm_held<2>());
  if (vectors == 3) return f(plm_held<3>());
  if (vectors == 4) return f(plm_held<4>());
  if constexpr (MOST >= 6)
    if (vectors <= 6) return f(plm_held<6>());
  if constexpr (MOST >= 8) return f(plm_held<8>());
}

#endif
