/* Computes each product with relu2 in one of its two ways. */
#include "kernels/cuda/products/relu2_products.cuh"

#include "kernels/cuda/products/kernel_choices.cuh"

namespace
{

struct both_ways {
  const struct plm_relu2_product *product;
  plm_relu2_library library;
};

bool run_way(struct plm_cuda *cuda, const void *context, bool second)
{
  const struct both_ways *ways = static_cast<const struct both_ways *>(context);
  if (second) return plm_cuda_product_sm90(cuda, ways->product);
  ways->library(cuda, ways->product);
  return true;
}

bool goes_fused(struct plm_cuda *cuda, const struct plm_relu2_product *p, plm_relu2_library library)
{
  if (cuda->relu2 == PLM_WAYS_FIRST || !plm_cuda_product_sm90_takes(cuda, p)) return false;
  const struct plm_choice_shape shape = {plm_relu2_is_backward(p) ? PLM_CHOICE_RELU2_BACKWARD
                                                                  : PLM_CHOICE_RELU2_FORWARD,
                                         {p->N, p->I, p->O}};
  const struct both_ways ways = {p, library};
  return plm_cuda_takes_second(cuda, &shape, run_way, &ways);
}

} // namespace

void plm_cuda_relu2_product(struct plm_cuda *cuda, const struct plm_relu2_product *p,
                            plm_relu2_library library)
{
  if (goes_fused(cuda, p, library) && plm_cuda_product_sm90(cuda, p)) return;
  library(cuda, p);
}
