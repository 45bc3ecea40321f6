/* Interval masks against a dense reference that follows the definition: document ids are merged
 * level by level, each pair taking the larger, and each (query, key) is compared for each kind. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/model/masks.h"
#include "tests/support/harness/cmocka_all.h"

enum { MAX_DOCUMENTS = 4096, LONG = 1040 };

struct sample {
  struct plm_batch batch;
  uint32_t begin[9];
  struct plm_chunk_document documents[MAX_DOCUMENTS];
};

/* The document ids (-1 before the first document) of one chunk on a level, and which groups are
 * real. */
static void dense_level(const struct sample *sample, uint32_t chunk, int level, int32_t *ids,
                        uint8_t *real)
{
  const uint32_t L = sample->batch.max_length;
  for (uint32_t i = 0; i < L; i++) {
    ids[i] = -1;
    real[i] = 0;
  }
  for (uint32_t d = sample->begin[chunk]; d < sample->begin[chunk + 1]; d++)
    for (uint32_t i = sample->documents[d].start; i < L; i++) {
      ids[i] = (int32_t)d;
      real[i] = i < sample->documents[d].start + sample->documents[d].tokens;
    }
  for (int k = 0; k < level; k++)
    for (uint32_t i = 0; i < L >> (k + 1); i++) {
      ids[i] = ids[2 * i] > ids[2 * i + 1] ? ids[2 * i] : ids[2 * i + 1];
      real[i] = real[2 * i] || real[2 * i + 1];
    }
}

static int dense_allowed(const int32_t *ids, const uint8_t *real, unsigned kinds, int32_t window,
                         int32_t block, int32_t q, int32_t k)
{
  if (!real[q] || !real[k] || ids[q] != ids[k]) return 0;
  if ((kinds & PLM_ATTENTION_CAUSAL) && k > q) return 0;
  if ((kinds & PLM_ATTENTION_LOCAL) && !(k > q - window && k < q + window)) return 0;
  if ((kinds & PLM_ATTENTION_BLOCK) && k / block != q / block) return 0;
  return 1;
}

/* Checks the ranges of the tiles against the dense mask. */
static void check_tiles(const struct plm_interval_mask *mask, const uint8_t *allowed, int32_t chunk)
{
  const int32_t L = mask->L, tiles = (L + PLM_MASK_TILE - 1) / PLM_MASK_TILE;
  for (int32_t t = 0; t < tiles; t++) {
    const int32_t from = t * PLM_MASK_TILE;
    const int32_t to = from + PLM_MASK_TILE < L ? from + PLM_MASK_TILE : L;
    const int32_t at = chunk * tiles + t;
    for (int32_t k = 0; k < L; k++) {
      int any = 0, all = 1, any_query = 0;
      for (int32_t q = from; q < to; q++) {
        any |= allowed[q * L + k];
        all &= allowed[q * L + k];
        any_query |= allowed[k * L + q];
      }
      const int inside = k >= mask->tile_key_begin[at] && k < mask->tile_key_end[at];
      const int full = k >= mask->tile_full_begin[at] && k < mask->tile_full_end[at];
      assert_true(!any || inside); /* nothing allowed is skipped */
      assert_int_equal(full, all); /* nothing forbidden is taken without a comparison */
      assert_true(!any_query || (k >= mask->tile_query_begin[at] && k < mask->tile_query_end[at]));
    }
    /* The ranges are tight: some query of the tile is allowed each end. */
    int first = 0, last = 0, first_query = 0, last_query = 0;
    for (int32_t q = from; q < to; q++) {
      if (mask->tile_key_begin[at] == mask->tile_key_end[at]) continue;
      first |= allowed[q * L + mask->tile_key_begin[at]];
      last |= allowed[q * L + mask->tile_key_end[at] - 1];
      first_query |= allowed[mask->tile_query_begin[at] * L + q];
      last_query |= allowed[(mask->tile_query_end[at] - 1) * L + q];
    }
    const int touched = mask->tile_key_begin[at] != mask->tile_key_end[at];
    assert_int_equal(first, touched);
    assert_int_equal(last, touched);
    assert_int_equal(first_query, touched);
    assert_int_equal(last_query, touched);
  }
}

