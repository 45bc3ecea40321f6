/* The emulation's side of kernels/cuda/sm90/hopper.cuh. */
#ifndef PLM_TESTS_EMULATION_EMULATED_HOPPER_H
#define PLM_TESTS_EMULATION_EMULATED_HOPPER_H

static inline float reciprocal_fast(float x)
{
  return 1 / x;
}

static inline float root_fast(float x)
{
  return sqrtf(x);
}

static inline unsigned pack_bf16_positive(float low, float high)
{
  return pack_bf16(low < 0 ? 0 : low, high < 0 ? 0 : high);
}

static inline void store_matrices(void *row, const unsigned r[4])
{
  plm::emulation::matrices_store(row, r, false);
}

static inline void store_matrices_turned(void *row, const unsigned r[4])
{
  plm::emulation::matrices_store(row, r, true);
}

static inline void matrices_settle()
{
  plm::emulation::matrices_settle();
}

static inline void matrices_publish()
{
  plm::emulation::matrices_publish();
}

static inline void barrier_init(uint64_t *barrier, unsigned arrivals)
{
  plm::emulation::barrier_init(barrier, arrivals);
}

static inline void barrier_init_fence()
{
  plm::emulation::barrier_init_fence();
}

static inline void barrier_arrive(uint64_t *barrier)
{
  plm::emulation::barrier_arrive(barrier, 0);
}

static inline void barrier_expect(uint64_t *barrier, unsigned bytes)
{
  plm::emulation::barrier_arrive(barrier, bytes);
}

static inline void barrier_wait(uint64_t *barrier, unsigned parity)
{
  plm::emulation::barrier_wait(barrier, parity);
}

static inline void tile_load(void *tile, const plm_tile_map *map, uint64_t *barrier, int column,
                             int head, int row, int chunk)
{
  const int at[4] = {column, head, row, chunk};
  plm::emulation::tile_copy(tile, *map, barrier, at, 4);
}

static inline void tile_load(void *tile, const plm_tile_map *map, uint64_t *barrier, int column,
                             int row)
{
  const int at[4] = {column, row, 0, 0};
  plm::emulation::tile_copy(tile, *map, barrier, at, 2);
}

static inline void tile_map_prefetch(const plm_tile_map *map)
{
  (void)map;
}

static inline void named_sync(int name, int threads)
{
  plm::emulation::named_sync(name, threads);
}

static inline void named_arrive(int name, int threads)
{
  plm::emulation::named_arrive(name, threads);
}

template <int COUNT> static inline void registers_release()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
  plm::emulation::registers_change(false, COUNT);
}

template <int COUNT> static inline void registers_acquire()
{
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "setmaxnreg");
  plm::emulation::registers_change(true, COUNT);
}

static inline void products_fence()
{
  plm::emulation::product_fence();
}

static inline void products_commit()
{
  plm::emulation::product_commit();
}

template <int COUNT> static inline void products_hold(float (&d)[COUNT])
{
  (void)d;
}

template <int COUNT> static inline void products_hold(unsigned (&a)[COUNT])
{
  (void)a;
}

template <int LEFT> static inline void products_wait()
{
  plm::emulation::product_wait(LEFT);
}

/* It orders instructions; the emulation runs them as they are written. */
template <int COUNT> static inline void compute_now(const float (&value)[COUNT])
{
  (void)value;
}

template <int N, bool TURNED>
static inline void product_tiles(float (&d)[N / 2], unsigned a, unsigned b, bool accumulate)
{
  static_assert(N == 64 || N == 128 || N == 256, "widths that are written out");
  const uint64_t high = (uint64_t)PLM_DESCRIPTOR_HIGH << 32, a_descriptor = high | a;
  plm::emulation::product_begin({&a_descriptor, nullptr, high | b, d, N, TURNED, accumulate});
}

template <int N>
static inline void product_registers(float (&d)[N / 2], const unsigned *a, unsigned b)
{
  static_assert(N == 64 || N == 128, "widths that are written out");
  const uint64_t high = (uint64_t)PLM_DESCRIPTOR_HIGH << 32;
  plm::emulation::product_begin({nullptr, a, high | b, d, N, true, true});
}

/* These are .aligned: all lanes execute the same one, at the same place of the source. */
#define store_matrices(row, r) (plm::emulation::at_line(__LINE__), store_matrices(row, r))
#define named_sync(name, threads) (plm::emulation::at_line(__LINE__), named_sync(name, threads))
#define named_arrive(name, threads) (plm::emulation::at_line(__LINE__), named_arrive(name, threads))
#define products_fence() (plm::emulation::at_line(__LINE__), products_fence())
#define products_commit() (plm::emulation::at_line(__LINE__), products_commit())

#endif
