/* A step's chunks, rebuilt from `trace` and the sequences. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/oracle/oracle.h"

static uint8_t token_of(char residue)
{
  static const char letters[] = "LAGVSERTIDPKQNFYMHWCXBUZO"; /* ids from 4 */
  const char *place = strchr(letters, residue);
  return place == NULL ? REFERENCE_UNK : (uint8_t)(4 + (place - letters));
}

static uint32_t field(const cJSON *document, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);
  if (!cJSON_IsNumber(item)) oracle_die("trace: \"%s\" is missing", name);
  return (uint32_t)item->valuedouble;
}

/* Writes a document's tokens to its chunk: <cls> if it begins here, <eos> if it ends here. */
static struct plm_chunk_document place(const struct oracle *o, const cJSON *document,
                                       uint8_t *chunk)
{
  const uint32_t index = field(document, "index"), offset = field(document, "offset");
  const uint32_t start = field(document, "start"), length = field(document, "length");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(document, "name");
  if (index >= o->sequence_count || start + length > o->config.model.max_length ||
      strcmp(name->valuestring, o->sequences[index].name) != 0)
    oracle_die("trace: document %u is not of this corpus, or leaves its chunk", index);
  const char *residues = o->sequences[index].residues;
  const uint32_t total = (uint32_t)strlen(residues);
  uint32_t at = start, next = offset;
  if (offset == 0) chunk[at++] = REFERENCE_CLS;
  while (at < start + length && next < total) chunk[at++] = token_of(residues[next++]);
  if (at < start + length) chunk[at++] = REFERENCE_EOS;
  if (at != start + length)
    oracle_die("trace: document %u is too short for %u tokens", index, length);
  return (struct plm_chunk_document){
      .number = index, .start = start, .tokens = length, .offset = offset, .residues = total};
}

static void fill(struct oracle *o, struct oracle_step *step)
{
  const uint32_t B = step->batch.chunks, L = o->config.model.max_length;
  uint32_t count = 0;
  uint64_t real = 0;
  memset(step->tokens, REFERENCE_PAD, (size_t)B * L);
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

void oracle_step_open(struct oracle *o, uint64_t s, struct oracle_step *step)
{
  const uint32_t L = o->config.model.max_length;
  const uint32_t B = (uint32_t)oracle_number(o, "trainer.batch_tokens") / L;
  const size_t places = (size_t)B * L;
  *step = (struct oracle_step){
      .batch = {.chunks = B, .max_length = L, .token_bytes = 1, .first_chunk = s * B},
      .tokens = oracle_memory(places, 1),
      .documents = oracle_memory(places, sizeof *step->documents),
      .document_begin = oracle_memory(B + 1, sizeof(uint32_t)),
      .weights = oracle_memory(places, sizeof(float))};
  reference_masks_open(&step->masks, (uint32_t)places);
  fill(o, step);
  step->batch.tokens = step->tokens;
  step->batch.documents = step->documents;
  step->batch.document_begin = step->document_begin;
  for (uint32_t b = 0; b < B; b++) step->mask_rate += reference_mask_rate(&o->rules, s, b, B) / B;
  reference_masks_draw(&o->rules, &step->batch, s, 0, B, &step->masks);
  for (uint32_t i = 0; i < step->masks.rows; i++) step->weights[i] = (float)step->masks.weights[i];
}

void oracle_step_close(struct oracle_step *step)
{
  free(step->tokens);
  free(step->documents);
  free(step->document_begin);
  reference_masks_close(&step->masks);
  free(step->weights);
}
