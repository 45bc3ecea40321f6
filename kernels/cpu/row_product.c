/* Finds out by probing which products give a row the same bits, and cuts rows only into those.
 * row_product.h describes the method. */
#include "kernels/cpu/row_product.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "kernels/cpu/row_probe.h"

/* A product of a family, with all columns or some of them, that was compared with the unit. */
struct variant {
  struct variant *next;
  int64_t rows, first, columns;
  bool turned;                       /* B is stored as (K, N), and that of the family as (N, K) */
  const struct plm_product *product; /* NULL if its bits differ */
};

struct plm_row_family {
  struct plm_row_family *next;
  struct plm_row_products *owner;
  struct plm_product_shape shape; /* M = 0 */
  int64_t unit, tall;             /* tall: a height whose bits agree with the unit */
  const struct plm_product *unit_product;
  struct variant *variants;
  char *expected;          /* the row of C that the probe gives */
  struct plm_probe *probe; /* while the unit is chosen, so that it is filled once; otherwise NULL */
};

struct plm_row_products {
  struct plm_products *products;
  struct plm_row_family *families;
  struct plm_probe_ring ring;
  struct plm_error error;
};

/* Units in the order in which they are tried. Most kernels compute 16 or 32 rows together, those of
 * oneDNN for AVX2 compute 6. A unit of one row works with any library that is deterministic. */
static const int64_t UNITS_BF16[] = {32, 64, 48, 128, 16, 1}, UNITS_FLOAT[] = {32, 48, 16, 1};
/* Heights for fewer rows than a unit in fp32. In bf16 only the unit is used, because each product
 * is costly to prepare. */
static const int64_t SMALL[] = {1, 2, 4, 6, 8, 12, 16, 24};

enum { COUNT_BF16 = 6, COUNT_FLOAT = 4, COUNT_SMALL = 8, TALLEST = 256 };

struct plm_row_products *plm_row_products_open(struct plm_products *products)
{
  struct plm_row_products *rows = plm_alloc_zeroed(1, sizeof *rows);
  rows->products = products;
  return rows;
}

static void free_family(struct plm_row_family *family)
{
  for (struct variant *v = family->variants, *next; v != NULL; v = next) {
    next = v->next;
    free(v);
  }
  free(family->expected);
  free(family);
}

void plm_row_products_close(struct plm_row_products *rows)
{
  if (rows == NULL) return;
  for (struct plm_row_family *f = rows->families, *next; f != NULL; f = next) {
    next = f->next;
    free_family(f);
  }
  plm_probe_ring_free(&rows->ring);
  free(rows);
}

plm_status plm_row_products_error(const struct plm_row_products *rows, struct plm_error *error)
{
  if (rows->error.status != PLM_OK && error != NULL) *error = rows->error;
  return rows->error.status;
}

/* Makes a probe for products of `rows` rows. Returns false, having kept the error, if there is no
 * memory. */
static bool make_probe(struct plm_probe *probe, struct plm_row_family *family, int64_t rows)
{
  const struct plm_product_shape *shape = &family->shape;
  if (plm_probe_make(probe, &family->owner->ring, shape, rows)) return true;
  plm_error_set(&family->owner->error, PLM_NO_MEMORY,
                "no memory to examine a product of %lld x %lld", (long long)shape->K,
                (long long)shape->N);
  return false;
}

bool plm_row_strip_is_sliced(const struct plm_product_shape *shape)
{
  /* the fast bf16 kernels of oneDNN take only dense operands */
  return shape->is_bf16 && !shape->transpose_b;
}

/* Shape of the product of `rows` rows by `columns` columns, with a dense C. */
static struct plm_product_shape shape_of(const struct plm_row_family *family, int64_t rows,
                                         int64_t columns)
{
  struct plm_product_shape shape = family->shape;
  shape.M = rows;
  if (columns == shape.N) return shape;
  if (plm_row_strip_is_sliced(&shape)) shape.ldb = columns;
  shape.N = shape.ldc = columns;
  return shape;
}

