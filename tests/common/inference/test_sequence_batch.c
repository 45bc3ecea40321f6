/* Sequences packed for inference: each is where the batch says it is, chunks are well filled, and
 * hidden states and logits are those that each sequence has in a separate batch. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/inference/sequence_batch.h"
#include "common/model/architecture.h"
#include "tests/support/cases/model_case.h"

enum { CHUNKS = 3, L = 32, PAD = 1, MOST = 64 };

static const uint32_t lengths[] = {28, 22, 17, 13, 9, 8, 5, 4, 3, 3, 2, 1};
enum { SEQUENCES = sizeof lengths / sizeof *lengths };

static void sequence(uint32_t i, int32_t *tokens)
{
  for (uint32_t t = 0; t < lengths[i]; t++) tokens[t] = (int32_t)(2 + (t * 7 + i * 5) % 9);
}

/* Adds all sequences that fit; added[k] is the index of the k-th of them. */
static struct plm_sequence_batch *filled(const struct plm_model_config *config,
                                         uint32_t added[SEQUENCES])
{
  struct plm_sequence_batch *batch;
  int32_t tokens[L];
  uint32_t count = 0;
  assert_int_equal(plm_sequence_batch_open(config, PAD, CHUNKS, &batch, NULL), PLM_OK);
  plm_sequence_batch_reset(batch);
  for (uint32_t i = 0; i < SEQUENCES; i++) {
    sequence(i, tokens);
    if (plm_sequence_batch_add(batch, tokens, lengths[i])) added[count++] = i;
  }
  assert_int_equal(plm_sequence_batch_count(batch), count);
  assert_true(count >= 5);
  return batch;
}

static void tokens_are_where_they_are_said_to_be(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    const struct plm_model_config config = case_config((enum plm_architecture)architecture, 6, L);
    const uint32_t alignment = plm_architecture_group(&config);
    uint32_t added[SEQUENCES];
    struct plm_sequence_batch *batch = filled(&config, added);
    int32_t tokens[L];
    bool taken[CHUNKS * L] = {false};
    const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
    const int32_t *inputs = plm_sequence_batch_inputs(batch);
    assert_int_equal(chunks->chunks, CHUNKS);
    assert_int_equal(chunks->max_length, L);
    const uint32_t count = plm_sequence_batch_count(batch);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t row = plm_sequence_batch_row(batch, i);
      assert_int_equal(row % alignment, 0);
      sequence(added[i], tokens);
      assert_memory_equal(inputs + row, tokens, lengths[added[i]] * sizeof *tokens);
      for (uint32_t t = 0; t < lengths[added[i]]; t++) {
        assert_false(taken[row + t]);
        taken[row + t] = true;
      }
    }
    for (uint32_t t = 0; t < CHUNKS * L; t++) {
      if (!taken[t]) assert_int_equal(inputs[t], PAD);
    }
    uint32_t documents = 0;
    for (uint32_t c = 0; c < CHUNKS; c++) {
      for (uint32_t d = chunks->document_begin[c]; d < chunks->document_begin[c + 1]; d++) {
        const struct plm_chunk_document *document = &chunks->documents[d];
        assert_int_equal(c * L + document->start,
                         plm_sequence_batch_row(batch, (uint32_t)document->number));
        assert_int_equal(document->tokens, lengths[added[document->number]]);
        assert_int_equal(document->residues, document->tokens); /* it is whole */
        assert_int_equal(document->offset, 0);
        documents++;
      }
    }
    assert_int_equal(documents, count);
    plm_sequence_batch_close(batch);
  }
}

static void a_short_batch_is_no_longer_than_it_must_be(void **state)
{
  (void)state;
  const struct plm_model_config config = case_config(PLM_PATCH_UNET, 6, L);
  const int32_t tokens[5] = {0, 4, 5, 6, 2};
  struct plm_sequence_batch *batch;
  assert_int_equal(plm_sequence_batch_open(&config, PAD, CHUNKS, &batch, NULL), PLM_OK);
  plm_sequence_batch_reset(batch);
  const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
  assert_int_equal(chunks->chunks, 0);
  assert_int_equal(chunks->max_length, 0);
  assert_true(plm_sequence_batch_add(batch, tokens, 5));
  chunks = plm_sequence_batch_finish(batch);
  assert_int_equal(chunks->chunks, 1);
  assert_int_equal(chunks->max_length, 8); /* two groups of four */
  plm_sequence_batch_close(batch);
}

