/* What `embed` writes for many sequences, of every kind and of inner layers, against the hidden
 * states and logits of each sequence by itself. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/architecture.h"
#include "evaluator/embed/embed.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, SEQUENCES = 40, MOST_WIDTH = 1024 };

/* The length of sequence n in residues; some are longer than the model takes. */
static uint32_t length_of(uint32_t n)
{
  return n % 13 == 5 ? L - 2 + n % 3 : 1 + plm_philox(6, n, 0, 0).w[0] % (L - 2);
}

/* The tokens of sequence n as the model takes them. */
static uint32_t tokens_of(const struct inference_case *c, uint32_t n, int32_t tokens[L])
{
  const struct plm_tokenizer *words = c->inference.tokenizer;
  const uint32_t length = length_of(n);
  tokens[0] = words->cls;
  for (uint32_t i = 0; i < length && i + 1 < L; i++)
    tokens[i + 1] = plm_tokenizer_encode(words, (uint8_t)task_files_letter(n, i));
  if (length + 1 < L) tokens[length + 1] = words->eos;
  return length + 2 < L ? length + 2 : L;
}

/* ---- what is expected -------------------------------------------------------------------------
 */

struct alone {
  struct inference_case *c;
  const uint32_t *states; /* (count), NULL: the last hidden state */
  uint32_t count, width;
  float room[L * MOST_WIDTH], values[L * MOST_WIDTH]; /* values (tokens, width) */
};

static uint32_t level_of(const struct alone *alone, uint32_t state, uint32_t *width)
{
  struct plm_block_shape shape = {.level = 0, .width = alone->c->inference.config.hidden_size};
  if (state > 0) plm_architecture_block(&alone->c->inference.config, state - 1, &shape);
  *width = shape.width;
  return (uint32_t)shape.level;
}

static void alone_on_state(void *context, uint32_t state)
{
  struct alone *alone = context;
  uint32_t offset = 0, width;
  for (uint32_t i = 0; i < alone->count; i++, offset += width) {
    const uint32_t level = level_of(alone, alone->states[i], &width);
    for (uint32_t t = 0; t < L && alone->states[i] == state; t++)
      memcpy(alone->values + t * alone->width + offset, alone->room + (t >> level) * width,
             width * sizeof(float));
  }
}

static void run_alone(struct alone *alone, const int32_t *tokens, uint32_t count, bool logits)
{
  struct plm_inference *inference = &alone->c->inference;
  int32_t padded[L];
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = count, .residues = count};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = L, .document_begin = begin, .documents = &document};
  for (uint32_t t = 0; t < L; t++) padded[t] = t < count ? tokens[t] : inference->tokenizer->pad;
  if (alone->states == NULL) {
    alone->width = logits ? inference->config.vocab_size : inference->config.hidden_size;
    assert_int_equal(plm_inference_run(inference, &batch, padded, NULL, 0,
                                       logits ? NULL : alone->values, logits ? alone->values : NULL,
                                       NULL),
                     PLM_OK);
    return;
  }
  const struct plm_state_taps taps = {.states = alone->states,
                                      .count = alone->count,
                                      .room = alone->room,
                                      .on_state = alone_on_state,
                                      .context = alone};
  alone->width = 0;
  for (uint32_t i = 0, width; i < alone->count; i++, alone->width += width)
    level_of(alone, alone->states[i], &width);
  assert_true(alone->width <= MOST_WIDTH);
  assert_int_equal(plm_inference_run_states(inference, &batch, padded, &taps, NULL), PLM_OK);
}

/* ---- running it -------------------------------------------------------------------------------
 */

static char *embed(struct inference_case *c, const char *model, enum plm_embed_kind kind,
                   const char *pooling, const char *layers, bool json)
{
  const char *const inputs[] = {scratch_path("in.fasta")};
  struct plm_embed_request request = {.of.checkpoint = model,
                                      .of.inputs = inputs,
                                      .of.input_count = 1,
                                      .of.output = scratch_path("out.safetensors"),
                                      .kind = kind,
                                      .layers = layers,
                                      .of.batch_tokens = 2 * L + 5, /* two chunks */
                                      .of.json = json};
  struct plm_error error = {0};
  if (pooling != NULL) assert_int_equal(plm_pooling_parse(pooling, &request.pooling, NULL), PLM_OK);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_embed(&request, c->inference.ops, &error);
  char *text = strdup(captured_end());
  if (status != PLM_OK) fail_msg("%s", error.what);
  return text;
}