/* Runs the product on the probe. Returns true if all rows of C equal the expected row. If the
 * family has no expected row yet, the rows must equal each other, and the first becomes the
 * expected row. */
static bool run_probe(struct plm_row_family *family, const struct plm_probe *probe,
                      const struct plm_product *product, int64_t rows, int64_t first,
                      int64_t columns)
{
  const int64_t out = plm_product_out_bytes(&family->shape), row_bytes = columns * out;
  for (int64_t i = 0; i < rows; i++)
    memcpy(probe->C + i * row_bytes, probe->start + first * out, (size_t)row_bytes);
  plm_product_run(product, 0, probe->C, probe->A, probe->B);
  const char *expected = family->expected != NULL ? family->expected + first * out : probe->C;
  for (int64_t i = 0; i < rows; i++)
    if (memcmp(probe->C + i * row_bytes, expected, (size_t)row_bytes) != 0) return false;
  if (family->expected != NULL) return true;
  family->expected = plm_alloc((size_t)row_bytes);
  memcpy(family->expected, probe->C, (size_t)row_bytes);
  return true;
}

/* Whether a product of `rows` rows by the columns [first, first + columns) gives the expected row.
 * Uses the family's probe while the unit is chosen, which is about whole rows. */
static bool agrees(struct plm_row_family *family, const struct plm_product *product, int64_t rows,
                   int64_t first, int64_t columns)
{
  if (family->probe != NULL) return run_probe(family, family->probe, product, rows, first, columns);
  struct plm_probe probe;
  if (!make_probe(&probe, family, rows)) return false;
  plm_probe_slice(&probe, &family->shape, first, columns, plm_row_strip_is_sliced(&family->shape));
  const bool same = run_probe(family, &probe, product, rows, first, columns);
  plm_probe_free(&probe);
  return same;
}

/* The same of all columns with B transposed. */
static bool agrees_turned(struct plm_row_family *family, const struct plm_product *product,
                          int64_t rows)
{
  struct plm_probe probe;
  if (!make_probe(&probe, family, rows)) return false;
  const bool same = plm_probe_turn(&probe, &family->shape) &&
                    run_probe(family, &probe, product, rows, 0, family->shape.N);
  plm_probe_free(&probe);
  return same;
}

/* ---- families ---- */
/* Sets the family's unit. Returns false if the rows of its product differ from each other, or if
 * the product cannot be prepared or examined. */
static bool set_unit(struct plm_row_family *family, int64_t unit)
{
  const struct plm_product_shape shape = shape_of(family, unit, family->shape.N);
  const struct plm_product *product = plm_products_get(family->owner->products, &shape);
  free(family->expected);
  family->expected = NULL;
  family->unit = unit;
  family->unit_product = product;
  return product != NULL && agrees(family, product, unit, 0, shape.N);
}

/* The largest of a few multiples of the unit whose product agrees with that of the unit. */
static int64_t tallest(struct plm_row_family *family)
{
  static const int64_t wanted[] = {TALLEST, 128, 64};
  for (int i = 0; i < 3; i++) {
    const int64_t rows = wanted[i] / family->unit * family->unit;
    if (rows <= family->unit) break;
    const struct plm_product_shape shape = shape_of(family, rows, family->shape.N);
    const struct plm_product *product = plm_products_get(family->owner->products, &shape);
    if (product != NULL && agrees(family, product, rows, 0, shape.N)) return rows;
  }
  return family->unit;
}

/* Chooses the unit with which the tallest products agree, because tall products are faster. */
static bool compare_units(struct plm_row_family *family)
{
  const int64_t *units = family->shape.is_bf16 ? UNITS_BF16 : UNITS_FLOAT;
  const int count = family->shape.is_bf16 ? COUNT_BF16 : COUNT_FLOAT;
  enum { ENOUGH = 240 }; /* the largest multiple of 48 below 256 */
  int64_t best = 0;
  for (int i = 0; i < count && family->tall < ENOUGH; i++) {
    if (!set_unit(family, units[i])) continue;
    const int64_t tall = tallest(family);
    if (tall <= family->tall) continue;
    family->tall = tall;
    best = units[i];
  }
  if (best > 0 && (family->unit == best || set_unit(family, best))) return true;
  if (family->owner->error.status == PLM_OK)
    plm_error_set(
        &family->owner->error, PLM_FAILURE,
        "a product of %lld x %lld gives different bits in each call, or cannot be prepared",
        (long long)family->shape.K, (long long)family->shape.N);
  return false;
}

