/* Sketches against all words of the sequences, and duplicates that were planted at known
 * identities, found whatever the size of a block. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/overlap/kmer_sketch.h"
#include "stages/overlap/overlap.h"
#include "tests/support/corpora/forged_corpus.h"
#include "tests/support/harness/scratch.h"

enum { LENGTH = 300, LONG = 100000, TRAINING = 700 };
static const char letters[] = "LAGVSERTIDPKQNFYMHWC";

static void near_to(double got, double expected, double tolerance)
{
  if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g", got, expected);
}

static void make_sequence(uint64_t number, size_t length, uint8_t *residues)
{
  for (size_t i = 0; i < length; i++)
    residues[i] = (uint8_t)letters[plm_philox(11, (uint32_t)i, number, 900).w[0] % 20];
}

/* Substitutes `changes` residues at distinct random places. */
static void change(uint8_t *residues, size_t length, uint32_t changes, uint64_t seed)
{
  for (uint32_t done = 0, i = 0; done < changes; i++) {
    const struct plm_philox_words draw = plm_philox(seed, i, 0, 901);
    uint8_t *residue = &residues[draw.w[0] % length];
    if (*residue >= 'a') continue; /* changed already */
    const uint8_t other = (uint8_t)letters[draw.w[1] % 20];
    if (*residue == other) continue;
    *residue = (uint8_t)(other + 'a' - 'A');
    done++;
  }
  for (size_t i = 0; i < length; i++)
    if (residues[i] >= 'a') residues[i] = (uint8_t)(residues[i] - ('a' - 'A'));
}

/* ---- sketches ---- */

static int compare_words(const void *left, const void *right)
{
  return memcmp(left, right, PLM_SKETCH_KMER);
}

/* The distinct words of a sequence, sorted. */
static size_t words_of(const uint8_t *residues, size_t length, uint8_t (*words)[PLM_SKETCH_KMER])
{
  size_t count = 0, kept = 0;
  for (size_t i = 0; i + PLM_SKETCH_KMER <= length; i++)
    memcpy(words[count++], residues + i, PLM_SKETCH_KMER);
  qsort(words, count, PLM_SKETCH_KMER, compare_words);
  for (size_t i = 0; i < count; i++)
    if (kept == 0 || compare_words(words[i], words[kept - 1]) != 0)
      memmove(words[kept++], words[i], PLM_SKETCH_KMER);
  return kept;
}

static double true_jaccard(const uint8_t *a, const uint8_t *b, size_t length)
{
  static uint8_t of_a[LENGTH][PLM_SKETCH_KMER], of_b[LENGTH][PLM_SKETCH_KMER];
  const size_t m = words_of(a, length, of_a), n = words_of(b, length, of_b);
  size_t common = 0;
  for (size_t i = 0; i < m; i++)
    common += bsearch(of_a[i], of_b, n, PLM_SKETCH_KMER, compare_words) != NULL;
  return (double)common / (double)(m + n - common);
}

static double estimate(const uint8_t *a, const uint8_t *b, size_t length)
{
  struct plm_kmer_sketch of_a, of_b;
  plm_kmer_sketch(a, length, &of_a);
  plm_kmer_sketch(b, length, &of_b);
  return plm_kmer_jaccard(&of_a, &of_b);
}

static void short_sequences_are_compared_exactly(void **state)
{
  (void)state;
  enum { SHORT = 60 }; /* both have at most 112 words */
  uint8_t a[SHORT], b[SHORT];
  for (uint64_t pair = 0; pair < 100; pair++) {
    make_sequence(pair, SHORT, a);
    memcpy(b, a, SHORT);
    change(b, SHORT, (uint32_t)(pair % 10), pair);
    near_to(estimate(a, b, SHORT), true_jaccard(a, b, SHORT), 1e-12);
  }
  struct plm_kmer_sketch empty, other;
  plm_kmer_sketch(a, PLM_SKETCH_KMER - 1, &empty);
  plm_kmer_sketch(a, SHORT, &other);
  assert_int_equal(empty.count, 0);
  near_to(plm_kmer_jaccard(&empty, &other), 0, 0);
}

/* Of one word: the number that MurmurHash3's finaliser gives for its letters, its lower half. */
static void the_hash_mixes_all_letters(void **state)
{
  (void)state;
  static const struct {
    const char *word;
    uint32_t hash;
  } cases[] = {{"AAAAA", 0x9038A263}, {"LAGVS", 0x86D93008}};
  for (size_t i = 0; i < 2; i++) {
    struct plm_kmer_sketch sketch;
    plm_kmer_sketch((const uint8_t *)cases[i].word, PLM_SKETCH_KMER, &sketch);
    assert_int_equal(sketch.count, 1);
    assert_int_equal(sketch.hashes[0], cases[i].hash);
  }
}