static void check_mask(const struct sample *sample, int level, unsigned kinds, uint32_t window,
                       uint32_t block)
{
  const int32_t B = (int32_t)sample->batch.chunks;
  const int32_t L = (int32_t)(sample->batch.max_length >> level);
  int32_t *values = malloc(plm_mask_values(B, L) * sizeof *values);
  int32_t *ids = malloc(sample->batch.max_length * sizeof *ids);
  uint8_t *real = malloc(sample->batch.max_length), *allowed = malloc((size_t)L * (size_t)L);
  struct plm_interval_mask mask;
  const uint64_t pairs =
      plm_mask_build(&sample->batch, level, kinds, window, block, values, values, &mask);
  uint64_t expected = 0;
  assert_int_equal(mask.B, B);
  assert_int_equal(mask.L, L);
  for (int32_t c = 0; c < B; c++) {
    dense_level(sample, (uint32_t)c, level, ids, real);
    for (int32_t q = 0; q < L; q++) {
      const int32_t key_begin = mask.key_begin[c * L + q], key_end = mask.key_end[c * L + q];
      if (key_begin == key_end) assert_int_equal(key_begin, 0);
      for (int32_t k = 0; k < L; k++) {
        const int want =
            dense_allowed(ids, real, kinds, (int32_t)window, block ? (int32_t)block : 1, q, k);
        allowed[q * L + k] = (uint8_t)want;
        expected += (uint64_t)want;
        assert_int_equal(k >= key_begin && k < key_end, want);
        /* the interval of the key's queries is exact, not only a superset */
        assert_int_equal(q >= mask.query_begin[c * L + k] && q < mask.query_end[c * L + k], want);
      }
    }
    check_tiles(&mask, allowed, c);
  }
  assert_int_equal(pairs, expected);
  free(values);
  free(ids);
  free(real);
  free(allowed);
}

static void begin_sample(struct sample *sample, uint32_t chunks, uint32_t length)
{
  memset(sample, 0, sizeof *sample);
  sample->batch = (struct plm_batch){.chunks = chunks,
                                     .max_length = length,
                                     .document_begin = sample->begin,
                                     .documents = sample->documents};
}

static void add_document(struct sample *sample, uint32_t chunk, uint32_t start, uint32_t tokens)
{
  const uint32_t d = sample->begin[chunk + 1]++;
  for (uint32_t c = chunk + 2; c <= sample->batch.chunks; c++) sample->begin[c]++;
  sample->documents[d] = (struct plm_chunk_document){.start = start, .tokens = tokens};
}

/* Random documents that start at multiples of alignment, with gaps of padding and sometimes padding
 * before the first. */
static void random_sample(struct sample *sample, uint64_t seed, uint32_t chunks, uint32_t length,
                          uint32_t alignment, uint32_t longest)
{
  begin_sample(sample, chunks, length);
  for (uint32_t c = 0; c < chunks; c++) {
    uint32_t at = 0;
    for (uint32_t d = 0;; d++) {
      const struct plm_philox_words draw = plm_philox(seed, d, c, 90);
      if (draw.w[0] % 4 == 0) at += draw.w[1] % 5; /* a gap */
      at = (at + alignment - 1) / alignment * alignment;
      if (at >= length) break;
      uint32_t tokens = 1 + draw.w[2] % longest;
      if (tokens > length - at) tokens = length - at;
      add_document(sample, c, at, tokens);
      at += tokens;
    }
  }
}

static void all_kinds(const struct sample *sample, int level)
{
  static const uint32_t windows[] = {1, 2, 7, 64, 1000}, blocks[] = {1, 3, 16, 50};
  for (unsigned kinds = 1; kinds < 16; kinds += 2) { /* document is always included */
    const size_t window_count = kinds & PLM_ATTENTION_LOCAL ? 5 : 1;
    const size_t block_count = kinds & PLM_ATTENTION_BLOCK ? 4 : 1;
    for (size_t w = 0; w < window_count; w++)
      for (size_t b = 0; b < block_count; b++)
        check_mask(sample, level, kinds, windows[w], kinds & PLM_ATTENTION_BLOCK ? blocks[b] : 0);
  }
}

static struct sample sample_; /* too large for a stack */

static void every_conjunction_equals_the_dense_mask(void **state)
{
  (void)state;
  for (uint64_t seed = 0; seed < 4; seed++) {
    const uint32_t longest[] = {3, 20, 60, 200};
    random_sample(&sample_, seed, 2, 128, 1, longest[seed]);
    all_kinds(&sample_, 0);
  }
}

static void merged_levels_equal_the_dense_mask(void **state)
{
  (void)state;
  for (uint64_t seed = 10; seed < 14; seed++) {
    for (uint32_t alignment = 1; alignment <= 8; alignment *= 8) {
      random_sample(&sample_, seed, 2, 256, alignment, seed % 2 ? 9 : 70);
      for (int level = 1; level <= 3; level++) all_kinds(&sample_, level);
    }
  }
}

