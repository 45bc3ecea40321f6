/* Products by cuBLASLt. A row-major C = A B is the column-major C^T = B^T A^T, so the operands are
 * passed in the opposite order.
 *
 * Only algorithms are used that give the same bits each time and round once. A product that is
 * split along K rounds at each part if the parts are added up in the output's type (INPLACE,
 * OUTPUT_TYPE). It does not if the parts stay in fp32 in the workspace and are added in their order
 * (COMPUTE_TYPE). Products that must be alike in batches of any size are not split: each of their
 * elements is then one sum, made by one block, whatever else the launch computes. */
#include "kernels/cuda/products/product_algorithms.cuh"

#include <cublasLt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/products/kernel_choices.cuh"

enum { CANDIDATES = 12, RUNS = 3, TIMES = 5, SPINS_MAX = 32, SPIN_RUNS_MAX = 1024 };
static constexpr float HOPELESS = 1.3f; /* times the best: not timed any further */
static constexpr float AS_GOOD = 1.02f; /* times the best: as good as the best */
static constexpr float SPIN_MS = 20;    /* of work before a measurement */

/* The library's description of a product. */
struct described {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* as column-major matrices */
};

struct plm_cuda_products {
  cublasLtHandle_t handle;
  void *workspace;
  size_t workspace_bytes;
  cudaEvent_t events[TIMES + 1];
  char card[96];
};

namespace
{

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(plm_cuda_algorithm::words), "kept as words");

plm_status failed(struct plm_error *error, cublasStatus_t code, const char *what)
{
  return plm_error_set(error, PLM_FAILURE, "cuBLASLt: %s: %s", what, cublasGetStatusString(code));
}

const struct described *described_of(const struct plm_cuda_algorithm *algorithm)
{
  return static_cast<const struct described *>(algorithm->made);
}

cublasStatus_t make_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int64_t rows,
                           int64_t columns, int64_t ld, int32_t batch, int64_t stride)
{
  /* a row-major (rows, columns) is a column-major (columns, rows) */
  cublasStatus_t code =
      cublasLtMatrixLayoutCreate(layout, type, (uint64_t)columns, (uint64_t)rows, ld);
  if (code == CUBLAS_STATUS_SUCCESS && batch > 1) {
    code = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                            sizeof batch);
    if (code == CUBLAS_STATUS_SUCCESS)
      code = cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof stride);
  }
  return code;
}

cublasStatus_t describe(struct described *made, const struct plm_cuda_shape *s, bool bf16)
{
  const cudaDataType_t in = bf16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t out = s->float_c ? CUDA_R_32F : in;
  const cublasOperation_t of_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  /* CUBLAS_COMPUTE_32F does not use TF32 for fp32 operands */
  cublasStatus_t code = cublasLtMatmulDescCreate(&made->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulDescSetAttribute(made->operation, CUBLASLT_MATMUL_DESC_TRANSA, &of_b,
                                          sizeof of_b);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulDescSetAttribute(made->operation, CUBLASLT_MATMUL_DESC_TRANSB, &of_a,
                                          sizeof of_a);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&made->a, in, s->transpose_b ? s->N : s->K, s->transpose_b ? s->K : s->N,
                       s->ldb, s->batch, s->stride_b);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&made->b, in, s->transpose_a ? s->K : s->M, s->transpose_a ? s->M : s->K,
                       s->lda, s->batch, s->stride_a);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&made->c, out, s->M, s->N, s->ldc, s->batch, s->stride_c);
  return code;
}

cublasStatus_t prefer(const struct plm_cuda *cuda, cublasLtMatmulPreference_t preference,
                      const struct plm_cuda_algorithm *algorithm)
{
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  const size_t workspace = cuda->products->workspace_bytes;
  const uint32_t schemes = algorithm->shape.alike ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                  : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint32_t alignment = (uint32_t)algorithm->alignment;
  cublasStatus_t code = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  for (cublasLtMatmulPreferenceAttributes_t attribute : alignments)
    if (code == CUBLAS_STATUS_SUCCESS)
      code =
          cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  return code;
}

