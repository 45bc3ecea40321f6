/* What `generate` writes and traces, for many sequences at a time, against the rules of sampling.h
 * applied to each sequence by itself. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/numbers/philox.h"
#include "evaluator/generate/generate_work.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

enum { MOST_EVENTS = 4096, SEED = 11 };

/* A line of the trace. */
struct event {
  unsigned step, position;
  int token;
  double probability;
  bool remasked;
};

struct events {
  struct event items[MOST_EVENTS];
  uint32_t count;
};

static void note(struct events *events, unsigned step, unsigned position,
                 struct plm_sampled sampled, bool remasked)
{
  assert_true(events->count < MOST_EVENTS);
  events->items[events->count++] =
      (struct event){step, position, sampled.token, sampled.probability, remasked};
}

/* ---- running it ---- */

struct made {
  struct inference_case c;
  struct plm_sampler sampler;
  uint64_t sequences, residues;
  char *fasta, *trace;
};

static void generate(struct made *made, const struct plm_generation_options *given, double top_p,
                     uint32_t steps, double remask)
{
  struct plm_generation_options options = *given;
  struct plm_generate_work work = {.inference = &made->c.inference};
  struct plm_error error = {0};
  size_t size;
  options.tokenizer = made->c.inference.tokenizer;
  options.max_length = plm_inference_most(&made->c.inference);
  assert_int_equal(plm_generation_queue_open(&options, &work.queue, &error), PLM_OK);
  assert_int_equal(plm_fasta_writer_open(scratch_path("out.fasta"), &work.writer, NULL), PLM_OK);
  assert_int_equal(plm_output_open(scratch_path("trace"), &work.trace, NULL), PLM_OK);
  plm_sampler_init(&work.sampler, options.tokenizer, options.causal, 1, top_p, 0, SEED);
  plm_progress_begin(&work.progress, "generate");
  const plm_status status = options.causal ? plm_generate_causal(&work, &error)
                                           : plm_generate_masked(&work, steps, remask, &error);
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_step_trace_finish(work.trace, NULL), PLM_OK);
  assert_int_equal(plm_fasta_writer_finish(work.writer, NULL), PLM_OK);
  plm_output_close(work.trace);
  plm_fasta_writer_close(work.writer);
  plm_generation_queue_close(work.queue);
  made->sampler = work.sampler;
  made->sequences = work.sequences;
  made->residues = work.residues;
  assert_int_equal(plm_file_read(scratch_path("out.fasta"), 1 << 24, &made->fasta, &size, NULL),
                   PLM_OK);
  assert_int_equal(plm_file_read(scratch_path("trace"), 1 << 26, &made->trace, &size, NULL),
                   PLM_OK);
}

static void close_made(struct made *made)
{
  free(made->fasta);
  free(made->trace);
}

/* The lines of the trace about one sequence are these events. */
static void traced(const struct made *made, unsigned sequence, const struct events *expected)
{
  char begin[64];
  uint32_t count = 0;
  const int length = snprintf(begin, sizeof begin, "{\"sequence\":%u,", sequence);
  for (const char *line = made->trace; *line != '\0'; line = strchr(line, '\n') + 1) {
    if (strncmp(line, begin, (size_t)length) != 0) continue;
    const struct event *event = &expected->items[count];
    assert_true(count++ < expected->count);
    const struct plm_tokenizer *tokenizer = made->c.inference.tokenizer;
    char text[256], residue[32] = "";
    if (tokenizer->kind == PLM_TOKENIZER_ESM && event->token != tokenizer->eos)
      snprintf(residue, sizeof residue, ",\"residue\":\"%s\"",
               plm_token_text(tokenizer, (uint32_t)event->token));
    const int same = snprintf(
        text, sizeof text, "%s\"step\":%u,\"position\":%u,\"token\":%d%s,\"probability\":", begin,
        event->step, event->position, event->token, residue);
    if (strncmp(line, text, (size_t)same) != 0)
      fail_msg("event %u: %.*s is not %s", count - 1, (int)strcspn(line, "\n"), line, text);
    char *end;
    assert_true(fabs(strtod(line + same, &end) - event->probability) < 1e-4);
    const char *ending = event->remasked ? ",\"remasked\":true}\n" : "}\n";
    assert_memory_equal(end, ending, strlen(ending));
  }
  assert_int_equal(count, expected->count);
}

/* The next record of the FASTA; *at moves behind it. */
static void wrote(const char **at, const char *name, const uint8_t *residues, size_t size)
{
  const size_t name_size = strlen(name);
  if ((*at)[0] != '>' || strncmp(*at + 1, name, name_size) != 0 || (*at)[1 + name_size] != '\n')
    fail_msg("%.*s is not >%s", (int)strcspn(*at, "\n"), *at, name);
  *at += name_size + 2;
  assert_memory_equal(*at, residues, size);
  assert_int_equal((*at)[size], '\n');
  *at += size + 1;
}