static const float *tensor_of(const struct plm_safetensors *file, const char *name, uint64_t rows,
                              uint64_t columns)
{
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->shape[0], rows);
  assert_int_equal(tensor->shape[1], columns);
  return tensor->data;
}

static void near(const float *got, const float *expected, uint32_t count, uint32_t n)
{
  for (uint32_t i = 0; i < count; i++)
    if (!(fabsf(got[i] - expected[i]) <= 2e-4f * (1 + fabsf(expected[i]))))
      fail_msg("sequence %u, value %u: %.7g is not %.7g", n, i, (double)got[i],
               (double)expected[i]);
}

/* A row for each token. states as the text in layers says. */
static void tokens_have_their_rows(enum plm_architecture architecture, bool logits,
                                   const char *layers, const uint32_t *states, uint32_t count)
{
  static struct alone alone;
  struct inference_case c;
  struct plm_safetensors *file;
  char model[200];
  inference_case_open(&c, architecture, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  snprintf(model, sizeof model, "%.199s", scratch_path("model"));
  inference_case_save(&c, model);
  free(embed(&c, model, logits ? PLM_EMBED_LOGITS : PLM_EMBED_PER_TOKEN, NULL, layers, false));
  assert_int_equal(plm_safetensors_open(scratch_path("out.safetensors"), &file, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_count(file), SEQUENCES);
  alone = (struct alone){.c = &c, .states = states, .count = count};
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    int32_t tokens[L];
    char name[16];
    const uint32_t T = tokens_of(&c, n, tokens);
    run_alone(&alone, tokens, T, logits);
    snprintf(name, sizeof name, "%u", n);
    near(tensor_of(file, name, T, alone.width), alone.values, T * alone.width, n);
  }
  plm_safetensors_close(file);
  inference_case_close(&c);
}

static void hidden_states_and_logits(void **state)
{
  (void)state;
  static const uint32_t two[] = {2}, three[] = {2, 0, 6}, six[] = {3, 4, 1, 0, 2, 6};
  task_files_fasta(scratch_path("in.fasta"), SEQUENCES, length_of);
  plm_log_init("t", PLM_LOG_ERROR);
  tokens_have_their_rows(PLM_TRANSFORMER, false, NULL, NULL, 0);
  tokens_have_their_rows(PLM_PATCH_UNET, true, NULL, NULL, 0);
  tokens_have_their_rows(PLM_TRANSFORMER, false, "2", two, 1);
  tokens_have_their_rows(PLM_UNET, false, "2,0,6", three, 3);
  tokens_have_their_rows(PLM_PATCH_UNET, false, "3,4,1,0,2,6", six, 6);
}

static void pools(const char *layers, const uint32_t *states, uint32_t count)
{
  static struct alone alone;
  static double mean[MOST_WIDTH];
  static float expected[4 * MOST_WIDTH];
  struct inference_case c;
  struct plm_safetensors *file;
  char model[200];
  inference_case_open(&c, PLM_PATCH_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_BYTE, L, 2);
  snprintf(model, sizeof model, "%.199s", scratch_path("model"));
  inference_case_save(&c, model);
  free(embed(&c, model, PLM_EMBED_POOLED, "cls,mean,std,max", layers, false));
  assert_int_equal(plm_safetensors_open(scratch_path("out.safetensors"), &file, NULL), PLM_OK);
  alone = (struct alone){.c = &c, .states = states, .count = count};
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    int32_t tokens[L];
    const uint32_t T = tokens_of(&c, n, tokens);
    run_alone(&alone, tokens, T, false);
    const uint32_t width = alone.width,
                   residues = T - 1 - (tokens[T - 1] == c.inference.tokenizer->eos);
    for (uint32_t d = 0; d < width; d++) {
      double squares = 0;
      float most = -INFINITY;
      mean[d] = 0;
      for (uint32_t t = 1; t <= residues; t++)
        mean[d] += (double)alone.values[t * width + d] / residues;
      for (uint32_t t = 1; t <= residues; t++) {
        most = fmaxf(most, alone.values[t * width + d]);
        squares += pow((double)alone.values[t * width + d] - mean[d], 2);
      }
      expected[d] = alone.values[d];
      expected[width + d] = (float)mean[d];
      expected[2 * width + d] = (float)sqrt(squares / residues);
      expected[3 * width + d] = most;
    }
    const float *rows = tensor_of(file, "embeddings", SEQUENCES, 4 * width);
    near(rows + n * 4 * width, expected, 4 * width, n);
  }
  plm_safetensors_close(file);
  inference_case_close(&c);
}