static bool choose_unit(struct plm_row_family *family)
{
  struct plm_probe probe;
  if (!make_probe(&probe, family, TALLEST)) return false;
  family->probe = &probe;
  const bool chosen = compare_units(family);
  family->probe = NULL;
  plm_probe_free(&probe);
  return chosen;
}

struct plm_row_family *plm_row_family_get(struct plm_row_products *rows,
                                          const struct plm_product_shape *shape)
{
  struct plm_product_shape key = *shape;
  key.M = 0;
  PLM_ASSERT(key.lda == key.K && key.ldc == key.N && !key.transpose_a);
  for (struct plm_row_family *f = rows->families; f != NULL; f = f->next)
    if (plm_product_shape_equal(&f->shape, &key)) return f;
  struct plm_row_family *family = plm_alloc_zeroed(1, sizeof *family);
  family->owner = rows;
  family->shape = key;
  if (!choose_unit(family)) {
    free_family(family);
    return NULL;
  }
  family->next = rows->families;
  rows->families = family;
  return family;
}

static const struct plm_product *keep_variant(struct plm_row_family *family, struct variant variant)
{
  struct variant *kept = plm_alloc(sizeof *kept);
  *kept = variant;
  kept->next = family->variants;
  family->variants = kept;
  return kept->product;
}

/* The product of `rows` rows by some of the columns. NULL if its bits differ, or after an error. */
static const struct plm_product *variant(struct plm_row_family *family, int64_t rows, int64_t first,
                                         int64_t columns)
{
  const bool whole = columns == family->shape.N;
  if (rows == family->unit && whole) return family->unit_product;
  for (const struct variant *v = family->variants; v != NULL; v = v->next)
    if (v->rows == rows && v->first == first && v->columns == columns && !v->turned)
      return v->product;
  const struct plm_product_shape shape = shape_of(family, rows, columns);
  const struct plm_product *product = plm_products_get(family->owner->products, &shape);
  if (product != NULL && !agrees(family, product, rows, first, columns)) product = NULL;
  return keep_variant(
      family,
      (struct variant){.rows = rows, .first = first, .columns = columns, .product = product});
}

/* The product of `rows` rows with B transposed. NULL if its bits differ, or after an error. */
static const struct plm_product *turned_variant(struct plm_row_family *family, int64_t rows)
{
  for (const struct variant *v = family->variants; v != NULL; v = v->next)
    if (v->rows == rows && v->turned) return v->product;
  struct plm_product_shape shape = shape_of(family, rows, family->shape.N);
  shape.transpose_b = 0;
  shape.ldb = shape.N;
  const struct plm_product *product = plm_products_get(family->owner->products, &shape);
  if (product != NULL && !agrees_turned(family, product, rows)) product = NULL;
  return keep_variant(family, (struct variant){.rows = rows, .turned = true, .product = product});
}

/* The product with the smallest height that holds `rows` rows, which are fewer than a unit. */
static struct plm_row_run row_product_smallest(struct plm_row_family *family, int64_t rows)
{
  for (int i = 0; !family->shape.is_bf16 && i < COUNT_SMALL && SMALL[i] < family->unit; i++) {
    if (SMALL[i] < rows) continue;
    const struct plm_product *product = variant(family, SMALL[i], 0, family->shape.N);
    if (product != NULL) return (struct plm_row_run){SMALL[i], product};
  }
  return (struct plm_row_run){family->unit, family->unit_product};
}

