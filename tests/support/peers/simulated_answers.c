/* The corpora that simulated packers serve, and their answers, true and false. */
#include "tests/support/peers/simulated_answers.h"

#include <stdlib.h>
#include <string.h>

#include "common/wire/data.h"

/* ---- the corpus --------------------------------------------------------------------------- */

/* One for each way to truncate, without and with labels; the others are the same with other
 * sequences and labels. */
enum { TRUNCATIONS = PLM_TRUNCATE_SPLIT + 1 };
static struct small_corpus corpora[2][TRUNCATIONS], labelled[2][TRUNCATIONS];

int sim_corpora_open(void **state)
{
  enum { DOCUMENTS = 1500, SHORTEST = 20, LONGEST = 150 };
  struct plm_plan_parameters plan = {.seed = 7,
                                     .max_length = 256,
                                     .alignment = 4,
                                     .window_groups = 1,
                                     .packing = PLM_PACKING_BEST_FIT,
                                     .tokenizer = PLM_TOKENIZER_ESM,
                                     .shuffle = true};
  (void)state;
  for (int other = 0; other < 2; other++)
    for (int truncate = 0; truncate < TRUNCATIONS; truncate++) {
      plan.truncate = (enum plm_truncate)truncate;
      small_corpus_open(&corpora[other][truncate], &plan, DOCUMENTS, SHORTEST, LONGEST,
                        (uint32_t)other + 1);
      small_corpus_open_labelled(&labelled[other][truncate], &plan, DOCUMENTS, SHORTEST, LONGEST,
                                 (uint32_t)other + 1);
    }
  return 0;
}

int sim_corpora_close(void **state)
{
  (void)state;
  for (int other = 0; other < 2; other++)
    for (int truncate = 0; truncate < TRUNCATIONS; truncate++) {
      small_corpus_close(&corpora[other][truncate]);
      small_corpus_close(&labelled[other][truncate]);
    }
  return 0;
}

void sim_draw_corpus(struct sim_world *world)
{
  const uint32_t truncate = sim_below(world, TRUNCATIONS);
  const bool labels = world->seed % 2 == 1;
  world->corpus = labels ? &labelled[0][truncate] : &corpora[0][truncate];
  world->other = labels ? &labelled[1][truncate] : &corpora[1][truncate];
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Whether the packer lies now, in the way that it has. */
static bool lies(struct sim_world *world, struct sim_packer *packer, enum sim_lie lie)
{
  if (!packer->liar || packer->lie != lie || !sim_chance(world, packer->lie_percent)) return false;
  packer->lies++;
  return true;
}

static void flip_bit(struct sim_world *world, uint8_t *bytes, size_t size)
{
  bytes[sim_below(world, (uint32_t)size)] ^= (uint8_t)(1u << sim_below(world, 8));
}

/* Whether it refuses to answer, or says nothing. */
static bool declines(struct sim_world *world, struct sim_packer *packer,
                     const struct plm_header *asked, int64_t after_ms)
{
  uint8_t payload[4 + PLM_WIRE_TEXT];
  struct plm_header header = *asked;
  if (world->now_ms >= world->calm_ms) return false;
  if (sim_chance(world, packer->mute_percent)) return true;
  if (!sim_chance(world, packer->nack_percent)) return false;
  header.type = PLM_MESSAGE_NACK;
  sim_say(world, packer, &header, after_ms, payload,
          plm_nack_encode(PLM_NACK_FAILED, "simulated", payload));
  return true;
}

void sim_answer_prove(struct sim_world *world, struct sim_packer *packer,
                      const struct plm_header *asked, const uint8_t *question, size_t question_size)
{
  static uint8_t payload[PLM_WIRE_PROOF_LIMIT];
  const int64_t after_ms = sim_below(world, packer->service_ms + 1);
  struct plm_header header = *asked;
  struct plm_prove prove;
  struct plm_error error;
  if (declines(world, packer, &header, after_ms)) return;
  PLM_ASSERT(plm_prove_decode(question, question_size, &prove, &error) == PLM_OK);
  const bool other = lies(world, packer, SIM_LIE_TABLE_OTHER);
  header.type = PLM_MESSAGE_PROOF;
  size_t size = small_corpus_proof(other ? world->other : world->corpus, header.epoch, header.first,
                                   prove.group, &header.count, payload);
  PLM_ASSERT(size > 0);
  if (lies(world, packer, SIM_LIE_TABLE)) flip_bit(world, payload, size);
  if (lies(world, packer, SIM_LIE_TABLE_NONE)) size = header.count = 0;
  sim_say(world, packer, &header, after_ms, payload, size);
}

/* Swaps the first two chunks of a payload that have the same size. False: there are none. */
static bool swap_chunks(const struct small_window *window, uint32_t first, uint32_t count,
                        uint8_t *payload)
{
  const uint64_t *offset = window->offset + first;
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = i + 1; j < count; j++) {
      const uint64_t size = offset[i + 1] - offset[i];
      if (offset[j + 1] - offset[j] != size) continue;
      for (uint64_t b = 0; b < size; b++) {
        uint8_t *one = payload + (offset[i] - offset[0]) + b;
        uint8_t *other = payload + (offset[j] - offset[0]) + b;
        const uint8_t kept = *one;
        *one = *other;
        *other = kept;
      }
      return true;
    }
  return false;
}

/* Flips a bit of the first chunk's labels, or, without labels, of anything. */
static void flip_label(struct sim_world *world, const struct small_window *window, uint32_t first,
                       uint8_t *payload, size_t size)
{
  const struct small_corpus *corpus = world->corpus;
  const uint64_t begin = plm_data_labels_at(corpus->train.tokenizer, corpus->parameters.max_length,
                                            &window->window, first);
  const uint64_t end = window->offset[first + 1] - window->offset[first];
  if (begin == end)
    flip_bit(world, payload, size);
  else
    flip_bit(world, payload + begin, end - begin);
}

void sim_answer_get(struct sim_world *world, struct sim_packer *packer,
                    const struct plm_header *asked, const uint8_t *question, size_t question_size)
{
  const int64_t after_ms = sim_below(world, packer->service_ms + 1);
  struct plm_header header = *asked;
  struct plm_get get;
  struct plm_error error;
  if (declines(world, packer, &header, after_ms)) return;
  PLM_ASSERT(plm_get_decode(question, question_size, &get, &error) == PLM_OK);
  struct small_corpus *corpus = lies(world, packer, SIM_LIE_OTHER) ? world->other : world->corpus;
  const struct small_window *window = small_corpus_window(corpus, header.epoch, get.window);
  const uint32_t first = (uint32_t)header.first;
  PLM_ASSERT(first + header.count <= window->window.chunks);
  size_t size = window->offset[first + header.count] - window->offset[first];
  uint8_t *payload = malloc(size);
  PLM_ASSERT(payload != NULL);
  memcpy(payload, window->bytes + window->offset[first], size);
  if (lies(world, packer, SIM_LIE_SWAP) && !swap_chunks(window, first, header.count, payload))
    packer->lies--;
  if (lies(world, packer, SIM_LIE_BIT)) flip_bit(world, payload, size);
  if (lies(world, packer, SIM_LIE_LABEL)) flip_label(world, window, first, payload, size);
  if (lies(world, packer, SIM_LIE_SHORT)) size -= 1 + sim_below(world, 16);
  header.type = PLM_MESSAGE_DATA;
  sim_say(world, packer, &header, after_ms, payload, size);
  free(payload);
}