/* ---- masked models ---- */

static bool more_certain(const struct event *a, const struct event *b)
{
  return a->probability != b->probability ? a->probability > b->probability
                                          : a->position < b->position;
}

/* Sorts by certainty, or the other way round, in a simple way. */
static void sort_events(struct event *items, uint32_t count, bool doubt)
{
  for (uint32_t i = 1; i < count; i++)
    for (uint32_t k = i; k > 0 && more_certain(&items[k], &items[k - 1]) != doubt; k--) {
      const struct event other = items[k];
      items[k] = items[k - 1];
      items[k - 1] = other;
    }
}

/* Fills the masks of one sequence, and lists what happens. Returns how many residues are filled. */
static uint32_t fill_alone(struct made *made, uint64_t number, int32_t *tokens, uint32_t count,
                           uint32_t steps, double remask, struct events *events)
{
  const struct plm_tokenizer *tokenizer = made->c.inference.tokenizer;
  const uint32_t V = made->c.inference.config.vocab_size;
  struct event chosen[64];
  double certainty[64];
  uint32_t filled = 0;
  for (uint32_t t = 0; t < count; t++) certainty[t] = -1;
  events->count = 0;
  for (uint32_t pass = 0; pass < steps; pass++) {
    uint32_t left = 0;
    const float *logits = inference_case_logits(&made->c, tokens, count);
    for (uint32_t t = 0; t < count; t++) {
      if (tokens[t] != tokenizer->mask) continue;
      const struct plm_sampled sampled =
          plm_sampler_choose(&made->sampler, logits + (size_t)t * V, t, number, pass);
      chosen[left++] = (struct event){pass, t, sampled.token, sampled.probability, false};
    }
    if (left == 0) break;
    sort_events(chosen, left, false);
    const uint32_t now = (uint32_t)ceil((double)left / (steps - pass));
    for (uint32_t i = 0; i < now; i++) {
      tokens[chosen[i].position] = chosen[i].token;
      certainty[chosen[i].position] = chosen[i].probability;
      events->items[events->count++] = chosen[i];
    }
    filled += now;
    if (pass + 1 == steps) break;
    uint32_t known = 0;
    for (uint32_t t = 0; t < count; t++)
      if (certainty[t] >= 0)
        chosen[known++] = (struct event){pass, t, tokens[t], certainty[t], true};
    sort_events(chosen, known, true);
    for (uint32_t i = 0; i < (uint32_t)(remask * known); i++) {
      tokens[chosen[i].position] = tokenizer->mask;
      certainty[chosen[i].position] = -1;
      events->items[events->count++] = chosen[i];
      filled--;
    }
  }
  return filled;
}

/* Letters, with a mask in place of some; every fifth has none. */
static uint32_t draw_letters(uint32_t number, uint32_t most, char *letters)
{
  static const char residues[] = "LAGVSERTIDPKQNFYMHWC";
  const uint32_t length = 1 + plm_philox(1, number, 0, 0).w[0] % most;
  for (uint32_t i = 0; i < length; i++) {
    const struct plm_philox_words draw = plm_philox(2, i, number, 0);
    letters[i] = number % 5 != 4 && draw.w[1] % 3 != 0 ? '_' : residues[draw.w[0] % 20];
  }
  letters[length] = '\0';
  return length;
}

