/* cuBLASLt on the CPU, as far as kernels/cuda calls it: plain loops behind the real header.
 * Products are column-major, as the library's are. Where the library leaves something undefined or
 * refuses it, a call fails or the process ends: layouts that do not fit the product, results that
 * overlap operands, operands that are less aligned than the heuristic was told, an algorithm of
 * another product, a workspace that is too small.
 *
 * PLM_EMULATED_CUBLASLT in the environment plants a mistake of the caller in every product, as if
 * it were in the caller's source: see `mistake`.
 *
 * An algorithm's words are MAGIC, the scheme in which parts of the sum are added, their number, a
 * number of the product, and the alignment in bytes. */
#include <vector>

#include "tests/emulation/cublaslt/cublaslt.h"

using plm::emulation::stop;

namespace
{

enum { WORD_MAGIC, WORD_SCHEME, WORD_PARTS, WORD_PRODUCT, WORD_ALIGNMENT };
enum { MOST_PARTS = 4, MOST_ALIGNMENT = 16 };
constexpr uint64_t MAGIC = 0x6c7463756c626d70;
int live;

struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch;
  int64_t stride;
};
struct Operation {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a, b;
};
struct Preference {
  size_t workspace;
  uint32_t schemes, alignment[4];
};

template <class T, class Opaque> T &as(Opaque *opaque)
{
  static_assert(sizeof(T) <= sizeof(Opaque), "fits the header's opaque type");
  return *reinterpret_cast<T *>(opaque);
}

