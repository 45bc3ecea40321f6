/* A step's chunks, rebuilt from `trace` and the sequences, and their masks by the Philox counters.
 */
#include "tests/integration/oracle/oracle.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLS = 0, PAD = 1, EOS = 2, UNK = 3, MASK = 32 }; /* of the esm tokenizer */

/* Philox4x32-10: Salmon et al. 2011. */
struct oracle_words oracle_philox(uint64_t seed, uint32_t x, uint64_t y, uint32_t purpose)
{
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  struct oracle_words c = {{x, (uint32_t)y, (uint32_t)(y >> 32), purpose}};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)c.w[0] * 0xD2511F53u, b = (uint64_t)c.w[2] * 0xCD9E8D57u;
    c = (struct oracle_words){{(uint32_t)(b >> 32) ^ c.w[1] ^ key[0], (uint32_t)b,
                               (uint32_t)(a >> 32) ^ c.w[3] ^ key[1], (uint32_t)a}};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static uint8_t token_of(char residue)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO"; /* ids from 4 */
  const char *place = strchr(letters, residue);
  return place == NULL ? UNK : (uint8_t)(4 + (place - letters));
}

static uint32_t field(const cJSON *document, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);
  if (!cJSON_IsNumber(item)) oracle_die("trace: \"%s\" is missing", name);
  return (uint32_t)item->valuedouble;
}

/* <cls> where the document begins, <eos> where it ends and there is room for it. */
static struct plm_chunk_document place(const struct oracle *o, const cJSON *document,
                                       uint8_t *chunk)
{
  const uint32_t index = field(document, "index"), offset = field(document, "offset");
  const uint32_t start = field(document, "start"), length = field(document, "length");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(document, "name");
  if (index >= o->sequence_count || start + length > o->model.max_length ||
      strcmp(name->valuestring, o->sequences[index].name) != 0)
    oracle_die("trace: document %u is not of this corpus, or leaves its chunk", index);
  const char *residues = o->sequences[index].residues;
  const uint32_t total = (uint32_t)strlen(residues);
  uint32_t at = start, next = offset;
  if (offset == 0) chunk[at++] = CLS;
  while (at < start + length && next < total) chunk[at++] = token_of(residues[next++]);
  if (at < start + length) chunk[at++] = EOS;
  if (at != start + length)
    oracle_die("trace: document %u is too short for %u tokens", index, length);
  return (struct plm_chunk_document){
      .number = index, .start = start, .tokens = length, .offset = offset, .residues = total};
}

static void fill(struct oracle *o, struct oracle_step *step)
{
  const uint32_t B = step->batch.chunks, L = o->model.max_length;
  uint32_t count = 0;
  uint64_t real = 0;
  memset(step->tokens, PAD, (size_t)B * L);
  for (uint32_t b = 0; b < B; b++) {
    if (step->batch.first_chunk + b >= o->trace_count) oracle_die("trace ends early");
    const cJSON *line = o->trace[step->batch.first_chunk + b], *document;
    cJSON_ArrayForEach(document, cJSON_GetObjectItemCaseSensitive(line, "documents"))
    {
      if (count == B * L) oracle_die("trace: too many documents");
      step->documents[count] = place(o, document, step->tokens + (size_t)b * L);
      real += step->documents[count++].tokens;
    }
    step->document_begin[b + 1] = count;
  }
  o->tokens += real;
  step->padding_fraction = 1 - (double)real / ((double)B * L);
}

/* ---- masks ---------------------------------------------------------------------------------- */

static bool is_causal(const struct oracle *o)
{
  return oracle_setting_is(o, "trainer.objective", "causal");
}

static bool is_mlm(const struct oracle *o, uint64_t s)
{
  return oracle_setting_is(o, "trainer.objective", "mlm") ||
         (oracle_setting_is(o, "trainer.objective", "masked_diffusion") &&
          (double)s < oracle_number(o, "trainer.masking.mlm_warmup_steps"));
}

static double chunk_rate(const struct oracle *o, uint64_t s, uint32_t i, uint32_t B)
{
  if (is_causal(o)) return 0;
  if (is_mlm(o, s)) {
    const double end = oracle_number(o, "trainer.masking.mask_rate");
    const double start = oracle_number(o, "trainer.masking.starting_mask_rate");
    const double steps = oracle_number(o, "trainer.masking.mask_rate_steps");
    return (double)s >= steps ? end : start + (end - start) * ((double)s / steps);
  }
  const uint32_t word = oracle_philox(o->seed, 0, s + (o->fault == ORACLE_FAULT_RATE), 1).w[0];
  double u = (word >> 8) * 0x1p-24;
  if (oracle_setting_is(o, "trainer.masking.rate_scope", "chunk")) u += (double)i / B;
  return 1e-3 + 0.999 * (u - floor(u));
}