int64_t plm_row_height(struct plm_row_family *family, int64_t rows)
{
  if (rows < family->unit) return row_product_smallest(family, rows).rows;
  return (rows + family->unit - 1) / family->unit * family->unit;
}

const struct plm_product *plm_row_strip(struct plm_row_family *family, int64_t height,
                                        int64_t first, int64_t columns)
{
  return variant(family, height, first, columns);
}

/* ---- tilings ---- */
static struct plm_row_run run_of(struct plm_row_family *family, int64_t rows)
{
  const struct plm_product *product = rows > 0 ? variant(family, rows, 0, family->shape.N) : NULL;
  return (struct plm_row_run){product != NULL ? rows : 0, product};
}

void plm_row_tiling_init(struct plm_row_tiling *tiling, struct plm_row_family *family, int64_t rows,
                         int64_t tile)
{
  const int64_t unit = family->unit, units = tile / unit > 0 ? tile / unit : 1;
  *tiling = (struct plm_row_tiling){.shape = family->shape, .tile = units * unit};
  const int64_t after = rows % tiling->tile;
  if (rows >= tiling->tile) tiling->runs[0] = run_of(family, tiling->tile);
  tiling->runs[1] = run_of(family, after / unit * unit);
  tiling->runs[2] = run_of(family, rows >= family->tall ? family->tall : 0);
  tiling->runs[3] = (struct plm_row_run){unit, family->unit_product};
  if (after % unit > 0) tiling->last = row_product_smallest(family, after % unit);
}

bool plm_row_tiling_turn(struct plm_row_tiling *tiling, struct plm_row_family *family)
{
  const struct plm_product_shape *s = &family->shape;
  if (!s->transpose_b || s->is_bf16) return false;
  tiling->turned = turned_variant(family, tiling->tile);
  return tiling->turned != NULL;
}

size_t plm_row_tiling_padding(const struct plm_row_tiling *tiling)
{
  const struct plm_product_shape *s = &tiling->shape;
  return (size_t)(tiling->last.rows *
                  (s->K * plm_product_in_bytes(s) + s->N * plm_product_out_bytes(s)));
}

static void run_padded(const struct plm_row_tiling *tiling, uint32_t thread, char *C, const char *A,
                       const char *B, int64_t rows, char *padding)
{
  const size_t A_row = (size_t)(tiling->shape.K * plm_product_in_bytes(&tiling->shape));
  const size_t C_row = (size_t)(tiling->shape.N * plm_product_out_bytes(&tiling->shape));
  const size_t used = (size_t)rows, height = (size_t)tiling->last.rows;
  char *C_padded = padding + height * A_row;
  memcpy(padding, A, used * A_row);
  memset(padding + used * A_row, 0, (height - used) * A_row);
  memcpy(C_padded, C, used * C_row);
  memset(C_padded + used * C_row, 0, (height - used) * C_row);
  plm_product_run(tiling->last.product, thread, C_padded, padding, B);
  memcpy(C, C_padded, used * C_row);
}

void plm_row_tiling_run(const struct plm_row_tiling *tiling, uint32_t thread, char *C,
                        const char *A, const char *B, int64_t rows, char *padding)
{
  const int64_t A_row = tiling->shape.K * plm_product_in_bytes(&tiling->shape);
  const int64_t C_row = tiling->shape.N * plm_product_out_bytes(&tiling->shape);
  if (tiling->turned != NULL && rows == tiling->tile) {
    plm_product_run(tiling->turned, thread, C, A, tiling->turned_B);
    return;
  }
  for (int i = 0; i < 4; i++) {
    const struct plm_row_run *run = &tiling->runs[i];
    for (; run->rows > 0 && rows >= run->rows; rows -= run->rows) {
      plm_product_run(run->product, thread, C, A, B);
      A += run->rows * A_row;
      C += run->rows * C_row;
    }
  }
  if (rows == 0) return;
  if (rows == tiling->last.rows)
    plm_product_run(tiling->last.product, thread, C, A, B);
  else
    run_padded(tiling, thread, C, A, B, rows, padding);
}
