/* Plans that sample clusters: every cluster once an epoch, members drawn uniformly, and everything
 * else as for documents. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan/plan.h"
#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"

/* The documents and clusters of a split, owned. */
struct sample {
  struct known_split split;
  uint32_t *lengths, *clusters;
  uint64_t *cluster_of; /* (documents) */
};

static struct plm_plan_parameters ordinary(void)
{
  return (struct plm_plan_parameters){.seed = 11,
                                      .max_length = 256,
                                      .alignment = 1,
                                      .window_groups = 4,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = PLM_TRUNCATE_HEAD,
                                      .tokenizer = PLM_TOKENIZER_ESM,
                                      .sampling = PLM_SAMPLING_CLUSTERS,
                                      .shuffle = true};
}

/* Clusters of 1 to largest documents; every 100th is 50 times as large. */
static struct sample sample_make(uint64_t clusters, uint32_t largest, uint32_t longest)
{
  struct sample sample = {.clusters = malloc(clusters * sizeof(uint32_t))};
  uint64_t documents = 0;
  for (uint64_t c = 0; c < clusters; c++) {
    struct plm_draws draws = plm_draws_begin(3, c, 100);
    sample.clusters[c] = 1 + plm_draws_below(&draws, largest);
    if (c % 100 == 7 && largest > 1) sample.clusters[c] *= 50;
    documents += sample.clusters[c];
  }
  sample.lengths = malloc(documents * sizeof *sample.lengths);
  sample.cluster_of = malloc(documents * sizeof *sample.cluster_of);
  uint64_t d = 0;
  for (uint64_t c = 0; c < clusters; c++)
    for (uint32_t m = 0; m < sample.clusters[c]; m++) {
      struct plm_draws draws = plm_draws_begin(4, d, 100);
      sample.lengths[d] = 1 + plm_draws_below(&draws, longest);
      sample.cluster_of[d++] = c;
    }
  sample.split = (struct known_split){.lengths = sample.lengths,
                                      .documents = documents,
                                      .clusters = sample.clusters,
                                      .cluster_count = clusters};
  return sample;
}

static void sample_deinit(struct sample *sample)
{
  free(sample->lengths);
  free(sample->clusters);
  free(sample->cluster_of);
}

/* Checks that the window's tables name the groups of its documents in reading order. */
static void check_places(const struct plm_window *window)
{
  assert_int_equal(window->group_begin[0], 0);
  assert_int_equal(window->group_begin[window->group_count], window->document_count);
  for (uint32_t g = 0; g < window->group_count; g++) {
    uint64_t last = 0;
    assert_true(window->group_begin[g] < window->group_begin[g + 1]);
    for (uint32_t i = window->group_begin[g]; i < window->group_begin[g + 1]; i++) {
      const uint64_t number = window->documents[window->places[i].document].number;
      assert_int_equal(number / PLM_GROUP_DOCUMENTS, window->groups[g]);
      assert_true(number >= last);
      last = number;
    }
  }
}

/* Checks an epoch, and sets member[c] to the document of cluster c that it has. */
static void check_epoch(const struct plm_plan *plan, const struct sample *sample, uint64_t epoch,
                        uint64_t *member)
{
  const uint64_t windows = plm_plan_windows(plan), clusters = sample->split.cluster_count;
  const struct plm_plan_parameters *p = plm_plan_parameters(plan);
  uint32_t *counts = malloc(windows * sizeof *counts);
  uint64_t seen = 0;
  struct plm_window window = {0};
  for (uint64_t c = 0; c < clusters; c++) member[c] = UINT64_MAX;
  assert_int_equal(plm_plan_documents(plan), clusters);
  assert_int_equal(known_split_chunks(&sample->split, plan, epoch, 0, windows, counts, NULL),
                   PLM_OK);
  for (uint64_t w = 0; w < windows; w++) {
    assert_int_equal(known_split_window(&sample->split, plan, epoch, w, &window, NULL), PLM_OK);
    assert_int_equal(window.chunks, counts[w]);
    check_places(&window);
    for (uint32_t k = 0; k < window.document_count; k++) {
      const struct plm_chunk_document *piece = &window.documents[k];
      assert_true(piece->number < sample->split.documents);
      assert_int_equal(piece->residues, sample->lengths[piece->number]);
      const uint64_t c = sample->cluster_of[piece->number];
      if (member[c] == UINT64_MAX) seen++;
      if (p->truncate != PLM_TRUNCATE_SPLIT) assert_true(member[c] == UINT64_MAX);
      assert_true(member[c] == UINT64_MAX || member[c] == piece->number);
      member[c] = piece->number;
    }
  }
  assert_int_equal(seen, clusters);
  plm_window_deinit(&window);
  free(counts);
}

