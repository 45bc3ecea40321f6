/* Attention maps and contacts against their definitions in double precision, with one thread and
 * with several. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "evaluator/embed/contact_map.h"
#include "tests/support/harness/aborted.h"
#include "tests/support/harness/must.h"

/* The queries and keys of a chunk, in which the sequence begins at row FIRST. */
enum { FIRST = 5, MOST = 300, MOST_H = 4, MOST_K = 24 };

struct scene {
  float rows[(FIRST + MOST) * 3 * MOST_H * MOST_K];
  int32_t begin[MOST], end[MOST];
  struct plm_map_source source;
};

static float draw(uint32_t i)
{
  return ldexpf((float)(plm_philox(7, i, 1, 0).w[0] >> 8), -23) - 1; /* [-1, 1) */
}

/* With local, a query sees its neighbours only, and the last query sees nothing. */
static void fill(struct scene *scene, int32_t tokens, int32_t H, int32_t K, bool local)
{
  const int64_t stride = 3 * (int64_t)H * K;
  for (int64_t i = 0; i < (FIRST + tokens) * stride; i++) scene->rows[i] = 2 * draw((uint32_t)i);
  for (int32_t t = 0; t < tokens; t++) {
    scene->begin[t] = FIRST + (local && t > 6 ? t - 6 : 0);
    scene->end[t] = FIRST + (local && t + 9 < tokens ? t + 9 : tokens);
    if (local && t == tokens - 1) scene->begin[t] = scene->end[t] = 0;
  }
  const float *first = scene->rows + FIRST * stride;
  scene->source = (struct plm_map_source){.queries = first,
                                          .keys = first + (int64_t)H * K,
                                          .stride = stride,
                                          .H = H,
                                          .K = K,
                                          .tokens = tokens,
                                          .key_begin = scene->begin,
                                          .key_end = scene->end,
                                          .first = FIRST};
}

/* The map (tokens, tokens) of a head, by its definition. */
static void map_of(const struct plm_map_source *source, int32_t head, double *map)
{
  const int32_t n = source->tokens;
  for (int32_t i = 0; i < n; i++) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) {
      double product = 0;
      for (int32_t k = 0; k < source->K; k++)
        product += (double)source->queries[i * source->stride + head * source->K + k] *
                   (double)source->keys[j * source->stride + head * source->K + k];
      const bool seen = j + FIRST >= source->key_begin[i] && j + FIRST < source->key_end[i];
      map[i * n + j] = seen ? exp(product / sqrt(source->K)) : 0;
      sum += map[i * n + j];
    }
    for (int32_t j = 0; j < n && sum > 0; j++) map[i * n + j] /= sum;
  }
}

struct taken {
  float *maps; /* (heads, tokens, tokens) */
  int32_t first, tokens;
};

static void take(void *context, int32_t head, int32_t row, int32_t rows, const float *values,
                 int64_t padded)
{
  const struct taken *taken = context;
  const size_t n = (size_t)taken->tokens;
  for (int32_t r = 0; r < rows; r++)
    memcpy(taken->maps + ((size_t)(head - taken->first) * n + (size_t)(row + r)) * n,
           values + r * padded, n * sizeof *values);
}