/* Whether an algorithm reduces as the preference demands; its words may come from a file. An
 * algorithm without one of these attributes has no choice of it. */
bool reduces_rightly(const cublasLtMatmulAlgo_t *chosen, bool alike)
{
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  int32_t parts = 1;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(chosen, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                       sizeof scheme, &written);
  cublasLtMatmulAlgoConfigGetAttribute(chosen, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                       sizeof parts, &written);
  if (alike) return scheme == CUBLASLT_REDUCTION_SCHEME_NONE && (parts == 0 || parts == 1);
  return scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
         scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/* The library's choices for a product, its best guess first, at most CANDIDATES. */
cublasStatus_t candidates(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm,
                          cublasLtMatmulAlgo_t *algorithms, int *count)
{
  const struct described *made = described_of(algorithm);
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int total = 0;
  *count = 0;
  cublasStatus_t code = cublasLtMatmulPreferenceCreate(&preference);
  if (code != CUBLAS_STATUS_SUCCESS) return code;
  code = prefer(cuda, preference, algorithm);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulAlgoGetHeuristic(cuda->products->handle, made->operation, made->a, made->b,
                                          made->c, made->c, preference, CANDIDATES, found, &total);
  cublasLtMatmulPreferenceDestroy(preference);
  for (int i = 0; code == CUBLAS_STATUS_SUCCESS && i < total; i++)
    if (found[i].state == CUBLAS_STATUS_SUCCESS &&
        reduces_rightly(&found[i].algo, algorithm->shape.alike))
      algorithms[(*count)++] = found[i].algo;
  if (code == CUBLAS_STATUS_SUCCESS && *count == 0) code = CUBLAS_STATUS_NOT_SUPPORTED;
  return code;
}

void keep(struct plm_cuda_algorithm *algorithm, const cublasLtMatmulAlgo_t *chosen)
{
  memcpy(algorithm->words, chosen, sizeof algorithm->words);
}

cublasStatus_t run(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm,
                   const cublasLtMatmulAlgo_t *chosen, const struct plm_cuda_operands *o)
{
  const struct described *made = described_of(algorithm);
  const bool add = algorithm->shape.add;
  return cublasLtMatmul(cuda->products->handle, made->operation, &o->alpha, o->b, made->a, o->a,
                        made->b, &o->beta, add ? o->addend : o->c, made->c, o->c, made->c, chosen,
                        cuda->products->workspace, cuda->products->workspace_bytes, cuda->stream);
}

/* Milliseconds of a run: the median over `times` rounds of `runs` runs. Negative if it fails. */
template <class Run> float time_of(struct plm_cuda *cuda, int times, int runs, Run once)
{
  cudaEvent_t *events = cuda->products->events;
  float taken[TIMES];
  cudaEventRecord(events[0], cuda->stream);
  for (int i = 0; i < times; i++) {
    for (int j = 0; j < runs; j++)
      if (!once()) return -1;
    cudaEventRecord(events[i + 1], cuda->stream);
  }
  if (cudaEventSynchronize(events[times]) != cudaSuccess) return -1;
  for (int i = 0; i < times; i++) {
    float ms = 0;
    int at = i;
    if (cudaEventElapsedTime(&ms, events[i], events[i + 1]) != cudaSuccess) return -1;
    for (; at > 0 && taken[at - 1] > ms; at--) taken[at] = taken[at - 1];
    taken[at] = ms;
  }
  return taken[times / 2] / (float)runs;
}

/* A card at rest has low clocks, and raises them during its first milliseconds of work. Whatever
 * was measured first would seem slow. So this makes the card work before a measurement. */
template <class Run> void spin(struct plm_cuda *cuda, Run once)
{
  float spent_ms = 0;
  for (int i = 0, runs = 1; i < SPINS_MAX && spent_ms < SPIN_MS; i++) {
    const float took_ms = time_of(cuda, 1, runs, once);
    if (took_ms < 0) return; /* the measurement will find it as well */
    spent_ms += (float)runs * took_ms;
    if (runs < SPIN_RUNS_MAX) runs *= 2;
  }
}

/* Keeps the earliest of the library's proposals that is as good as the best, so that noise changes
 * the choice as rarely as possible. */
bool choose(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
            const struct plm_cuda_operands *o)
{
  cublasLtMatmulAlgo_t algorithms[CANDIDATES];
  float taken[CANDIDATES], best = INFINITY;
  int count = 0;
  if (candidates(cuda, algorithm, algorithms, &count) != CUBLAS_STATUS_SUCCESS) return false;
  for (int i = 0; i < count; i++) {
    const auto once = [&] {
      return run(cuda, algorithm, &algorithms[i], o) == CUBLAS_STATUS_SUCCESS;
    };
    if (i == 0) spin(cuda, once);
    taken[i] = time_of(cuda, 1, 1, once); /* loads the kernel and warms up */
    if (taken[i] >= 0) taken[i] = time_of(cuda, 1, 1, once);
    if (taken[i] >= 0 && taken[i] <= HOPELESS * best) taken[i] = time_of(cuda, TIMES, RUNS, once);
    if (taken[i] >= 0 && taken[i] < best) best = taken[i];
  }
  for (int i = 0; i < count; i++)
    if (taken[i] >= 0 && taken[i] <= AS_GOOD * best) {
      keep(algorithm, &algorithms[i]);
      return true;
    }
  return false;
}

/* The bytes from the first to the last element of C. */
size_t bytes_of_c(const struct plm_cuda *cuda, const struct plm_cuda_shape *s)
{
  const int64_t span = (s->batch - 1) * s->stride_c + (s->M - 1) * s->ldc + s->N;
  return (size_t)span * (s->float_c ? sizeof(float) : cuda->ops.act_bytes);
}

} // namespace