static void every_cluster_once(void **state)
{
  (void)state;
  static const uint64_t sizes[] = {1, 255, 256, 257, 1024, 3000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    struct sample sample = sample_make(sizes[s], 5, 600);
    uint64_t *member = malloc(sizes[s] * sizeof *member);
    for (int packing = 0; packing < 2; packing++)
      for (int truncate = 0; truncate < 3; truncate++) {
        struct plm_plan_parameters p = ordinary();
        p.packing = (enum plm_packing)packing;
        p.truncate = (enum plm_truncate)truncate;
        struct plm_plan *plan = known_split_plan(&sample.split, &p);
        check_epoch(plan, &sample, 0, member);
        check_epoch(plan, &sample, 4000000000u, member);
        plm_plan_close(plan);
      }
    free(member);
    sample_deinit(&sample);
  }
}

/* Chi-squared of the members of each cluster over epochs. The seed is fixed, so this holds or does
 * not; the bound would be exceeded by chance once in about 10^4 seeds. */
static void members_are_uniform(void **state)
{
  (void)state;
  enum { CLUSTERS = 700, EPOCHS = 400 };
  const struct plm_plan_parameters p = ordinary();
  struct sample sample = sample_make(CLUSTERS, 6, 100);
  uint32_t *drawn = calloc(sample.split.documents, sizeof *drawn);
  uint64_t *member = malloc(CLUSTERS * sizeof *member);
  struct plm_plan *plan = known_split_plan(&sample.split, &p);
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    check_epoch(plan, &sample, epoch, member);
    for (uint64_t c = 0; c < CLUSTERS; c++) drawn[member[c]]++;
  }
  double chi_squared = 0.0, freedom = 0.0;
  for (uint64_t d = 0; d < sample.split.documents; d++) {
    const uint32_t size = sample.clusters[sample.cluster_of[d]];
    if (size > 20) continue; /* too few draws for each of its members */
    const double expected = (double)EPOCHS / size;
    chi_squared += (drawn[d] - expected) * (drawn[d] - expected) / expected;
    freedom += 1.0 - 1.0 / size;
  }
  print_message("chi-squared %.1f with %.0f degrees of freedom\n", chi_squared, freedom);
  assert_true(freedom > 1000.0);
  assert_true(fabs(chi_squared - freedom) < 4.0 * sqrt(2.0 * freedom));
  plm_plan_close(plan);
  free(member);
  free(drawn);
  sample_deinit(&sample);
}

static void assert_same_window(const struct plm_window *a, const struct plm_window *b)
{
  assert_int_equal(a->chunks, b->chunks);
  assert_int_equal(a->document_count, b->document_count);
  assert_memory_equal(a->chunk_begin, b->chunk_begin, (a->chunks + 1) * sizeof *a->chunk_begin);
  assert_memory_equal(a->documents, b->documents, a->document_count * sizeof *a->documents);
}

/* Clusters of one document are planned as documents are. */
static void single_documents_are_clusters(void **state)
{
  (void)state;
  struct sample sample = sample_make(3000, 1, 700);
  struct plm_plan_parameters p = ordinary();
  struct plm_window a = {0}, b = {0};
  p.truncate = PLM_TRUNCATE_RANDOM_CROP;
  struct plm_plan *clusters = known_split_plan(&sample.split, &p);
  p.sampling = PLM_SAMPLING_DOCUMENTS;
  struct plm_plan *documents = known_split_plan(&sample.split, &p);
  assert_int_equal(plm_plan_windows(clusters), plm_plan_windows(documents));
  for (uint64_t w = 0; w < plm_plan_windows(clusters); w++) {
    assert_int_equal(known_split_window(&sample.split, clusters, 5, w, &a, NULL), PLM_OK);
    assert_int_equal(known_split_window(&sample.split, documents, 5, w, &b, NULL), PLM_OK);
    assert_same_window(&a, &b);
  }
  plm_window_deinit(&a);
  plm_window_deinit(&b);
  plm_plan_close(clusters);
  plm_plan_close(documents);
  sample_deinit(&sample);
}

