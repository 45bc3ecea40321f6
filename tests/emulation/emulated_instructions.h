/* The emulation's side of kernels/cuda/device/instructions.cuh. */
#ifndef PLM_TESTS_EMULATION_EMULATED_INSTRUCTIONS_H
#define PLM_TESTS_EMULATION_EMULATED_INSTRUCTIONS_H

static inline void mma_bf16(float d[4], const unsigned a[4], const unsigned b[2])
{
  const uint64_t words[] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const plm::emulation::Lanes &lanes =
      plm::emulation::warp_compute("mma.m16n8k16", words, 6, plm::emulation::multiply_fragments);
  const int lane = plm::emulation::lane();
  for (int i = 0; i < 4; i++)
    d[i] = (float)((double)d[i] + plm::emulation::from_word<double>(lanes[lane][i]));
}

/* Each lane brings its row as it is when the lane comes here: a row that another lane writes
 * without a __syncwarp in between is brought as it was before. */
static inline void ldmatrix_emulated(unsigned r[4], const void *row, bool transposed)
{
  if ((uintptr_t)row % 16 != 0) plm::emulation::stop("ldmatrix of a row that is not aligned");
  uint64_t words[2];
  memcpy(words, row, sizeof words);
  const plm::emulation::Lanes &lanes = plm::emulation::warp_exchange("ldmatrix", words, 2);
  const int lane = plm::emulation::lane(), group = lane / 4, pair = lane % 4;
  for (int m = 0; m < 4; m++) {
    r[m] = 0;
    for (int i = 0; i < 2; i++) {
      const int from = transposed ? 2 * pair + i : group, at = transposed ? group : 2 * pair + i;
      const uint64_t element = lanes[m * 8 + from][at / 4] >> at % 4 * 16 & 0xffff;
      r[m] |= (unsigned)element << 16 * i;
    }
  }
}

static inline void load_matrices(unsigned r[4], const void *row)
{
  ldmatrix_emulated(r, row, false);
}

static inline void load_matrices_transposed(unsigned r[4], const void *row)
{
  ldmatrix_emulated(r, row, true);
}

static inline void copy_async(void *shared, const void *global, bool valid)
{
  plm::emulation::copy_later(shared, global, 16, valid ? 16 : 0);
}

static inline void copy_async_commit()
{
  plm::emulation::copy_commit();
}

template <int LEFT> static inline void copy_async_wait()
{
  plm::emulation::copy_wait(LEFT);
}

static inline uint4 load_now(const void *global)
{
  return *static_cast<const uint4 *>(global);
}

static inline float exp2_fast(float x)
{
  return exp2f(x);
}

/* These are .aligned: all lanes execute the same one, at the same place of the source. */
#define mma_bf16(d, a, b) (plm::emulation::at_line(__LINE__), mma_bf16(d, a, b))
#define load_matrices(r, row) (plm::emulation::at_line(__LINE__), load_matrices(r, row))
#define load_matrices_transposed(r, row) \
  (plm::emulation::at_line(__LINE__), load_matrices_transposed(r, row))

#endif
