/* Rows of words times panels of int8 weights, by one instruction. isa/int8.c defines these and
 * includes the file:
 *
 *   INT8_NAME(f)       the name of f for this instruction
 *   INT8_LANES         words in a vector
 *   INT8_ROWS          rows that are multiplied at a time
 *   INT8_PANELS        panels that are multiplied at a time, 1 or 2
 *   INT8_DOT(c, a, b)  c plus the products within the words of a and b */
enum {
  INT8_NAME(rows) = INT8_ROWS,
  INT8_NAME(panels) = INT8_PANELS,
  INT8_NAME(in_panel) = PLM_INT8_PANEL / INT8_LANES, /* vectors of a row of a panel */
  INT8_NAME(vectors) = INT8_PANELS * PLM_INT8_PANEL / INT8_LANES,
};

/* apart: words between the sums of two panels. */
static inline __attribute__((always_inline)) void
INT8_NAME(block)(int32_t *sums, int64_t apart, const int32_t *a, const int32_t *panel,
                 int64_t steps, const int rows, const int panels)
{
  vint c[INT8_NAME(rows)][INT8_NAME(vectors)];
  const int vectors = panels * INT8_NAME(in_panel), in_panel = INT8_NAME(in_panel);
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) c[r][v] = (vint){0};
  for (int64_t step = 0; step < steps; step++) {
    vint b[INT8_NAME(vectors)];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      memcpy(&b[v],
             panel + (v / in_panel * steps + step) * PLM_INT8_PANEL + v % in_panel * INT8_LANES,
             sizeof b[v]);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
      const vint word = (vint){0} + a[r * steps + step];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) c[r][v] = INT8_DOT(c[r][v], word, b[v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      memcpy(sums + v / in_panel * apart + r * PLM_INT8_PANEL + v % in_panel * INT8_LANES, &c[r][v],
             sizeof c[r][v]);
}

static inline __attribute__((always_inline)) void
INT8_NAME(all_rows)(int32_t *sums, const int32_t *a, int64_t rows, const void *panel, int64_t steps,
                    const int panels)
{
  enum { MOST = INT8_NAME(rows), HALF = INT8_NAME(rows) / 2 };
  const int64_t apart = rows * PLM_INT8_PANEL;
  int64_t row = 0;
  for (; row + MOST <= rows; row += MOST) INT8_NAME(block)
  (sums + row * PLM_INT8_PANEL, apart, a + row * steps, panel, steps, MOST, panels);
  for (; row + HALF <= rows; row += HALF) INT8_NAME(block)
  (sums + row * PLM_INT8_PANEL, apart, a + row * steps, panel, steps, HALF, panels);
  for (; row < rows; row++)
    INT8_NAME(block)(sums + row * PLM_INT8_PANEL, apart, a + row * steps, panel, steps, 1, panels);
}

static void INT8_NAME(multiply)(int32_t *sums, const int32_t *a, int64_t rows, const void *panel,
                                int64_t panels, int64_t steps)
{
  if (panels == INT8_NAME(panels))
    INT8_NAME(all_rows)(sums, a, rows, panel, steps, INT8_NAME(panels));
  else
    INT8_NAME(all_rows)(sums, a, rows, panel, steps, 1);
}