/* The model was trained with sequences of trained_length tokens. */
static void fills(enum plm_architecture architecture, enum plm_tokenizer_kind tokenizer,
                  uint32_t trained_length, uint32_t steps, double remask)
{
  enum { L = 32, SEQUENCES = 25 };
  static struct made made;
  static struct events events;
  const bool bytes = tokenizer == PLM_TOKENIZER_BYTE;
  char letters[L], name[32];
  FILE *in = must(fopen(scratch_path("in.fasta"), "w"));
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    draw_letters(n, L - 2, letters);
    fprintf(in, ">s%u\n", n);
    for (const char *c = letters; *c != '\0'; c++)
      fprintf(in, "%s", bytes && *c == '_' ? "<mask>" : (char[]){*c, '\0'});
    fprintf(in, "\n");
  }
  fclose(in);
  inference_case_open(&made.c, architecture, PLM_OBJECTIVE_MLM, tokenizer, trained_length, 2);
  made.c.inference.limit = L;
  const struct plm_generation_options options = {.input = scratch_path("in.fasta"), .count = 2};
  generate(&made, &options, 1, steps, remask);
  made.c.c.masks = made.c.inference.masks; /* there may be new ones */
  assert_true(trained_length == L || made.c.inference.config.max_length > trained_length);
  assert_int_equal(made.sequences, 2 * SEQUENCES);
  const char *at = made.fasta;
  const struct plm_tokenizer *words = made.c.inference.tokenizer;
  uint64_t residues = 0;
  for (unsigned n = 0; n < 2 * SEQUENCES; n++) {
    int32_t tokens[L] = {words->cls};
    uint8_t text[L];
    const uint32_t length = draw_letters(n / 2, L - 2, letters);
    for (uint32_t i = 0; i < length; i++)
      tokens[i + 1] =
          letters[i] == '_' ? words->mask : plm_tokenizer_encode(words, (uint8_t)letters[i]);
    tokens[length + 1] = words->eos;
    residues += fill_alone(&made, n, tokens, length + 2, steps, remask, &events);
    traced(&made, n, &events);
    for (uint32_t i = 0; i < length; i++) {
      text[i] = bytes ? (uint8_t)tokens[i + 1]
                      : (uint8_t)plm_token_text(words, (uint32_t)tokens[i + 1])[0];
      if (bytes && (text[i] == '\n' || text[i] == '\r')) text[i] = ' ';
    }
    snprintf(name, sizeof name, "s%u_%u", n / 2, n % 2 + 1);
    wrote(&at, name, text, length);
  }
  if (!bytes) assert_int_equal(*at, '\0'); /* a generated NUL ends the text of bytes */
  assert_int_equal(made.residues, residues);
  close_made(&made);
  inference_case_close(&made.c);
}

static void masks_are_filled_as_alone(void **state)
{
  (void)state;
  fills(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 32, 1, 0);
  fills(PLM_UNET, PLM_TOKENIZER_ESM, 32, 4, 0);
  fills(PLM_PATCH_UNET, PLM_TOKENIZER_ESM, 32, 7, 0);
  fills(PLM_UNET, PLM_TOKENIZER_ESM, 32, 5, 0.4);
  fills(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 32, 64, 0.25);
  fills(PLM_TRANSFORMER, PLM_TOKENIZER_BYTE, 32, 3, 0.3);
}

/* Buffers grow when a sequence is longer than those before it. */
static void longer_sequences_than_the_models_are_filled_as_alone(void **state)
{
  (void)state;
  fills(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 8, 3, 0);
  fills(PLM_PATCH_UNET, PLM_TOKENIZER_ESM, 16, 2, 0.3);
}

/* One sequence has a mask, and so many others have none that they do not fit into one group. */
static void sequences_without_masks_do_not_count(void **state)
{
  (void)state;
  enum { SEQUENCES = 2 * 4096 + 3 };
  static struct made made;
  char name[32];
  FILE *in = must(fopen(scratch_path("in.fasta"), "w"));
  for (int n = 0; n < SEQUENCES; n++) fprintf(in, ">s%d\n%s\n", n, n % 4096 == 1 ? "LA_" : "GGV");
  fclose(in);
  inference_case_open(&made.c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 1);
  const struct plm_generation_options options = {.input = scratch_path("in.fasta"), .count = 1};
  generate(&made, &options, 1, 2, 0);
  assert_int_equal(made.sequences, SEQUENCES);
  assert_int_equal(made.residues, 3);
  const char *at = made.fasta;
  for (unsigned n = 0; n < SEQUENCES; n++) {
    int32_t tokens[] = {made.c.inference.tokenizer->cls, 4, 5, made.c.inference.tokenizer->mask,
                        made.c.inference.tokenizer->eos};
    static struct events events;
    uint8_t text[] = "GGV";
    if (n % 4096 == 1) {
      assert_int_equal(fill_alone(&made, n, tokens, 5, 2, 0, &events), 1);
      for (int i = 0; i < 3; i++)
        text[i] = (uint8_t)plm_token_text(made.c.inference.tokenizer, (uint32_t)tokens[i + 1])[0];
    }
    snprintf(name, sizeof name, "s%u", n);
    wrote(&at, name, text, 3);
  }
  assert_int_equal(*at, '\0');
  close_made(&made);
  inference_case_close(&made.c);
}

/* ---- causal models ---- */

/* Continues one sequence of `given` tokens up to `end`, and lists its tokens. Returns its number of
 * tokens. */
