/* Rows of words times a panel of int8 weights, by one instruction. isa/int8.c defines these and
 * includes the file:
 *
 *   INT8_NAME(f)       the name of f for this instruction
 *   INT8_LANES         words in a vector
 *   INT8_ROWS          rows that are multiplied at a time
 *   INT8_DOT(c, a, b)  c plus the products within the words of a and b */
enum {
  INT8_NAME(rows) = INT8_ROWS,
  INT8_NAME(vectors) = PLM_INT8_PANEL / INT8_LANES,
};

static inline __attribute__((always_inline)) void INT8_NAME(block)(int32_t *sums, const int32_t *a,
                                                                   const int32_t *panel,
                                                                   int64_t steps, const int rows)
{
  vint c[INT8_NAME(rows)][INT8_NAME(vectors)];
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < INT8_NAME(vectors); v++) c[r][v] = (vint){0};
  for (int64_t step = 0; step < steps; step++) {
    vint b[INT8_NAME(vectors)];
#pragma GCC unroll 4
    for (int v = 0; v < INT8_NAME(vectors); v++)
      memcpy(&b[v], panel + step * PLM_INT8_PANEL + v * INT8_LANES, sizeof b[v]);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const vint word = (vint){0} + a[r * steps + step];
#pragma GCC unroll 4
      for (int v = 0; v < INT8_NAME(vectors); v++) c[r][v] = INT8_DOT(c[r][v], word, b[v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < INT8_NAME(vectors); v++)
      memcpy(sums + r * PLM_INT8_PANEL + v * INT8_LANES, &c[r][v], sizeof c[r][v]);
}

static void INT8_NAME(multiply)(int32_t *sums, const int32_t *a, int64_t rows, const void *panel,
                                int64_t steps)
{
  enum { MOST = INT8_NAME(rows), HALF = INT8_NAME(rows) / 2 };
  int64_t row = 0;
  for (; row + MOST <= rows; row += MOST)
    INT8_NAME(block)(sums + row * PLM_INT8_PANEL, a + row * steps, panel, steps, MOST);
  for (; row + HALF <= rows; row += HALF)
    INT8_NAME(block)(sums + row * PLM_INT8_PANEL, a + row * steps, panel, steps, HALF);
  for (; row < rows; row++)
    INT8_NAME(block)(sums + row * PLM_INT8_PANEL, a + row * steps, panel, steps, 1);
}