static void estimates_have_the_stated_error(void **state)
{
  (void)state;
  enum { PAIRS = 400 };
  uint8_t a[LENGTH], b[LENGTH];
  double squares = 0, sum = 0;
  for (uint64_t pair = 0; pair < PAIRS; pair++) {
    make_sequence(pair, LENGTH, a);
    memcpy(b, a, LENGTH);
    change(b, LENGTH, 3 + (uint32_t)(pair % 40), pair);
    const double truth = true_jaccard(a, b, LENGTH), error = estimate(a, b, LENGTH) - truth;
    const double expected = sqrt(truth * (1 - truth) / PLM_SKETCH_SIZE);
    squares += error * error / (expected * expected);
    sum += error;
  }
  /* drawn without replacement from some 400 words, so the error is a little less than stated */
  assert_true(sqrt(squares / PAIRS) < 1.05);
  assert_true(sqrt(squares / PAIRS) > 0.6);
  assert_true(fabs(sum / PAIRS) < 0.006);
}

static void a_long_sequence_has_its_smallest_hashes(void **state)
{
  (void)state;
  uint8_t *residues = malloc(LONG);
  struct plm_kmer_sketch whole, part;
  make_sequence(5, LONG, residues);
  plm_kmer_sketch(residues, LONG, &whole);
  assert_int_equal(whole.count, PLM_SKETCH_SIZE);
  /* each small hash of a part is in the sketch of the whole */
  for (size_t begin = 0; begin + LENGTH <= LONG; begin += LENGTH - PLM_SKETCH_KMER + 1) {
    plm_kmer_sketch(residues + begin, LENGTH, &part);
    for (uint32_t i = 0; i < part.count; i++) {
      if (part.hashes[i] > whole.hashes[PLM_SKETCH_SIZE - 1]) break;
      bool found = false;
      for (uint32_t k = 0; k < PLM_SKETCH_SIZE; k++) found |= whole.hashes[k] == part.hashes[i];
      assert_true(found);
    }
  }
  for (uint32_t k = 1; k < PLM_SKETCH_SIZE; k++) assert_true(whole.hashes[k - 1] < whole.hashes[k]);
  free(residues);
}

static void identity_and_jaccard_are_inverse(void **state)
{
  (void)state;
  for (double sequence_identity = 0.5; sequence_identity <= 1; sequence_identity += 0.05)
    near_to(plm_kmer_sequence_identity(plm_kmer_jaccard_at(sequence_identity)), sequence_identity,
            1e-12);
  near_to(plm_kmer_jaccard_at(1), 1, 0);
}

/* ---- corpora ---- */

/* Held-out documents by what was done to a training document, in percent of changed residues;
 * NONE: nothing, but it is another sequence. */
enum { NONE = -1 };
static const struct plant {
  int changed;
  uint32_t count;
} plants[] = {{0, 20}, {2, 30}, {5, 30}, {30, 30}, {50, 30}, {NONE, 40}};

static void add(struct plm_corpus_writer *writer, enum plm_split split, const uint8_t *residues)
{
  struct plm_error error = {0};
  assert_int_equal(plm_corpus_writer_add(writer, split, "x", 1, residues, LENGTH, &error), PLM_OK);
}

/* Other numbers of sequences make it have nothing in common with a corpus whose shifts are 0. */
static void write_corpus(const char *path, uint64_t training_shift, uint64_t held_out_shift)
{
  struct plm_error error = {0};
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "planted", .bytes = 1, .documents = 1};
  uint8_t residues[LENGTH];
  assert_int_equal(plm_corpus_writer_open(&options, &writer, &error), PLM_OK);
  for (uint64_t d = 0; d < TRAINING; d++) {
    make_sequence(d + training_shift, LENGTH, residues);
    add(writer, PLM_SPLIT_TRAIN, residues);
  }
  uint64_t number = 0;
  for (size_t p = 0; p < sizeof plants / sizeof *plants; p++) {
    for (uint32_t i = 0; i < plants[p].count; i++, number++) {
      const uint64_t planted = plants[p].changed == NONE ? TRAINING + number : 3 * number;
      make_sequence(planted + held_out_shift, LENGTH, residues);
      if (plants[p].changed > 0)
        change(residues, LENGTH, LENGTH * (uint32_t)plants[p].changed / 100, number);
      add(writer, PLM_SPLIT_VALID, residues);
    }
  }
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, &error), PLM_OK);
  plm_corpus_writer_close(writer);
}

static struct plm_corpus *open_corpus(const char *path)
{
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  assert_int_equal(plm_corpus_open(path, NULL, &corpus, &error), PLM_OK);
  return corpus;
}