static uint32_t continue_alone(struct made *made, uint64_t number, int32_t *tokens, uint32_t given,
                               uint32_t end, struct events *events)
{
  const struct plm_tokenizer *tokenizer = made->c.inference.tokenizer;
  const uint32_t V = made->c.inference.config.vocab_size;
  uint32_t count = given;
  events->count = 0;
  while (count < end && (count == given || tokens[count - 1] != tokenizer->eos)) {
    const float *logits = inference_case_logits(&made->c, tokens, count);
    const struct plm_sampled sampled =
        plm_sampler_choose(&made->sampler, logits + (size_t)(count - 1) * V, count, number, 0);
    note(events, count - given, count, sampled, false);
    tokens[count++] = sampled.token;
  }
  return count;
}

/* Generates `copies` sequences from each of the prompts of 0 to prompts - 1 letters, and compares
 * those that `every` divides. */
static void continues(enum plm_architecture architecture, enum plm_tokenizer_kind tokenizer,
                      uint32_t L, uint32_t prompts, uint32_t copies, uint32_t max_tokens,
                      double top_p, uint32_t every)
{
  static struct made made;
  static struct events events;
  char letters[256], name[32];
  FILE *in = must(fopen(scratch_path("in.fasta"), "w"));
  for (uint32_t n = 0; n < prompts; n++) {
    draw_letters(5 * n + 4, L - 2, letters);
    fprintf(in, ">p%u\n%s\n", n, letters);
  }
  fclose(in);
  inference_case_open(&made.c, architecture, PLM_OBJECTIVE_CAUSAL, tokenizer, L,
                      tokenizer == PLM_TOKENIZER_BYTE ? 2 : 1);
  const struct plm_generation_options options = {.input =
                                                     prompts > 0 ? scratch_path("in.fasta") : NULL,
                                                 .causal = true,
                                                 .count = copies,
                                                 .max_tokens = max_tokens};
  generate(&made, &options, top_p, 0, 0);
  const struct plm_tokenizer *words = made.c.inference.tokenizer;
  const uint32_t sequences = (prompts > 0 ? prompts : 1) * copies;
  assert_int_equal(made.sequences, sequences);
  const char *at = made.fasta;
  uint64_t residues = 0;
  for (uint32_t n = 0; n < sequences; n++) {
    int32_t tokens[256] = {words->cls};
    const uint32_t length = prompts > 0 ? draw_letters(5 * (n / copies) + 4, L - 2, letters) : 0;
    if (prompts > 0)
      snprintf(name, sizeof name, "p%u_%u", n / copies, n % copies + 1);
    else
      snprintf(name, sizeof name, "sample_%u", n + 1);
    if (n % every != 0) {
      const size_t size = strcspn(strchr(at, '\n') + 1, "\n");
      wrote(&at, name, (const uint8_t *)strchr(at, '\n') + 1, size);
      residues += size - length;
      continue;
    }
    for (uint32_t i = 0; i < length; i++)
      tokens[i + 1] = plm_tokenizer_encode(words, (uint8_t)letters[i]);
    const uint32_t end =
        max_tokens != 0 && length + 1 + max_tokens < L ? length + 1 + max_tokens : L;
    uint32_t count = continue_alone(&made, n, tokens, length + 1, end, &events);
    traced(&made, n, &events);
    count -= tokens[count - 1] == words->eos;
    residues += count - 1 - length;
    uint8_t text[256];
    for (uint32_t t = 1; t < count; t++)
      text[t - 1] = words->kind == PLM_TOKENIZER_BYTE
                        ? (uint8_t)(tokens[t] == '\n' || tokens[t] == '\r' ? ' ' : tokens[t])
                        : (uint8_t)plm_token_text(words, (uint32_t)tokens[t])[0];
    wrote(&at, name, text, count - 1);
  }
  assert_int_equal(made.residues, residues);
  close_made(&made);
  inference_case_close(&made.c);
}

static void sequences_are_continued_as_alone(void **state)
{
  (void)state;
  continues(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 32, 40, 2, 0, 1, 1);
  continues(PLM_UNET, PLM_TOKENIZER_ESM, 32, 6, 20, 3, 0.8, 3);
  continues(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 32, 3, 1, 30, 1, 1);
  continues(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 32, 0, 5, 0, 1, 1);
  continues(PLM_TRANSFORMER, PLM_TOKENIZER_BYTE, 32, 3, 2, 4, 1, 1);
}

/* Long sequences hold up the output, and the ones behind them wait in the ring. */
static void sequences_wait_for_those_before_them(void **state)
{
  (void)state;
  continues(PLM_TRANSFORMER, PLM_TOKENIZER_ESM, 128, 0, 1500, 0, 1, 50);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks_are_filled_as_alone),
      cmocka_unit_test(longer_sequences_than_the_models_are_filled_as_alone),
      cmocka_unit_test(sequences_without_masks_do_not_count),
      cmocka_unit_test(sequences_are_continued_as_alone),
      cmocka_unit_test(sequences_wait_for_those_before_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