/* A window is the same from a plan that has computed others before, and from one that has not. */
static void any_window_is_computed_by_itself(void **state)
{
  (void)state;
  struct sample sample = sample_make(5000, 5, 300);
  const struct plm_plan_parameters p = ordinary();
  struct plm_plan *busy = known_split_plan(&sample.split, &p);
  const uint64_t windows = plm_plan_windows(busy);
  struct plm_window a = {0};
  for (uint64_t i = 0; i < 3 * windows; i++) {
    struct plm_window b = {0};
    struct plm_plan *fresh = known_split_plan(&sample.split, &p);
    assert_int_equal(known_split_window(&sample.split, busy, i / windows, i % windows, &a, NULL),
                     PLM_OK);
    assert_int_equal(known_split_window(&sample.split, fresh, i / windows, i % windows, &b, NULL),
                     PLM_OK);
    assert_same_window(&a, &b);
    plm_window_deinit(&b);
    plm_plan_close(fresh);
  }
  plm_window_deinit(&a);
  plm_plan_close(busy);
  sample_deinit(&sample);
}

static double padding_of(const struct plm_plan_parameters *p, const struct sample *sample)
{
  struct plm_plan *plan = known_split_plan(&sample->split, p);
  struct plm_window window = {0};
  uint64_t real = 0, all = 0;
  for (uint64_t w = 0; w < plm_plan_windows(plan); w++) {
    assert_int_equal(known_split_window(&sample->split, plan, 0, w, &window, NULL), PLM_OK);
    real += window.real_tokens;
    all += (uint64_t)window.chunks * p->max_length;
  }
  plm_window_deinit(&window);
  plm_plan_close(plan);
  return (double)(all - real) / (double)all;
}

static void padding_is_that_of_documents(void **state)
{
  (void)state;
  struct sample sample = sample_make(16384 * 2, 3, 900);
  struct plm_plan_parameters p = ordinary();
  p.max_length = 1024;
  p.window_groups = 64;
  const double clusters = padding_of(&p, &sample);
  p.sampling = PLM_SAMPLING_DOCUMENTS;
  const double documents = padding_of(&p, &sample);
  print_message("padding: %.3f %% by clusters, %.3f %% by documents\n", 100 * clusters,
                100 * documents);
  assert_true(clusters < 0.01);
  assert_true(clusters < documents + 0.002);
  sample_deinit(&sample);
}

static void what_cannot_be_sampled_is_refused(void **state)
{
  (void)state;
  struct plm_plan_parameters p = ordinary();
  struct plm_plan *plan;
  struct plm_error error;
  const struct plm_corpus_info info = {.format = PLM_CORPUS_FORMAT, .clustered = true};
  assert_int_equal(plm_plan_open(&p, 10, 0, &plan, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "keeps no clusters"));
  assert_int_equal(plm_plan_check_corpus(&p, &info, "here", &error), PLM_CONFIG);
  assert_string_equal(error.what, "data.sampling: clusters, but here keeps no clusters");
  assert_non_null(strstr(error.hint, "--clusters"));
  p.shuffle = false;
  assert_int_equal(plm_plan_open(&p, 10, 3, &plan, &error), PLM_CONFIG);
  p.sampling = PLM_SAMPLING_DOCUMENTS;
  assert_int_equal(plm_plan_check_corpus(&p, &info, "here", &error), PLM_OK);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_cluster_once),
      cmocka_unit_test(members_are_uniform),
      cmocka_unit_test(single_documents_are_clusters),
      cmocka_unit_test(any_window_is_computed_by_itself),
      cmocka_unit_test(padding_is_that_of_documents),
      cmocka_unit_test(what_cannot_be_sampled_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