static void finds_the_planted(struct plm_corpus *training, struct plm_corpus *held_out)
{
  struct plm_error error = {0};
  static const uint32_t blocks[] = {PLM_OVERLAP_BLOCK, 64, 7};
  for (size_t b = 0; b < 3; b++) {
    const struct plm_overlap_request request = {.training = training,
                                                .held_out = held_out,
                                                .training_split = PLM_SPLIT_TRAIN,
                                                .held_out_split = PLM_SPLIT_VALID,
                                                .sequence_identity = 0.9,
                                                .block = blocks[b]};
    struct plm_overlap overlap;
    assert_int_equal(plm_overlap_find(&request, &overlap, &error), PLM_OK);
    assert_int_equal(overlap.training_documents, TRAINING);
    assert_int_equal(overlap.held_out_documents, 180);
    assert_int_equal(overlap.held_out_exact, 20);
    assert_int_equal(overlap.held_out_near, 60); /* 98 and 95 %, but not 70 % */
    assert_int_equal(overlap.training_exact, 20);
    assert_int_equal(overlap.training_near, 60);
    for (uint64_t i = 0; i < 180; i++) {
      const struct plm_overlap_match *match = &overlap.matches[i];
      assert_int_equal(match->exact, i < 20);
      if (i >= 80) {
        assert_true(match->sequence_identity <= 0);
        continue;
      }
      assert_int_equal(match->training, 3 * i);
      const double truth = i < 20 ? 1 : i < 50 ? 0.98 : 0.95;
      assert_true(fabs((double)match->sequence_identity - truth) < 0.04);
    }
    plm_overlap_deinit(&overlap);
  }
}

static void planted_duplicates_are_found(void **state)
{
  (void)state;
  const char *path = scratch_path("planted.corpus");
  write_corpus(path, 0, 0);
  struct plm_corpus *corpus = open_corpus(path);
  finds_the_planted(corpus, corpus);
  plm_corpus_close(corpus);
}

/* Each of two corpora has both splits, but only those that are compared have something in common.
 */
static void two_corpora_are_compared(void **state)
{
  (void)state;
  enum { SHIFT = 10000 };
  write_corpus(scratch_path("a.corpus"), 0, SHIFT);
  write_corpus(scratch_path("b.corpus"), 2 * SHIFT, 0);
  struct plm_corpus *training = open_corpus(scratch_path("a.corpus")),
                    *held_out = open_corpus(scratch_path("b.corpus"));
  finds_the_planted(training, held_out);
  const struct plm_overlap_request other = {.training = held_out,
                                            .held_out = training,
                                            .training_split = PLM_SPLIT_TRAIN,
                                            .held_out_split = PLM_SPLIT_VALID,
                                            .sequence_identity = 0.9,
                                            .block = PLM_OVERLAP_BLOCK};
  struct plm_overlap overlap;
  struct plm_error error = {0};
  assert_int_equal(plm_overlap_find(&other, &overlap, &error), PLM_OK);
  assert_int_equal(overlap.held_out_exact + overlap.held_out_near, 0);
  assert_int_equal(overlap.training_exact + overlap.training_near, 0);
  plm_overlap_deinit(&overlap);
  plm_corpus_close(training);
  plm_corpus_close(held_out);
}

static void less_sequence_identity_finds_more(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_corpus *corpus;
  assert_int_equal(plm_corpus_open(scratch_path("planted.corpus"), NULL, &corpus, &error), PLM_OK);
  struct plm_overlap_request request = {.training = corpus,
                                        .held_out = corpus,
                                        .held_out_split = PLM_SPLIT_VALID,
                                        .sequence_identity = 0.55,
                                        .block = PLM_OVERLAP_BLOCK};
  struct plm_overlap overlap;
  assert_int_equal(plm_overlap_find(&request, &overlap, &error), PLM_OK);
  assert_true(overlap.held_out_near >= 85); /* nearly all of those with 70 % as well */
  for (uint64_t i = 140; i < 180; i++) assert_true(overlap.matches[i].sequence_identity <= 0);
  plm_overlap_deinit(&overlap);
  request.held_out_split = PLM_SPLIT_TEST;
  assert_int_equal(plm_overlap_find(&request, &overlap, &error), PLM_CONFIG);
  assert_non_null(strstr(error.what, "split test of"));
  plm_corpus_close(corpus);
}

/* Sequences so short that all of their words count: each pair has the similarity of its words, the
 * more similar one is kept, and of equal ones the first. What is exact is not near as well. */