/* ---- algorithms ---- */

void plm_cuda_library_name(const struct plm_cuda *cuda, char name[128])
{
  snprintf(name, 128, "cublasLt %zu, %s", cublasLtGetVersion(), cuda->products->card);
}

plm_status plm_cuda_algorithm_make(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                   struct plm_error *error)
{
  struct described *made = static_cast<struct described *>(calloc(1, sizeof *made));
  algorithm->made = made;
  if (made == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const cublasStatus_t code = describe(made, &algorithm->shape, cuda->bf16);
  return code == CUBLAS_STATUS_SUCCESS ? PLM_OK
                                       : failed(error, code, "a product cannot be described");
}

void plm_cuda_algorithm_release(struct plm_cuda_algorithm *algorithm)
{
  struct described *made = static_cast<struct described *>(algorithm->made);
  if (made == nullptr) return;
  if (made->operation != nullptr) cublasLtMatmulDescDestroy(made->operation);
  if (made->a != nullptr) cublasLtMatrixLayoutDestroy(made->a);
  if (made->b != nullptr) cublasLtMatrixLayoutDestroy(made->b);
  if (made->c != nullptr) cublasLtMatrixLayoutDestroy(made->c);
  free(made);
  algorithm->made = nullptr;
}

plm_status plm_cuda_algorithm_propose(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                      struct plm_error *error)
{
  cublasLtMatmulAlgo_t algorithms[CANDIDATES];
  int count = 0;
  const cublasStatus_t code = candidates(cuda, algorithm, algorithms, &count);
  if (code != CUBLAS_STATUS_SUCCESS)
    return failed(error, code, "it has no algorithm for a product");
  keep(algorithm, &algorithms[0]);
  return PLM_OK;
}

/* A product whose addend is C itself writes elsewhere while it is measured: to the backend's
 * scratch, or to memory that is allocated for it. */
bool plm_cuda_algorithm_measure(struct plm_cuda *cuda, struct plm_cuda_algorithm *algorithm,
                                const struct plm_cuda_operands *operands)
{
  struct plm_cuda_operands o = *operands;
  void *taken = nullptr;
  if (cudaPeekAtLastError() != cudaSuccess) return false;
  if (algorithm->shape.add && o.c == o.addend) {
    const size_t bytes = bytes_of_c(cuda, &algorithm->shape);
    if (bytes > cuda->scratch_bytes && cudaMalloc(&taken, bytes) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    o.c = taken != nullptr ? taken : cuda->scratch;
  }
  const bool found = choose(cuda, algorithm, &o);
  if (taken != nullptr) cudaFree(taken);
  return found;
}

bool plm_cuda_choice_measure(struct plm_cuda *cuda, const struct plm_choice_shape *,
                             plm_choice_run run, const void *context, bool *second)
{
  float taken[2];
  int way = 0;
  const auto once = [&] {
    return run(cuda, context, way == 1) && cuda->error.status == PLM_OK &&
           cudaPeekAtLastError() == cudaSuccess;
  };
  for (; way < 2; way++) /* the library's own algorithm is measured in it */
    if (time_of(cuda, 1, 1, once) < 0) return false;
  way = 0;
  spin(cuda, once);
  for (; way < 2; way++) {
    taken[way] = time_of(cuda, TIMES, RUNS, once);
    if (taken[way] < 0) return false;
  }
  *second = taken[1] * AS_GOOD < taken[0];
  return true;
}

bool plm_cuda_algorithm_accepts(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm)
{
  const struct described *made = described_of(algorithm);
  cublasLtMatmulAlgo_t chosen;
  cublasLtMatmulHeuristicResult_t result = {};
  memcpy(&chosen, algorithm->words, sizeof chosen);
  return cublasLtMatmulAlgoCheck(cuda->products->handle, made->operation, made->a, made->b, made->c,
                                 made->c, &chosen, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= cuda->products->workspace_bytes &&
         reduces_rightly(&chosen, algorithm->shape.alike);
}

/* ---- products ---- */

plm_status plm_cuda_products_open(struct plm_cuda *cuda, struct plm_error *error)
{
  struct cudaDeviceProp properties;
  struct plm_cuda_products *products =
      static_cast<struct plm_cuda_products *>(calloc(1, sizeof *products));
  cuda->products = products;
  if (products == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  PLM_TRY(plm_cuda_algorithms_open(cuda, error));
  const cublasStatus_t code = cublasLtCreate(&products->handle);
  if (code != CUBLAS_STATUS_SUCCESS) return failed(error, code, "it cannot be opened");
  cudaError_t failure = cudaGetDeviceProperties(&properties, cuda->device);
  for (cudaEvent_t &event : products->events)
    if (failure == cudaSuccess) failure = cudaEventCreate(&event);
  if (failure != cudaSuccess)
    return plm_error_set(error, PLM_FAILURE, "CUDA: %s", cudaGetErrorString(failure));
  snprintf(products->card, sizeof products->card, "%.60s of %d multiprocessors", properties.name,
           properties.multiProcessorCount);
  products->workspace_bytes = plm_platform_scratch_bytes(PLM_CUDA_PRODUCTS_BYTES);
  return cuda->ops.allocate(&cuda->ops, products->workspace_bytes, &products->workspace, error);
}

void plm_cuda_products_close(struct plm_cuda *cuda)
{
  struct plm_cuda_products *products = cuda->products;
  plm_cuda_algorithms_close(cuda);
  if (products == nullptr) return;
  for (cudaEvent_t event : products->events)
    if (event != nullptr) cudaEventDestroy(event);
  if (products->workspace != nullptr) cuda->ops.release(&cuda->ops, products->workspace);
  if (products->handle != nullptr) cublasLtDestroy(products->handle);
  free(products);
}

plm_status plm_cuda_algorithm_run(struct plm_cuda *cuda, const struct plm_cuda_algorithm *algorithm,
                                  const struct plm_cuda_operands *operands, struct plm_error *error)
{
  cublasLtMatmulAlgo_t chosen;
  memcpy(&chosen, algorithm->words, sizeof chosen);
  const cublasStatus_t code = run(cuda, algorithm, &chosen, operands);
  return code == CUBLAS_STATUS_SUCCESS ? PLM_OK : failed(error, code, "a product failed");
}