static const struct shape {
  int32_t tokens, H, K;
  bool local;
} shapes[] = {{1, 1, 16, false}, {2, 3, 16, false},   {33, 4, 24, false}, {37, 2, 8, true},
              {64, 2, 16, true}, {130, 3, 24, false}, {300, 2, 16, false}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void maps_are_those_of_the_definition(void **state)
{
  (void)state;
  static struct scene scene;
  for (size_t s = 0; s < SHAPES; s++) {
    const struct shape *shape = &shapes[s];
    const size_t n = (size_t)shape->tokens, cells = n * n;
    float *first = NULL;
    double *expected = must(calloc(cells, sizeof *expected));
    fill(&scene, shape->tokens, shape->H, shape->K, shape->local);
    for (uint32_t threads = 1; threads <= 3; threads++) {
      struct plm_attention_map *map;
      const int32_t head = shape->H > 1 ? 1 : 0, heads = shape->H - head;
      float *maps = must(calloc((size_t)heads * cells, sizeof *maps));
      struct taken taken = {maps, head, shape->tokens};
      assert_int_equal(plm_attention_map_open(threads, &map, NULL), PLM_OK);
      assert_int_equal(plm_attention_map_run(map, &scene.source, head, heads, take, &taken, NULL),
                       PLM_OK);
      for (int32_t h = 0; h < heads; h++) {
        map_of(&scene.source, head + h, expected);
        for (size_t i = 0; i < cells; i++)
          if (!(fabs((double)maps[(size_t)h * cells + i] - expected[i]) <= 1e-5))
            fail_msg("%d tokens, head %d, cell %zu: %g is not %g", shape->tokens, head + h, i,
                     (double)maps[(size_t)h * cells + i], expected[i]);
      }
      if (first == NULL)
        first = maps;
      else
        assert_memory_equal(first, maps, (size_t)heads * cells * sizeof *maps);
      if (first != maps) free(maps);
      plm_attention_map_close(map);
    }
    free(first);
    free(expected);
  }
}

static void run_heads(const void *context)
{
  static struct scene scene;
  const int32_t *heads = context;
  struct plm_attention_map *map;
  fill(&scene, 2, 3, 16, false);
  (void)plm_attention_map_open(1, &map, NULL);
  (void)plm_attention_map_run(map, &scene.source, heads[0], heads[1], take, NULL, NULL);
}

static void heads_that_are_not_there(void **state)
{
  (void)state;
  static const int32_t heads[][2] = {{0, 4}, {2, 2}, {-1, 2}, {1, 0}};
  for (int i = 0; i < 4; i++)
    assert_non_null(strstr(aborted(run_heads, heads[i]), "heads <= source->H"));
}

/* The contacts of residues (n, n), by their definition. */
static void contacts_of(const struct plm_map_source *source, const float *weights, double bias,
                        double *contacts)
{
  const size_t T = (size_t)source->tokens, n = T - 2;
  double *map = must(calloc(T * T, sizeof *map)), *sums = must(calloc(n + 1, sizeof *sums));
  for (size_t i = 0; i < n * n; i++) contacts[i] = bias;
  for (int32_t h = 0; h < source->H; h++) {
    double total = 0;
    map_of(source, h, map);
    for (size_t i = 0; i < n; i++) {
      sums[i] = 0;
      for (size_t j = 0; j < n; j++) sums[i] += map[(i + 1) * T + j + 1] + map[(j + 1) * T + i + 1];
      total += sums[i];
    }
    for (size_t i = 0; i < n; i++)
      for (size_t j = 0; j < n; j++)
        contacts[i * n + j] +=
            (double)weights[h] *
            (map[(i + 1) * T + j + 1] + map[(j + 1) * T + i + 1] - sums[i] * sums[j] / total);
  }
  for (size_t i = 0; i < n * n; i++) contacts[i] = 1 / (1 + exp(-contacts[i]));
  free(map);
  free(sums);
}

static void contacts_are_those_of_the_definition(void **state)
{
  (void)state;
  static struct scene scene;
  static const float weights[MOST_H] = {9, -14, 6.5F, 20};
  static const int32_t tokens[] = {2, 3, 4, 33, 34, 66, 130};
  for (size_t s = 0; s < sizeof tokens / sizeof *tokens; s++) {
    const size_t n = (size_t)tokens[s] - 2;
    double *expected = must(calloc(n * n + 1, sizeof *expected)), least = 1, most = 0;
    fill(&scene, tokens[s], 4, 16, false);
    contacts_of(&scene.source, weights, -0.4, expected);
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
      struct plm_attention_map *map;
      struct plm_contact_sum sum;
      assert_int_equal(plm_attention_map_open(threads, &map, NULL), PLM_OK);
      assert_int_equal(plm_contact_sum_init(&sum, tokens[s] - 2, NULL), PLM_OK);
      assert_int_equal(plm_contact_sum_add(&sum, map, &scene.source, weights, NULL), PLM_OK);
      plm_contact_sum_finish(&sum, -0.4F);
      for (size_t i = 0; i < n * n; i++) {
        if (!(fabs((double)sum.values[i] - expected[i]) <= 1e-5))
          fail_msg("%d tokens, cell %zu: %g is not %g", tokens[s], i, (double)sum.values[i],
                   expected[i]);
        least = fmin(least, expected[i]);
        most = fmax(most, expected[i]);
      }
      plm_contact_sum_deinit(&sum);
      plm_attention_map_close(map);
    }
    if (n > 30) assert_true(most - least > 0.1);
    free(expected);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_are_those_of_the_definition),
      cmocka_unit_test(heads_that_are_not_there),
      cmocka_unit_test(contacts_are_those_of_the_definition),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