static void pooled_states(void **state)
{
  (void)state;
  static const uint32_t two[] = {1, 6};
  task_files_fasta(scratch_path("in.fasta"), SEQUENCES, length_of);
  plm_log_init("t", PLM_LOG_ERROR);
  pools(NULL, NULL, 0);
  pools("1,6", two, 2);
}

/* ---- the summary ------------------------------------------------------------------------------
 */

/* The numbers of the text or of the JSON object that depend on time. */
static double number_after(const char *text, const char *before)
{
  const char *found = strstr(text, before);
  if (found == NULL) fail_msg("no %s in %s", before, text);
  return strtod(found + strlen(before), NULL);
}

static void summaries_are_whole(void **state)
{
  (void)state;
  struct inference_case c;
  char model[200];
  char expected[2048];
  uint32_t tokens = 0, cut = 0;
  task_files_fasta(scratch_path("in.fasta"), SEQUENCES, length_of);
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  snprintf(model, sizeof model, "%.199s", scratch_path("model"));
  inference_case_save(&c, model);
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    int32_t ignored[L];
    tokens += tokens_of(&c, n, ignored);
    cut += length_of(n) + 2 > L;
  }
  assert_true(cut > 0);
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  char *json = embed(&c, model, PLM_EMBED_POOLED, "max,cls", "0,last", true);
  char *text = embed(&c, model, PLM_EMBED_POOLED, "mean", NULL, false);
  char *logits = embed(&c, model, PLM_EMBED_LOGITS, NULL, NULL, false);
  captured_end();
  const double padding = number_after(json, "\"padding_fraction\":");
  assert_true(padding > 0 && padding < 0.5);
  snprintf(
      expected, sizeof expected,
      "{\"output\":\"%s\",\"checkpoint\":\"%s\",\"weights\":\"model\",\"kind\":\"pooled\","
      "\"pooling\":\"max,cls\",\"layers\":\"0,6\",\"width\":128,\"sequences\":40,\"tokens\":%u,"
      "\"bytes\":",
      scratch_path("out.safetensors"), model, tokens);
  assert_memory_equal(json, expected, strlen(expected));
  snprintf(expected, sizeof expected,
           ",\"bad_records\":0,\"cut\":%u,\"unknown_residues\":0,\"resumed_sequences\":0,", cut);
  assert_non_null(strstr(json, expected));
  assert_true(
      fabs(number_after(json, "\"tokens_per_second\":") * number_after(json, "\"seconds\":") -
           tokens) < 1);
  snprintf(expected, sizeof expected,
           "checkpoint   %s (weights: model)\nsequences    40, %u tokens, %u cut\n"
           "output       %s: 40 x 32 (mean), ",
           model, tokens, cut, scratch_path("out.safetensors"));
  assert_memory_equal(text, expected, strlen(expected));
  snprintf(expected, sizeof expected, " kB\npadding      %.2f %%\ntime         ", 100 * padding);
  assert_non_null(strstr(text, expected));
  assert_non_null(strstr(logits, ": logits of 33 for each token, "));
  free(json);
  free(text);
  free(logits);
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hidden_states_and_logits),
      cmocka_unit_test(pooled_states),
      cmocka_unit_test(summaries_are_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