static void lengths_need_not_be_powers_of_two(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {1, 2, 63, 64, 65, 127, 131};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    random_sample(&sample_, 20 + i, 1, lengths[i], 1, 40);
    for (unsigned kinds = 1; kinds < 16; kinds += 2) check_mask(&sample_, 0, kinds, 9, 17);
  }
}

/* Chunks as long as those that are trained on: more tiles than one vector, and windows that end in
 * the middle of the chunk. */
static void long_chunks_equal_the_dense_mask(void **state)
{
  (void)state;
  static const uint32_t windows[] = {128, 511, 512, 513, 1024};
  random_sample(&sample_, 30, 1, LONG, 1, LONG);
  for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
    check_mask(&sample_, 0, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, windows[w], 0);
  for (unsigned kinds = 1; kinds < 16; kinds += 2) check_mask(&sample_, 0, kinds, 300, 250);
  random_sample(&sample_, 31, 1, LONG, 4, 700);
  check_mask(&sample_, 2, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 70, 0);
}

static void one_document_fills_the_chunk(void **state)
{
  (void)state;
  begin_sample(&sample_, 1, 200);
  add_document(&sample_, 0, 0, 200);
  all_kinds(&sample_, 0);
}

static void hundreds_of_documents(void **state)
{
  (void)state;
  begin_sample(&sample_, 2, 300);
  for (uint32_t i = 0; i < 300; i++) add_document(&sample_, 0, i, 1);
  for (uint32_t i = 0; i < 100; i++) add_document(&sample_, 1, 3 * i, 2);
  for (unsigned kinds = 1; kinds < 16; kinds += 2) check_mask(&sample_, 0, kinds, 2, 5);
  check_mask(&sample_, 2, PLM_ATTENTION_DOCUMENT, 1, 0);
}

static void padding_alone_allows_nothing(void **state)
{
  (void)state;
  begin_sample(&sample_, 3, 96);
  add_document(&sample_, 1, 0, 96); /* between two empty chunks */
  all_kinds(&sample_, 0);
  all_kinds(&sample_, 2);
}

/* A document boundary in a later block. If boundaries were taken modulo the block, every block
 * would have those of the first. */
static void a_document_boundary_inside_the_second_block(void **state)
{
  (void)state;
  begin_sample(&sample_, 1, 64);
  add_document(&sample_, 0, 0, 21);
  add_document(&sample_, 0, 21, 40);
  int32_t *values = malloc(plm_mask_values(1, 64) * sizeof *values);
  struct plm_interval_mask mask;
  const unsigned kinds = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK;
  plm_mask_build(&sample_.batch, 0, kinds, 1, 16, values, values, &mask);
  static const int32_t expected[][3] = {/* query, begin, end */
                                        {0, 0, 16},   {15, 0, 16},  {16, 16, 21}, {20, 16, 21},
                                        {21, 21, 32}, {31, 21, 32}, {32, 32, 48}, {48, 48, 61},
                                        {60, 48, 61}, {61, 0, 0}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    assert_int_equal(mask.key_begin[expected[i][0]], expected[i][1]);
    assert_int_equal(mask.key_end[expected[i][0]], expected[i][2]);
  }
  free(values);
  check_mask(&sample_, 0, kinds, 1, 16);
}

/* With alignment 1, a pair across a boundary belongs to the later document, and a document that
 * shares its only pair with the next one disappears from the merged level. */
static void a_merged_pair_takes_the_larger_document(void **state)
{
  (void)state;
  begin_sample(&sample_, 1, 8);
  add_document(&sample_, 0, 0, 3);
  add_document(&sample_, 0, 3, 3);
  add_document(&sample_, 0, 6, 1);
  add_document(&sample_, 0, 7, 1);
  int32_t *values = malloc(plm_mask_values(1, 4) * sizeof *values);
  struct plm_interval_mask mask;
  plm_mask_build(&sample_.batch, 1, PLM_ATTENTION_DOCUMENT, 1, 0, values, values, &mask);
  static const int32_t begin[] = {0, 1, 1, 3}, end[] = {1, 3, 3, 4};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(mask.key_begin[i], begin[i]);
    assert_int_equal(mask.key_end[i], end[i]);
  }
  free(values);
}

/* ---- all masks of a configuration, in host memory ---- */
static plm_status host_allocate(struct plm_ops *ops, size_t bytes, void **buffer,
                                struct plm_error *error)
{
  (void)ops;
  *buffer = malloc(bytes);
  return *buffer != NULL ? PLM_OK : plm_error_set(error, PLM_NO_MEMORY, "no memory");
}