/* The fullest chunk that has room takes a sequence, wherever it is. */
static void the_fullest_chunk_is_filled(void **state)
{
  (void)state;
  static const struct {
    uint32_t length, row;
  } rows[] = {{20, 0}, {26, L}, {5, L + 26}, {5, 20}, {8, 2 * L}, {7, 25}};
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 6, L);
  const int32_t tokens[L] = {0};
  struct plm_sequence_batch *batch;
  assert_int_equal(plm_sequence_batch_open(&config, PAD, CHUNKS, &batch, NULL), PLM_OK);
  plm_sequence_batch_reset(batch);
  for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_true(plm_sequence_batch_add(batch, tokens, rows[i].length));
  plm_sequence_batch_finish(batch);
  for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(plm_sequence_batch_row(batch, i), rows[i].row);
  plm_sequence_batch_close(batch);
}

/* Blocks are counted from the beginning of the chunk, so after another sequence they would be
 * elsewhere. */
static void with_blocks_a_sequence_has_a_chunk_of_its_own(void **state)
{
  (void)state;
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 6, L);
  config.pattern[config.pattern_count++] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK;
  const int32_t tokens[5] = {0, 4, 5, 6, 2};
  struct plm_sequence_batch *batch;
  assert_int_equal(plm_sequence_batch_open(&config, PAD, CHUNKS, &batch, NULL), PLM_OK);
  plm_sequence_batch_reset(batch);
  for (uint32_t i = 0; i < CHUNKS; i++) {
    assert_true(plm_sequence_batch_has_room(batch, 5));
    assert_true(plm_sequence_batch_add(batch, tokens, 5));
  }
  assert_false(plm_sequence_batch_has_room(batch, 1));
  assert_false(plm_sequence_batch_add(batch, tokens, 5));
  const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
  assert_int_equal(chunks->chunks, CHUNKS);
  for (uint32_t i = 0; i < CHUNKS; i++) assert_int_equal(chunks->documents[i].start, 0);
  plm_sequence_batch_close(batch);
}

/* All chunks are as long as the longest, so a sequence that would leave much of one empty has to
 * wait. */
static void with_blocks_a_batch_is_of_like_lengths(void **state)
{
  (void)state;
  for (int patches = 0; patches < 2;
       patches++) { /* with groups of four, 13 tokens take as much as 16 */
    struct plm_model_config config =
        case_config(patches == 1 ? PLM_PATCH_UNET : PLM_TRANSFORMER, 6, L);
    config.pattern[config.pattern_count++] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK;
    const int32_t tokens[16] = {0};
    struct plm_sequence_batch *batch;
    assert_int_equal(plm_sequence_batch_open(&config, PAD, CHUNKS, &batch, NULL), PLM_OK);
    plm_sequence_batch_reset(batch);
    assert_true(plm_sequence_batch_has_room(batch, 1)); /* an empty batch takes any sequence */
    assert_true(plm_sequence_batch_add(batch, tokens, 16));
    assert_true(plm_sequence_batch_add(batch, tokens, 12));
    assert_int_equal(plm_sequence_batch_has_room(batch, 9), patches == 1);
    assert_false(plm_sequence_batch_has_room(batch, 8));
    assert_false(plm_sequence_batch_add(batch, tokens, 8));
    assert_int_equal(plm_sequence_batch_count(batch), 2);
    plm_sequence_batch_close(batch);
  }
}

/* Hidden states (tokens, D) and logits (tokens, V) of one sequence, from its own batch or a shared
 * one. */
static void infer(struct model_case *c, struct plm_sequence_batch *batch, float *hidden,
                  float *logits)
{
  const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
  const int32_t *inputs = plm_sequence_batch_inputs(batch);
  plm_model_attention_masks(c->model, chunks, c->window, c->masks);
  assert_int_equal(plm_model_infer(c->model, &(struct plm_masked_batch){chunks, c->masks}, inputs,
                                   NULL, 0, hidden, logits, NULL),
                   PLM_OK);
}

static double largest_difference(const float *a, const float *b, size_t count)
{
  double largest = 0;
  for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)a[i] - b[i]));
  return largest;
}

/* On CPUs the bits are the same for a sequence at the beginning of a chunk; elsewhere it has other
 * rotary angles. */
