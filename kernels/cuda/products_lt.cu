/* Products by cuBLASLt. A row-major C = A B is the column-major C^T = B^T A^T, so the operands are
 * handed over in the other order. A shape's plan (descriptors and algorithm) is made when it is met
 * first and kept. */
#include "kernels/cuda/products.cuh"

#ifndef PLM_EMULATE

#include <cublasLt.h>

#include <cstdlib>

struct plan {
  struct plm_cuda_shape shape;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c; /* of the column-major product */
  cublasLtMatmulAlgo_t algorithm;
};

enum { MAX_PLANS = 512, WORKSPACE_BYTES = 64 << 20 };

struct plm_cuda_products {
  cublasLtHandle_t handle;
  void *workspace;
  int count;
  struct plan plans[MAX_PLANS];
};

namespace
{

void fail(struct plm_cuda *cuda, cublasStatus_t code, const char *what)
{
  if (cuda->error.status != PLM_OK) return;
  plm_error_set(&cuda->error, PLM_FAILURE, "cuBLASLt: %s: %s", what, cublasGetStatusString(code));
}

bool same(const struct plm_cuda_shape *x, const struct plm_cuda_shape *y)
{
  return x->M == y->M && x->N == y->N && x->K == y->K && x->lda == y->lda && x->ldb == y->ldb &&
         x->ldc == y->ldc && x->transpose_a == y->transpose_a && x->transpose_b == y->transpose_b &&
         x->float_c == y->float_c && x->add == y->add && x->batch == y->batch &&
         x->stride_a == y->stride_a && x->stride_b == y->stride_b && x->stride_c == y->stride_c;
}

cublasStatus_t make_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int64_t rows,
                           int64_t columns, int64_t ld, int32_t batch, int64_t stride)
{
  /* row-major (rows, columns) is column-major (columns, rows) */
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

cublasStatus_t describe(struct plan *plan, bool narrow)
{
  const struct plm_cuda_shape *s = &plan->shape;
  const cudaDataType_t in = narrow ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t out = s->float_c ? CUDA_R_32F : in;
  const cublasOperation_t of_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  /* CUBLAS_COMPUTE_32F takes no TF32 for fp32 operands */
  cublasStatus_t code = cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &of_b,
                                          sizeof of_b);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &of_a,
                                          sizeof of_a);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&plan->a, in, s->transpose_b ? s->N : s->K, s->transpose_b ? s->K : s->N,
                       s->ldb, s->batch, s->stride_b);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&plan->b, in, s->transpose_a ? s->K : s->M, s->transpose_a ? s->M : s->K,
                       s->lda, s->batch, s->stride_a);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = make_layout(&plan->c, out, s->M, s->N, s->ldc, s->batch, s->stride_c);
  return code;
}

cublasStatus_t choose(struct plm_cuda_products *products, struct plan *plan)
{
  const size_t workspace = WORKSPACE_BYTES;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  cublasStatus_t code = cublasLtMatmulPreferenceCreate(&preference);
  if (code != CUBLAS_STATUS_SUCCESS) return code;
  code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace, sizeof workspace);
  if (code == CUBLAS_STATUS_SUCCESS)
    code = cublasLtMatmulAlgoGetHeuristic(products->handle, plan->operation, plan->a, plan->b,
                                          plan->c, plan->c, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (code == CUBLAS_STATUS_SUCCESS && count == 0) code = CUBLAS_STATUS_NOT_SUPPORTED;
  if (code == CUBLAS_STATUS_SUCCESS) plan->algorithm = found.algo;
  return code;
}

void release_plan(struct plan *plan)
{
  if (plan->operation != nullptr) cublasLtMatmulDescDestroy(plan->operation);
  if (plan->a != nullptr) cublasLtMatrixLayoutDestroy(plan->a);
  if (plan->b != nullptr) cublasLtMatrixLayoutDestroy(plan->b);
  if (plan->c != nullptr) cublasLtMatrixLayoutDestroy(plan->c);
}

struct plan *find_plan(struct plm_cuda *cuda, const struct plm_cuda_shape *shape)
{
  struct plm_cuda_products *products = cuda->products;
  for (int i = 0; i < products->count; i++)
    if (same(&products->plans[i].shape, shape)) return &products->plans[i];
  if (products->count == MAX_PLANS) {
    fail(cuda, CUBLAS_STATUS_ALLOC_FAILED, "too many shapes of products");
    return nullptr;
  }
  struct plan *plan = &products->plans[products->count];
  *plan = {};
  plan->shape = *shape;
  cublasStatus_t code = describe(plan, cuda->narrow);
  if (code == CUBLAS_STATUS_SUCCESS) code = choose(products, plan);
  if (code != CUBLAS_STATUS_SUCCESS) {
    release_plan(plan);
    fail(cuda, code, "a plan");
    return nullptr;
  }
  products->count++;
  return plan;
}

} // namespace

plm_status plm_cuda_products_open(struct plm_cuda *cuda, struct plm_error *error)
{
  cuda->products = static_cast<struct plm_cuda_products *>(calloc(1, sizeof *cuda->products));
  if (cuda->products == nullptr) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const cublasStatus_t code = cublasLtCreate(&cuda->products->handle);
  if (code != CUBLAS_STATUS_SUCCESS)
    return plm_error_set(error, PLM_FAILURE, "cuBLASLt: %s", cublasGetStatusString(code));
  return cuda->ops.allocate(&cuda->ops, WORKSPACE_BYTES, &cuda->products->workspace, error);
}

void plm_cuda_products_close(struct plm_cuda *cuda)
{
  struct plm_cuda_products *products = cuda->products;
  if (products == nullptr) return;
  for (int i = 0; i < products->count; i++) release_plan(&products->plans[i]);
  if (products->workspace != nullptr) cuda->ops.release(&cuda->ops, products->workspace);
  if (products->handle != nullptr) cublasLtDestroy(products->handle);
  free(products);
}

void plm_cuda_multiply(struct plm_cuda *cuda, const struct plm_cuda_shape *shape, void *c,
                       const void *a, const void *b, const void *addend)
{
  if (shape->M <= 0 || shape->N <= 0) return;
  const struct plan *plan = find_plan(cuda, shape);
  if (plan == nullptr) return;
  const float one = 1, beta = shape->add ? 1 : 0;
  const cublasStatus_t code =
      cublasLtMatmul(cuda->products->handle, plan->operation, &one, b, plan->a, a, plan->b, &beta,
                     shape->add ? addend : c, plan->c, c, plan->c, &plan->algorithm,
                     cuda->products->workspace, WORKSPACE_BYTES, cuda->stream);
  if (code != CUBLAS_STATUS_SUCCESS) fail(cuda, code, "a product");
}

#endif