static void host_release(struct plm_ops *ops, void *buffer)
{
  (void)ops;
  free(buffer);
}

static void host_upload(struct plm_ops *ops, void *device, const void *host, size_t bytes)
{
  (void)ops;
  memcpy(device, host, bytes);
}

static void the_set_holds_a_mask_for_each_level_and_entry(void **state)
{
  (void)state;
  struct plm_ops ops = {.allocate = host_allocate, .release = host_release, .upload = host_upload};
  const struct plm_model_config config = {.architecture = PLM_PATCH_UNET,
                                          .hidden_size = 64,
                                          .num_attention_heads = 2,
                                          .num_unet_layers = 6,
                                          .num_extra_layers = 1,
                                          .expansion_ratio = 2.0,
                                          .pattern = {PLM_ATTENTION_LOCAL, PLM_ATTENTION_DOCUMENT,
                                                      PLM_ATTENTION_LOCAL,
                                                      PLM_ATTENTION_CAUSAL | PLM_ATTENTION_BLOCK},
                                          .pattern_count = 4,
                                          .block = 24,
                                          .max_length = 256,
                                          .vocab_size = 33};
  struct plm_masks *masks;
  struct plm_error error = {0};
  assert_int_equal(plm_masks_open(&config, &ops, 4, &masks, &error), PLM_OK);
  /* full, then a smaller batch of shorter chunks in the same buffers */
  for (uint32_t round = 0; round < 2; round++) {
    random_sample(&sample_, 30 + round, round ? 2 : 4, round ? 64 : 256, 4, 50);
    const uint32_t window = round ? 5 : 16;
    plm_masks_fill(masks, &sample_.batch, window);
    for (int level = 0; level < 3; level++)
      for (int entry = 0; entry < 4; entry++) {
        const struct plm_interval_mask *mask = plm_masks_at(masks, level, entry);
        const int32_t L = (int32_t)(sample_.batch.max_length >> level);
        const int32_t B = (int32_t)sample_.batch.chunks;
        int32_t *values = malloc(plm_mask_values(B, L) * sizeof *values);
        const uint64_t pairs =
            plm_mask_build(&sample_.batch, level, config.pattern[entry] | PLM_ATTENTION_DOCUMENT,
                           window, config.block, values, values, NULL);
        assert_int_equal(plm_masks_pairs(masks, level, entry), pairs);
        assert_int_equal(plm_masks_pairs_of(masks, mask), pairs);
        assert_int_equal(mask->B, B);
        assert_int_equal(mask->L, L);
        assert_memory_equal(mask->key_begin, values, plm_mask_values(B, L) * sizeof *values);
        free(values);
      }
    assert_ptr_equal(plm_masks_at(masks, 1, 0), plm_masks_at(masks, 1, 2));
    const struct plm_interval_mask foreign = *plm_masks_at(masks, 0, 0);
    assert_int_equal(plm_masks_pairs_of(masks, &foreign), 0);
  }
  plm_masks_close(masks);
}

static void limits_are_errors(void **state)
{
  (void)state;
  struct plm_ops ops = {.allocate = host_allocate, .release = host_release, .upload = host_upload};
  struct plm_model_config config = {.max_length = 1 << 20};
  struct plm_masks *masks;
  struct plm_error error = {0};
  assert_int_equal(plm_masks_open(&config, &ops, 1, &masks, &error), PLM_CONFIG);
  config.pattern_count = PLM_MAX_PATTERN + 1;
  assert_int_equal(plm_masks_open(&config, &ops, 1, &masks, &error), PLM_CONFIG);
  config.pattern[0] = PLM_ATTENTION_DOCUMENT, config.pattern_count = 1;
  assert_int_equal(plm_masks_open(&config, &ops, 0, &masks, &error), PLM_LIMIT);
  assert_int_equal(plm_masks_open(&config, &ops, 1 << 20, &masks, &error), PLM_LIMIT);
  assert_null(masks);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_conjunction_equals_the_dense_mask),
      cmocka_unit_test(merged_levels_equal_the_dense_mask),
      cmocka_unit_test(lengths_need_not_be_powers_of_two),
      cmocka_unit_test(long_chunks_equal_the_dense_mask),
      cmocka_unit_test(one_document_fills_the_chunk),
      cmocka_unit_test(hundreds_of_documents),
      cmocka_unit_test(padding_alone_allows_nothing),
      cmocka_unit_test(a_document_boundary_inside_the_second_block),
      cmocka_unit_test(a_merged_pair_takes_the_larger_document),
      cmocka_unit_test(the_set_holds_a_mask_for_each_level_and_entry),
      cmocka_unit_test(limits_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