static void packed_sequences_give_what_each_gives_alone(void **state)
{
  (void)state;
  for (int architecture = PLM_TRANSFORMER; architecture < PLM_ARCHITECTURES; architecture++) {
    struct plm_model_config config = case_config((enum plm_architecture)architecture, 6, L);
    case_alternate(&config, PLM_ATTENTION_LOCAL);
    config.window_end = 4;
    const struct plm_model_options options = {.max_chunks = CHUNKS};
    const size_t D = config.hidden_size, V = config.vocab_size;
    struct model_case c;
    model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 5);
    static float hidden[CHUNKS * L * 512], logits[CHUNKS * L * MOST];
    static float hidden_alone[L * 512], logits_alone[L * MOST];
    assert_true(D <= 512 && V <= MOST);
    uint32_t added[SEQUENCES];
    struct plm_sequence_batch *together = filled(&config, added), *alone;
    infer(&c, together, hidden, logits);
    const uint32_t chunk_length = plm_sequence_batch_finish(together)->max_length;
    assert_int_equal(plm_sequence_batch_open(&config, PAD, 1, &alone, NULL), PLM_OK);
    for (uint32_t i = 0; i < plm_sequence_batch_count(together); i++) {
      const uint32_t length = lengths[added[i]];
      int32_t tokens[L];
      sequence(added[i], tokens);
      plm_sequence_batch_reset(alone);
      assert_true(plm_sequence_batch_add(alone, tokens, length));
      infer(&c, alone, hidden_alone, logits_alone);
      const size_t row = plm_sequence_batch_row(together, i);
      const double h = largest_difference(hidden + row * D, hidden_alone, length * D);
      const double l = largest_difference(logits + row * V, logits_alone, length * V);
      const double allowed = row % chunk_length == 0 ? 0 : 1e-4;
      if (!(h <= allowed && l <= allowed))
        fail_msg("architecture %d, sequence %u: hidden differs by %.3g, logits by %.3g",
                 architecture, i, h, l);
    }
    plm_sequence_batch_close(alone);
    plm_sequence_batch_close(together);
    model_case_close(&c);
  }
}

/* Documents begin at each split token, and at the beginning of each sequence. */
static void sequences_are_split_on_demand(void **state)
{
  (void)state;
  enum { SPLIT = 31 };
  static const struct {
    int32_t tokens[8];
    uint32_t count;
  } inputs[] = {
      {{0, 5, 6, SPLIT, 7, SPLIT, SPLIT, 2}, 8}, {{0, 5, 6, 2}, 4}, {{SPLIT, 9, SPLIT}, 3}};
  static const uint32_t expected[][3] = {/* sequence, offset, tokens */
                                         {0, 0, 3}, {0, 3, 2}, {0, 5, 1}, {0, 6, 2},
                                         {1, 0, 4}, {2, 0, 2}, {2, 2, 1}};
  const struct plm_model_config config = case_config(PLM_TRANSFORMER, 6, L);
  struct plm_sequence_batch *batch;
  assert_int_equal(plm_sequence_batch_open(&config, PAD, 2, &batch, NULL), PLM_OK);
  for (int again = 0; again < 2; again++) {
    plm_sequence_batch_reset(batch);
    if (again == 1) plm_sequence_batch_split_at(batch, SPLIT);
    for (int i = 0; i < 3; i++)
      assert_true(plm_sequence_batch_add(batch, inputs[i].tokens, inputs[i].count));
    const struct plm_batch *chunks = plm_sequence_batch_finish(batch);
    assert_int_equal(chunks->chunks, 1);
    assert_int_equal(chunks->document_begin[1], again == 1 ? 7 : 3);
    for (uint32_t d = 0; d < 7 && again == 1; d++) {
      const struct plm_chunk_document *document = &chunks->documents[d];
      assert_int_equal(document->number, expected[d][0]);
      assert_int_equal(document->start,
                       plm_sequence_batch_row(batch, expected[d][0]) + expected[d][1]);
      assert_int_equal(document->tokens, expected[d][2]);
    }
  }
  plm_sequence_batch_close(batch);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_are_where_they_are_said_to_be),
      cmocka_unit_test(a_short_batch_is_no_longer_than_it_must_be),
      cmocka_unit_test(the_fullest_chunk_is_filled),
      cmocka_unit_test(with_blocks_a_sequence_has_a_chunk_of_its_own),
      cmocka_unit_test(with_blocks_a_batch_is_of_like_lengths),
      cmocka_unit_test(sequences_are_split_on_demand),
      cmocka_unit_test(packed_sequences_give_what_each_gives_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