template <class T, class Opaque> cublasStatus_t make(Opaque **made, const T &value)
{
  *made = new Opaque();
  as<T>(*made) = value;
  live++;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Opaque> cublasStatus_t unmake(Opaque *made)
{
  delete made;
  live--;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t copy_attribute(T &to, const void *from, size_t bytes)
{
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t bytes_of(cudaDataType type)
{
  return type == CUDA_R_16BF ? 2 : 4;
}

/* Whether the caller makes this mistake. */
bool mistake(const char *name)
{
  static const char *const said = getenv("PLM_EMULATED_CUBLASLT");
  return said != nullptr && strcmp(said, name) == 0;
}

/* D (m, n) = alpha op(A) op(B) + beta C */
struct Problem {
  Operation operation;
  Layout a, b, c, d;
  uint64_t m, n, k;
  Problem(cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_,
          cublasLtMatrixLayout_t c_, cublasLtMatrixLayout_t d_)
      : operation(as<Operation>(o)), a(as<Layout>(a_)), b(as<Layout>(b_)), c(as<Layout>(c_)),
        d(as<Layout>(d_)), m(d.rows), n(d.columns),
        k(operation.a == CUBLAS_OP_N ? a.columns : a.rows)
  {
  }
  static bool holds(const Layout &x, uint64_t rows, uint64_t columns)
  {
    return x.rows == rows && x.columns == columns && x.ld >= (int64_t)rows;
  }
  bool fits() const
  {
    const bool a_plain = operation.a == CUBLAS_OP_N, b_plain = operation.b == CUBLAS_OP_N;
    return operation.compute == CUBLAS_COMPUTE_32F && operation.scale == CUDA_R_32F && m > 0 &&
           n > 0 && k > 0 && holds(a, a_plain ? m : k, a_plain ? k : m) &&
           holds(b, b_plain ? k : n, b_plain ? n : k) && holds(c, m, n) && holds(d, m, n) &&
           a.type == b.type && c.type == d.type && (c.type == a.type || c.type == CUDA_R_32F) &&
           a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
  }
  uint64_t number() const
  {
    uint64_t h = 0;
    for (const uint64_t x : {m, n, k, (uint64_t)a.type, (uint64_t)d.type, (uint64_t)operation.a,
                             (uint64_t)operation.b})
      h = (h ^ x) * 0x9e3779b97f4a7c15u + 1;
    return h;
  }
  size_t workspace(uint64_t parts) const
  {
    return parts > 1 ? parts * m * n * (uint64_t)d.batch * sizeof(float) : 0;
  }
};

/* The bytes from the first to the last element. */
size_t span(const Layout &x)
{
  const int64_t elements = (x.batch - 1) * x.stride + (int64_t)(x.columns - 1) * x.ld;
  return ((size_t)elements + x.rows) * bytes_of(x.type);
}

bool overlap(const void *x, size_t x_bytes, const void *y, size_t y_bytes)
{
  const char *p = static_cast<const char *>(x), *q = static_cast<const char *>(y);
  return p < q + y_bytes && q < p + x_bytes;
}

float load(const void *base, const Layout &x, int64_t batch, uint64_t row, uint64_t column)
{
  const int64_t at = batch * x.stride + (int64_t)column * x.ld + (int64_t)row;
  if (x.type == CUDA_R_32F) return static_cast<const float *>(base)[at];
  return to_float(static_cast<const plm_bf16 *>(base)[at]);
}

void store(void *base, const Layout &x, int64_t batch, uint64_t row, uint64_t column, float value)
{
  const int64_t at = batch * x.stride + (int64_t)column * x.ld + (int64_t)row;
  if (x.type == CUDA_R_32F)
    static_cast<float *>(base)[at] = value;
  else
    static_cast<plm_bf16 *>(base)[at] = from_float<plm_bf16>(value);
}

struct Call {
  Problem p;
  float alpha, beta;
  const void *a, *b, *c;
  void *d;
  uint64_t parts;
};

/* Element (i, j) of op(X), for i < rows and j < columns, at i * columns + j. */
std::vector<double> widened(const void *x, const Layout &layout, cublasOperation_t operation,
                            int64_t batch, uint64_t rows, uint64_t columns)
{
  std::vector<double> wide(rows * columns);
  const bool plain = operation == CUBLAS_OP_N;
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t j = 0; j < columns; j++)
      wide[i * columns + j] = (double)load(x, layout, batch, plain ? i : j, plain ? j : i);
  return wide;
}

/* sums[row] = a column of the product. a_km is op(A) with its rows side by side. */
void add_parts(const Call &call, float *sums, const double *a_km, const double *b_k, double *part)
{
  const uint64_t m = call.p.m, k = call.p.k;
  for (uint64_t row = 0; row < m; row++) sums[row] = 0;
  for (uint64_t i = 0; i < call.parts; i++) {
    for (uint64_t row = 0; row < m; row++) part[row] = 0;
    for (uint64_t at = i * k / call.parts; at < (i + 1) * k / call.parts; at++)
      for (uint64_t row = 0; row < m; row++) part[row] += a_km[at * m + row] * b_k[at];
    for (uint64_t row = 0; row < m; row++) sums[row] += (float)part[row];
  }
}

cublasOperation_t turned(cublasOperation_t operation)
{
  return operation == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;
}

void multiply(const Call &call)
{
  const Problem &p = call.p;
  std::vector<float> sums(p.m);
  std::vector<double> part(p.m);
  for (int64_t batch = 0; batch < p.d.batch; batch++) {
    const std::vector<double> a = widened(call.a, p.a, turned(p.operation.a), batch, p.k, p.m);
    const std::vector<double> b = widened(call.b, p.b, turned(p.operation.b), batch, p.n, p.k);
    for (uint64_t column = 0; column < p.n; column++) {
      add_parts(call, sums.data(), a.data(), b.data() + column * p.k, part.data());
      for (uint64_t row = 0; row < p.m; row++) {
        double value = (double)call.alpha * (double)sums[row];
        if (call.beta != 0)
          value += (double)call.beta * (double)load(call.c, p.c, batch, row, column);
        store(call.d, p.d, batch, row, column, (float)value);
      }
    }
  }
}

/* The algorithm of a number of parts. Its bits depend on nothing else. */
cublasLtMatmulAlgo_t algorithm_of(const Problem &p, uint64_t parts, uint64_t alignment)
{
  cublasLtMatmulAlgo_t made = {};
  made.data[WORD_MAGIC] = MAGIC;
  made.data[WORD_SCHEME] = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0;
  made.data[WORD_PARTS] = parts;
  made.data[WORD_PRODUCT] = p.number();
  made.data[WORD_ALIGNMENT] = alignment;
  return made;
}

bool is_for(const cublasLtMatmulAlgo_t *algorithm, const Problem &p)
{
  const uint64_t parts = algorithm->data[WORD_PARTS];
  if (mistake("foreign")) return false; /* an algorithm of another product */
  return algorithm->data[WORD_MAGIC] == MAGIC && algorithm->data[WORD_PRODUCT] == p.number() &&
         parts >= 1 && parts <= MOST_PARTS;
}

/* Mistakes in what the layouts and the operation say. */
void mistake_layouts(Problem &p)
{
  if (mistake("leading")) p.a.ld += 8; /* rows are further apart than they are */
  if (mistake("narrow")) p.b.ld = 1;   /* and nearer than their length */
  if (mistake("turned")) p.operation.b = turned(p.operation.b);
  if (mistake("count")) p.a.batch++;                   /* one operand has more matrices */
  if (mistake("factors")) p.a.stride = 0;              /* all matrices are the first one */
  if (mistake("results")) p.c.stride = p.d.stride = 1; /* the results of a batch overlap */
  if (mistake("addend")) p.c.ld += 8; /* the addend has another layout than the result */
}

void require_aligned(const cublasLtMatmulAlgo_t *algorithm, const void *x)
{
  const uint64_t alignment = mistake("alignment") ? 256 : algorithm->data[WORD_ALIGNMENT];
  if ((uintptr_t)x % alignment != 0)
    stop("cuBLASLt: an operand is not aligned to %d bytes", (int)alignment);
}

} // namespace

/* ---- descriptions ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  live++;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  delete reinterpret_cast<int *>(handle);
  live--;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion()
{
  return 1;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an error";
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
  if (type != CUDA_R_16BF && type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return make(layout, Layout{type, rows, columns, ld, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
  return unmake(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
  Layout &of = as<Layout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    return copy_attribute(of.batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    return copy_attribute(of.stride, value, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                        cudaDataType scale)
{
  return make(made, Operation{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made)
{
  return unmake(made);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
  Operation &of = as<Operation>(made);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return copy_attribute(of.a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return copy_attribute(of.b, value, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
  return make(made, Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made)
{
  return unmake(made);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
  Preference &of = as<Preference>(made);
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return copy_attribute(of.workspace, value, bytes);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return copy_attribute(of.schemes, value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return copy_attribute(of.alignment[0], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return copy_attribute(of.alignment[1], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return copy_attribute(of.alignment[2], value, bytes);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return copy_attribute(of.alignment[3], value, bytes);
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

/* ---- algorithms ---- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t found[], int *count)
{
  const Problem p(operation, a, b, c, d);
  const Preference &wanted = as<Preference>(preference);
  *count = 0;
  if (!p.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t alignment = MOST_ALIGNMENT;
  for (const uint32_t each : wanted.alignment) alignment = min(alignment, (uint64_t)each);
  const bool splits = (wanted.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  /* the first proposal depends on the size of the batch, as a library's may */
  const uint64_t first = splits ? (uint64_t)(p.d.batch - 1) % MOST_PARTS : 0;
  for (uint64_t i = 0; i < (splits ? MOST_PARTS : 1) && *count < most; i++) {
    const uint64_t parts = 1 + (first + i) % MOST_PARTS;
    if (p.workspace(parts) > wanted.workspace) continue;
    cublasLtMatmulHeuristicResult_t &result = found[(*count)++];
    result = {};
    result.algo = algorithm_of(p, parts, alignment);
    result.workspaceSize = p.workspace(parts);
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Like a real library, it need not take every algorithm for every batch. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
  const Problem p(operation, a, b, c, d);
  if (!p.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_for(algorithm, p) || p.d.batch == 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->algo = *algorithm;
  result->workspaceSize = p.workspace(algorithm->data[WORD_PARTS]);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
  const int word = attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? WORD_SCHEME : WORD_PARTS;
  const uint32_t of = (uint32_t)algorithm->data[word];
  if (word == WORD_PARTS && attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != sizeof of) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(value, &of, sizeof of);
  *written = sizeof of;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
  Problem p(operation, a_layout, b_layout, c_layout, d_layout);
  mistake_layouts(p);
  if (mistake("operand")) d = const_cast<void *>(b);
  if (mistake("elsewhere")) c = d; /* what is there is added instead */
  if (mistake("workspace")) workspace = nullptr;
  if (mistake("algorithm")) algorithm = nullptr;
  if (!p.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm == nullptr) stop("cuBLASLt: a product whose algorithm the library chooses itself");
  if (!is_for(algorithm, p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Call call = {
      p, *static_cast<const float *>(alpha), *static_cast<const float *>(beta), a, b, c,
      d, algorithm->data[WORD_PARTS]};
  if (p.workspace(call.parts) > workspace_bytes || workspace == nullptr)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  require_aligned(algorithm, a);
  require_aligned(algorithm, b);
  require_aligned(algorithm, c);
  require_aligned(algorithm, d);
  if (p.d.batch > 1 && p.d.stride < (int64_t)(p.n - 1) * p.d.ld + (int64_t)p.m)
    stop("cuBLASLt: the results of a batch overlap");
  if (overlap(d, span(p.d), a, span(p.a)) || overlap(d, span(p.d), b, span(p.b)))
    stop("cuBLASLt: a product writes to its own operand");
  if (call.beta != 0 && c != d && overlap(d, span(p.d), c, span(p.c)))
    stop("cuBLASLt: a product writes to a part of its addend");
  if (c == d && memcmp(&p.c, &p.d, sizeof p.c) != 0)
    stop("cuBLASLt: a product in place with two layouts");
  plm_enqueue(stream, [call] {
    const plm::emulation::Reach reach;
    multiply(call);
  });
  return CUBLAS_STATUS_SUCCESS;
}

extern "C" int plm_emulated_cublaslt_live(void)
{
  return live;
}