static void target(struct oracle_step *step, uint32_t position, int32_t label, double weight)
{
  step->positions[step->rows] = (int32_t)position;
  step->labels[step->rows] = label;
  step->weights[step->rows++] = (float)weight;
}

/* Chunk b at a rate; returns its maskable tokens. */
static uint64_t mask_chunk(const struct oracle *o, struct oracle_step *step, uint32_t b,
                           double rate, double weight)
{
  const double random = oracle_number(o, "trainer.masking.random_fraction");
  const double keep = oracle_number(o, "trainer.masking.keep_fraction");
  const uint32_t L = o->model.max_length;
  const uint64_t g = step->batch.first_chunk + b + (o->fault == ORACLE_FAULT_CHUNK);
  uint64_t maskable = 0;
  for (uint32_t i = 0; i < L; i++) {
    int32_t *token = &step->inputs[b * L + i];
    if (*token == CLS || *token == PAD || *token == EOS) continue;
    maskable++;
    const uint32_t x = i + (o->fault == ORACLE_FAULT_POSITION);
    const struct oracle_words draw = oracle_philox(o->seed, x, g, 0);
    if ((draw.w[0] >> 8) >= ceil(rate * 0x1p24)) continue;
    target(step, b * L + i, *token, weight);
    const uint32_t residue = draw.w[o->fault == ORACLE_FAULT_RESIDUE ? 3 : 2];
    if ((draw.w[1] >> 8) < ceil((1 - random - keep) * 0x1p24))
      *token = MASK;
    else if ((draw.w[1] >> 8) < ceil((1 - keep) * 0x1p24))
      *token = 4 + (int32_t)((uint64_t)residue * 20 >> 32);
  }
  return maskable;
}

/* Each position predicts the next token of its document. */
static void shift_chunk(const struct oracle *o, struct oracle_step *step, uint32_t b)
{
  for (uint32_t d = step->document_begin[b]; d < step->document_begin[b + 1]; d++) {
    const uint32_t first = b * o->model.max_length + step->documents[d].start;
    for (uint32_t i = first; i + 1 < first + step->documents[d].tokens; i++)
      if (o->fault != ORACLE_FAULT_LAST_TARGET || step->tokens[i + 1] != EOS)
        target(step, i, step->tokens[i + 1], 1);
  }
}

void oracle_step_open(struct oracle *o, uint64_t s, struct oracle_step *step)
{
  const uint32_t L = o->model.max_length;
  const uint32_t B = (uint32_t)oracle_number(o, "trainer.batch_tokens") / L;
  const size_t places = (size_t)B * L;
  *step = (struct oracle_step){
      .batch = {.chunks = B, .max_length = L, .token_bytes = 1, .first_chunk = s * B},
      .tokens = oracle_memory(places, 1),
      .documents = oracle_memory(places, sizeof *step->documents),
      .document_begin = oracle_memory(B + 1, sizeof(uint32_t)),
      .inputs = oracle_memory(places, sizeof(int32_t)),
      .positions = oracle_memory(places, sizeof(int32_t)),
      .labels = oracle_memory(places, sizeof(int32_t)),
      .weights = oracle_memory(places, sizeof(float))};
  fill(o, step);
  step->batch.tokens = step->tokens;
  step->batch.documents = step->documents;
  step->batch.document_begin = step->document_begin;
  for (size_t i = 0; i < places; i++) step->inputs[i] = step->tokens[i];
  uint64_t maskable = 0;
  for (uint32_t b = 0; b < B; b++) {
    const double rate = chunk_rate(o, s, b, B);
    step->mask_rate += rate / B;
    if (is_causal(o))
      shift_chunk(o, step, b);
    else
      maskable += mask_chunk(o, step, b, rate, is_mlm(o, s) ? 1 : 1 / rate);
  }
  step->count = is_causal(o) || is_mlm(o, s) ? step->rows : maskable;
}

void oracle_step_close(struct oracle_step *step)
{
  free(step->tokens);
  free(step->documents);
  free(step->document_begin);
  free(step->inputs);
  free(step->positions);
  free(step->labels);
  free(step->weights);
}
