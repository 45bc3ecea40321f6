/* Checks whether the products for sm_90a compute on this device what the library and a pass over
 * its result compute, on a few shapes with tails. Two blocks compute the small ones, so that each
 * takes several tiles; of the others, one has more tiles than there are multiprocessors. Runs when
 * the first backend of a process opens. */
#include "kernels/cuda/products/relu2_products.cuh"
#include "kernels/cuda/sm90/check_sm90.cuh"

namespace
{

struct Shape {
  int64_t N, I, O;
};
const Shape shapes[] = {
    {1, 8, 8}, {200, 136, 328}, {450, 24, 264}, {3000, 520, 1288}, {512, 768, 2048}};
enum { SMALL = 3, BLOCKS = 2 };
/* The emulation has no time for the large ones. */
constexpr int SHAPES = PLM_EMULATED ? (int)SMALL : (int)(sizeof shapes / sizeof *shapes);

enum { X, DY, W, HIDDEN, GIVEN, OUT = GIVEN, DUP, BUFFERS };
struct Tensors {
  size_t count[BUFFERS];
  void *at[BUFFERS] = {};
};

/* Draws the inputs (hidden without signs) and fills the results with NaN. */
plm_status fill(struct plm_ops *ops, Tensors &t, const Shape &s, struct plm_error *error)
{
  const int64_t counts[BUFFERS] = {s.N * s.I, s.N * s.O, s.O * s.I,
                                   s.N * s.I, s.N * s.O, s.N * s.I};
  for (int i = 0; i < BUFFERS; i++) {
    t.count[i] = (size_t)counts[i];
    std::vector<uint16_t> values(t.count[i], 0xffff);
    if (i < GIVEN) plm_sm90_draw(values, (uint64_t)i);
    for (size_t j = 0; i == HIDDEN && j < values.size(); j++) values[j] &= 0x7fff;
    PLM_TRY(ops->allocate(ops, t.count[i] * 2, &t.at[i], error));
    ops->upload(ops, t.at[i], values.data(), t.count[i] * 2);
    PLM_TRY(ops->synchronize(ops, error)); /* before `values` goes away */
  }
  return PLM_OK;
}

plm_status compute(struct plm_cuda *cuda, enum plm_ways way, const Tensors &t, const Shape &s,
                   std::vector<uint16_t> results[2], struct plm_error *error)
{
  struct plm_ops *ops = &cuda->ops;
  cuda->relu2 = way;
  ops->linear_relu2_forward(ops, t.at[OUT], t.at[X], t.at[W], s.N, s.I, s.O);
  ops->linear_relu2_backward_input(ops, t.at[DUP], t.at[DY], t.at[W], t.at[HIDDEN], s.N, s.I, s.O);
  PLM_TRY(plm_sm90_settle(cuda, error));
  for (int i = 0; i < 2; i++) {
    results[i].resize(t.count[OUT + i]);
    ops->download(ops, results[i].data(), t.at[OUT + i], results[i].size() * 2);
  }
  return plm_sm90_settle(cuda, error);
}

plm_status check_shape(struct plm_cuda *cuda, const Shape &shape, Tensors &t,
                       struct plm_error *error)
{
  static const char *const names[] = {"relu2 of a product", "the gradient through relu2"};
  std::vector<uint16_t> fused[2], library[2];
  PLM_TRY(fill(&cuda->ops, t, shape, error));
  PLM_TRY(compute(cuda, PLM_WAYS_SECOND, t, shape, fused, error));
  PLM_TRY(compute(cuda, PLM_WAYS_FIRST, t, shape, library, error));
  for (int i = 0; i < 2; i++) {
    if (!plm_sm90_close(fused[i], library[i]))
      return plm_error_set(error, PLM_CORRUPT, "%s differs from the library's", names[i]);
  }
  return PLM_OK;
}

} // namespace

plm_status plm_cuda_product_sm90_check(struct plm_cuda *cuda, struct plm_error *error)
{
  plm_status status = PLM_OK;
  const enum plm_ways chosen = cuda->relu2;
  const int multiprocessors = cuda->multiprocessors;
  for (int i = 0; i < SHAPES; i++) {
    const Shape &shape = shapes[i];
    Tensors t;
    cuda->multiprocessors = i < SMALL ? min(multiprocessors, (int)BLOCKS) : multiprocessors;
    status = check_shape(cuda, shape, t, error);
    if (status == PLM_TIMEOUT) break; /* a release would wait forever */
    for (void *buffer : t.at) {
      if (buffer != nullptr) cuda->ops.release(&cuda->ops, buffer);
    }
    if (status != PLM_OK) {
      plm_error_where(error, "%lld rows of %lld to %lld", (long long)shape.N, (long long)shape.I,
                      (long long)shape.O);
      break;
    }
  }
  cuda->relu2 = chosen;
  cuda->multiprocessors = multiprocessors;
  return status;
}
