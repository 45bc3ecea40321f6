/* The arithmetic of attention on one thread: one head of one segment of one chunk. Compiled once
 * for each instruction set (isa/attention_tile.c); attention.c cuts a call into segments and hands
 * them to the thread pool.
 *
 * A segment is a range of queries and a range of keys that see nothing outside each other: a
 * document, or a block of one. So work starts at document starts, and what is executed is the
 * allowed area rounded up to the tiles of a segment, never of the chunk.
 */
#ifndef PLM_KERNELS_CPU_ATTENTION_TILE_H
#define PLM_KERNELS_CPU_ATTENTION_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  PLM_ATTENTION_TILE_QUERIES = 64, /* queries at a time */
  PLM_ATTENTION_TILE_KEYS = 48     /* keys at a time */
};

/* Positions of a chunk: queries [query_begin, query_end) see keys in [key_begin, key_end) alone,
 * and nobody else does. */
struct plm_attention_segment {
  int32_t chunk;
  int32_t query_begin, query_end, key_begin, key_end;
};

/* One head of one segment. Pointers are to element 0 of the chunk and head: row p of q, k, v, dq,
 * dk, dv lies at p * row_stride, of out and dout at p * out_stride, in elements of float or bf16.
 */
struct plm_attention_task {
  struct plm_attention_segment segment;
  bool bf16;
  bool pairs; /* multiply activations as pairs of bf16: set by the kernels that can */
  bool amx;   /* the pairs in AMX tiles: likewise */
  int32_t K;
  int64_t row_stride, out_stride;
  float scale, soft_cap;              /* soft_cap 0: none */
  const int32_t *key_begin, *key_end; /* of the chunk's queries */
  const void *q, *k, *v;
  void *out;  /* forward writes, backward reads */
  float *lse; /* of the chunk and head: forward writes, backward reads */
  const void *dout;
  void *dq, *dk, *dv;
  float *scratch;    /* plm_attention_scratch_floats of them, aligned to 64 bytes */
  uint64_t executed; /* += query-key pairs computed, rounding included */
};

struct plm_attention_kernels {
  void (*forward)(struct plm_attention_task *task);
  void (*backward)(struct plm_attention_task *task);
};

/* Scratch of one thread for segments of up to `length` keys and heads of width K. */
size_t plm_attention_scratch_floats(int32_t length, int32_t K);

extern const struct plm_attention_kernels plm_attention_kernels_avx512;
extern const struct plm_attention_kernels plm_attention_kernels_avx512_bf16; /* with avx512_bf16 */
extern const struct plm_attention_kernels
    plm_attention_kernels_avx512_amx; /* with PLM_PROCESSOR_AMX */
extern const struct plm_attention_kernels plm_attention_kernels_avx2;
extern const struct plm_attention_kernels plm_attention_kernels_portable;

#endif