static void short_sequences_have_exact_matches(void **state)
{
  static const char *const training[] = {"AAAAA",         "LAGVSERTIDPKQ", "LAGVSERTIDPKN",
                                         "LAGVSERTIDPKQ", "LAGVSERTIDPNN", "LAG",
                                         "NNNNNHHHHH"};
  static const struct {
    const char *residues;
    uint64_t training;
    double jaccard; /* 0: it is like none */
    bool exact;
  } held_out[] = {{"AAAAAA", 0, 1, false},          {"LAGVSERTIDPKQ", 1, 1, true},
                  {"LAGVSERTIDPKM", 1, 0.8, false}, {"LAGVSERTIDPNM", 4, 0.8, false},
                  {"QQQQQ", 0, 0, false},           {"LAG", 5, 1, true}};
  enum {
    OF_TRAINING = sizeof training / sizeof *training,
    HELD = sizeof held_out / sizeof *held_out
  };
  static const struct plm_overlap nothing;
  const char *path = scratch_path("short.corpus");
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "short", .bytes = 1, .documents = 1};
  struct plm_corpus_writer *writer;
  (void)state;
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (size_t i = 0; i < OF_TRAINING + HELD; i++) {
    const char *residues = i < OF_TRAINING ? training[i] : held_out[i - OF_TRAINING].residues;
    assert_int_equal(plm_corpus_writer_add(writer,
                                           i < OF_TRAINING ? PLM_SPLIT_TRAIN : PLM_SPLIT_TEST, "x",
                                           1, (const uint8_t *)residues, strlen(residues), NULL),
                     PLM_OK);
  }
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
  struct plm_corpus *corpus = open_corpus(path);
  for (uint32_t block = 1; block <= HELD + 1; block++) {
    const struct plm_overlap_request request = {.training = corpus,
                                                .held_out = corpus,
                                                .training_split = PLM_SPLIT_TRAIN,
                                                .held_out_split = PLM_SPLIT_TEST,
                                                .sequence_identity = 0.9,
                                                .block = block};
    struct plm_overlap overlap;
    assert_int_equal(plm_overlap_find(&request, &overlap, NULL), PLM_OK);
    for (size_t i = 0; i < HELD; i++) {
      const struct plm_overlap_match *match = &overlap.matches[i];
      assert_int_equal(match->training, held_out[i].training);
      assert_int_equal(match->exact, held_out[i].exact);
      near_to(match->sequence_identity,
              held_out[i].jaccard > 0 ? plm_kmer_sequence_identity(held_out[i].jaccard) : 0, 1e-6);
    }
    assert_int_equal(overlap.held_out_exact, 2);
    assert_int_equal(overlap.held_out_near, 3);
    assert_int_equal(overlap.training_exact, 3);
    assert_int_equal(overlap.training_near, 3);
    plm_overlap_deinit(&overlap);
    assert_memory_equal(&overlap, &nothing, sizeof nothing);
  }
  plm_corpus_close(corpus);
}

/* Two wrong lengths that add up to what is right, on either side, whatever the size of a block. The
 * corpus of the other side is whole. */
static void wrong_lengths_are_found(void **state)
{
  (void)state;
  static const uint32_t blocks[] = {PLM_OVERLAP_BLOCK, 7};
  struct plm_corpus *whole = open_corpus(scratch_path("planted.corpus"));
  for (int side = 0; side < 2; side++) {
    const enum plm_split changed = side == 0 ? PLM_SPLIT_TRAIN : PLM_SPLIT_VALID;
    const char *path = scratch_path(side == 0 ? "training.corpus" : "held-out.corpus");
    struct plm_error error = {0};
    write_corpus(path, 0, 0);
    forged_corpus_move_boundary(path, changed, 20);
    struct plm_corpus *corpus = open_corpus(path);
    for (size_t b = 0; b < 2; b++) {
      const struct plm_overlap_request request = {.training = side == 0 ? corpus : whole,
                                                  .held_out = side == 0 ? whole : corpus,
                                                  .held_out_split = PLM_SPLIT_VALID,
                                                  .sequence_identity = 0.9,
                                                  .block = blocks[b]};
      struct plm_overlap overlap;
      assert_int_equal(plm_overlap_find(&request, &overlap, &error), PLM_CORRUPT);
      assert_non_null(strstr(error.what, "a length in `lengths` is not what ingest wrote"));
    }
    plm_corpus_close(corpus);
  }
  plm_corpus_close(whole);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_sequences_are_compared_exactly),
      cmocka_unit_test(the_hash_mixes_all_letters),
      cmocka_unit_test(estimates_have_the_stated_error),
      cmocka_unit_test(a_long_sequence_has_its_smallest_hashes),
      cmocka_unit_test(identity_and_jaccard_are_inverse),
      cmocka_unit_test(planted_duplicates_are_found),
      cmocka_unit_test(two_corpora_are_compared),
      cmocka_unit_test(less_sequence_identity_finds_more),
      cmocka_unit_test(short_sequences_have_exact_matches),
      cmocka_unit_test(wrong_lengths_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
