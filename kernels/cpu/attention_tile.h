/* The arithmetic of attention on one thread: one head of one segment of one chunk. It is compiled
 * once for each instruction set (isa/attention_tile.c). attention.c cuts a call into segments and
 * hands them to the thread pool.
 *
 * A segment is a range of queries and a range of keys: these queries see only these keys, and no
 * other query sees these keys. It is a document or a block of one. Tiles therefore start where a
 * document starts, and the executed area is the allowed area rounded up to the tiles of each
 * segment rather than to the tiles of the chunk.
 */
#ifndef PLM_KERNELS_CPU_ATTENTION_TILE_H
#define PLM_KERNELS_CPU_ATTENTION_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PLM_ATTENTION_TILE_QUERIES = 64, /* queries of a tile */
  PLM_ATTENTION_TILE_KEYS = 96     /* keys of a tile */
};

/* Positions within a chunk: queries [query_begin, query_end) see only keys in
 * [key_begin, key_end), and no other query sees these keys. */
struct plm_attention_segment {
  int32_t chunk;
  int32_t query_begin, query_end, key_begin, key_end;
};

/* One head of one segment. Each pointer points to the first element of the chunk and head. Row p of
 * q, k, v, dq, dk and dv starts at element p * row_stride, row p of out and dout at element
 * p * out_stride. An element is a float or a bf16.
 */
struct plm_attention_task {
  struct plm_attention_segment segment;
  bool bf16;   /* activations are bf16, else float */
  bool rounds; /* forward: floats may be rounded to bf16 for the products */
  bool pairs;  /* multiply pairs of bf16; set by the kernels that can */
  bool amx;    /* multiply the pairs in AMX tiles; set by the kernels that can */
  bool narrow; /* a vector costs as much as its two halves; set by the kernels for that */
  int32_t K;
  int64_t row_stride, out_stride;
  float scale, soft_cap;              /* a soft_cap of 0 means no cap */
  const int32_t *key_begin, *key_end; /* for each query of the chunk */
  const void *q, *k, *v;
  void *out;  /* forward writes it, backward reads it */
  float *lse; /* of this chunk and head; forward writes it, backward reads it */
  const void *dout;
  void *dq, *dk, *dv;
  float *scratch;    /* scratch_floats of attention.c, aligned to 64 bytes */
  uint64_t executed; /* += computed query-key pairs, including the rounding to tiles */
};

struct plm_attention_kernels {
  void (*forward)(struct plm_attention_task *task);
  void (*backward)(struct plm_attention_task *task);
};

extern const struct plm_attention_kernels plm_attention_kernels_avx512;
extern const struct plm_attention_kernels plm_attention_kernels_avx512_bf16; /* needs AVX512_BF16 */
/* The same, with the same bits, for processors of which plm_processor_splits_vectors is true. */
extern const struct plm_attention_kernels plm_attention_kernels_narrow;
extern const struct plm_attention_kernels
    plm_attention_kernels_avx512_amx; /* needs PLM_PROCESSOR_AMX */
extern const struct plm_attention_kernels plm_attention_kernels_avx2;
extern const struct plm_attention_kernels plm_attention_kernels_portable;

#endif
