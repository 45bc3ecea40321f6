/* What `generate` refuses for a model, and what it reports. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/stop.h"
#include "evaluator/generate/generate.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/shown_progress.h"

enum { L = 32, MASKED, CAUSAL, BYTES, MODELS };

static struct inference_case models[MODELS];
static char folders[MODELS][200], in[200], out[200], trace[200];

static int open_models(void **state)
{
  (void)state;
  for (int i = MASKED; i < MODELS; i++) {
    char name[20];
    snprintf(name, sizeof name, "model-%d", i);
    inference_case_open(&models[i], PLM_TRANSFORMER,
                        i == CAUSAL ? PLM_OBJECTIVE_CAUSAL : PLM_OBJECTIVE_MLM,
                        i == BYTES ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM, L, 2);
    snprintf(folders[i], sizeof folders[i], "%.199s", scratch_path(name));
    inference_case_save(&models[i], folders[i]);
  }
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(out, sizeof out, "%.199s", scratch_path("out.fasta"));
  snprintf(trace, sizeof trace, "%.199s", scratch_path("trace"));
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int close_models(void **state)
{
  (void)state;
  for (int i = MASKED; i < MODELS; i++) inference_case_close(&models[i]);
  return 0;
}

static void write_input(const char *text)
{
  scratch_write(in, text, strlen(text));
}

static struct plm_generate_request request_of(int model)
{
  return (struct plm_generate_request){.checkpoint = folders[model],
                                       .output = out,
                                       .temperature = 1,
                                       .top_p = 1,
                                       .count = 1,
                                       .seed = 3};
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses(int model, struct plm_generate_request request, plm_status status,
                    const char *what, const char *hint)
{
  struct plm_error error = {0};
  request.checkpoint = folders[model];
  assert_int_equal(plm_generate(&request, models[model].inference.ops, &error), status);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\", not \"%s\"", error.what, what);
  if (strncmp(error.hint, hint, strlen(hint)) != 0 || (hint[0] == '\0') != (error.hint[0] == '\0'))
    fail_msg("\"%s\", not \"%s\"", error.hint, hint);
  if (request.output != in) assert_false(plm_file_exists(out));
}

static void a_causal_model_has_no_masks(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(CAUSAL);
  request.steps = 1;
  refuses(CAUSAL, request, PLM_USAGE,
          "--steps does not apply to this checkpoint: its model is causal, and samples one token "
          "after another",
          "leave it out; --max-tokens");
  request.steps = 0;
  request.remask = 0.01;
  refuses(CAUSAL, request, PLM_USAGE, "--remask does not apply", "leave it out; a causal model");
  request.remask = 0;
  request.length = 1;
  refuses(CAUSAL, request, PLM_USAGE, "--length does not apply", "leave it out; a sequence ends");
}

static void a_masked_model_needs_masks(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(MASKED);
  refuses(MASKED, request, PLM_USAGE, "model fills masks, so it needs sequences", "name a FASTA");
  request.length = 5;
  request.max_tokens = 1;
  refuses(MASKED, request, PLM_USAGE,
          "--max-tokens does not apply to this checkpoint: its model is masked, and fills <mask>",
          "leave it out; the masks of IN");
  request.max_tokens = 0;
  request.length = L - 1;
  refuses(MASKED, request, PLM_USAGE,
          "--length 31: this model (max_length 32) takes up to 30 residues", "shorten it");
  request.length = 5;
  request.input = in;
  write_input(">a\nM_K\n");
  refuses(MASKED, request, PLM_USAGE, "--length applies only without IN", "");
}

static void an_input_has_to_have_masks(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(MASKED);
  char what[300];
  request.input = in;
  write_input("");
  snprintf(what, sizeof what, "%s has no sequences", in);
  refuses(MASKED, request, PLM_FORMAT, what, "");
  write_input(">a\nMKL\n");
  snprintf(what, sizeof what, "no sequence of %s has a mask, so there is nothing to fill", in);
  refuses(MASKED, request, PLM_FORMAT, what, "write <mask> or _ for each residue");
  refuses(BYTES, request, PLM_FORMAT, what, "write <mask> for each byte");
  write_input("");
  snprintf(what, sizeof what, "%s has no sequences", in);
  refuses(CAUSAL, request, PLM_FORMAT, what, "");
}

enum { NORMS = 26 /* of one pass through six blocks, at most */ };

static int norms;
static void (*norm_forward)(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D);

static void stop_and_norm(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D)
{
  plm_stop_requested = SIGTERM;
  norms++;
  norm_forward(ops, to, x, N, D);
}

/* It comes in the first pass of the model, which is the last one then, and nothing is written. */
static void a_signal_ends_it(void **state)
{
  (void)state;
  for (int model = MASKED; model <= CAUSAL; model++) {
    struct plm_generate_request request = request_of(model);
    struct plm_ops *ops = models[model].inference.ops;
    if (model == MASKED) request.length = 5;
    norm_forward = ops->norm_forward;
    ops->norm_forward = stop_and_norm;
    refuses(model, request, PLM_TERMINATED, "stopped by SIGTERM", "");
    ops->norm_forward = norm_forward;
    plm_stop_requested = 0;
    assert_in_range(norms, 1, NORMS);
    norms = 0;
  }
}

/* A masked model cuts them; a prompt has to be whole. */
static void only_with_max_length_sequences_are_cut(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(MASKED);
  struct plm_error error = {0};
  write_input(">a\nM_KLAVGSERTIDPKQNFYMHWCLAVGSERTIDPKQNFYMHWC\n");
  request.input = in;
  assert_int_equal(plm_generate(&request, models[MASKED].inference.ops, &error), PLM_LIMIT);
  request.max_length = 16;
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_generate(&request, models[MASKED].inference.ops, &error);
  const char *text = captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_non_null(strstr(text, "t: warning: sequences longer than the max_length of 16 tokens, cut "
                               "to their first 16: 1\n"));
  assert_int_equal(unlink(out), 0);
  write_input(">a\nMKKLAVGSERTIDPKQNFYMHWCLAVGSERTIDPKQNFYMHWC\n");
  request = request_of(CAUSAL);
  request.input = in;
  request.max_length = 16;
  assert_int_equal(plm_generate(&request, models[CAUSAL].inference.ops, &error), PLM_LIMIT);
}

/* Another name of the same file is found too. */
static void the_output_is_not_the_input(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(MASKED);
  char link_path[200];
  static const char text[] = ">a\nM_K\n";
  write_input(text);
  snprintf(link_path, sizeof link_path, "%.199s", scratch_path("link"));
  assert_int_equal(link(in, link_path), 0);
  request.input = link_path;
  request.output = in;
  refuses(MASKED, request, PLM_USAGE, "is the same file as the input",
          "write the result to another file");
  request.input = request.trace = in; /* and stdout is not the input */
  request.output = NULL;
  refuses(MASKED, request, PLM_USAGE, "is also the input", "write the result to another file");
  char *kept;
  size_t size;
  assert_int_equal(plm_file_read(in, 1000, &kept, &size, NULL), PLM_OK);
  assert_string_equal(kept, text);
  free(kept);
  assert_int_equal(unlink(link_path), 0);
}

/* ---- what is reported ------------------------------------------------------------------------ */

/* Generates, and returns what it prints on the descriptor. */
static const char *said(const struct plm_generate_request *request, int model, int descriptor)
{
  struct plm_error error = {0};
  captured_begin(descriptor);
  const plm_status status = plm_generate(request, models[model].inference.ops, &error);
  const char *text = captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(unlink(request->output), 0);
  return text;
}

static void json_has_what_was_generated(void **state)
{
  (void)state;
  char expected[500];
  struct plm_generate_request request = request_of(MASKED);
  request.input = in;
  request.count = 2;
  request.json = true;
  write_input(">a\nM__K\n>b\n_\n");
  cJSON *line = cJSON_Parse(said(&request, MASKED, STDOUT_FILENO));
  const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(line, "seconds");
  assert_true(cJSON_IsNumber(seconds) && seconds->valuedouble >= 0 && seconds->valuedouble < 600);
  cJSON_DeleteItemFromObjectCaseSensitive(line, "seconds");
  char *text = cJSON_PrintUnformatted(line);
  snprintf(expected, sizeof expected,
           "{\"output\":\"%s\",\"weights\":\"model\",\"objective\":\"mlm\",\"sequences\":4,"
           "\"residues\":6}",
           out);
  assert_string_equal(text, expected);
  cJSON_free(text);
  cJSON_Delete(line);
}

static void people_are_told_how_much_was_generated(void **state)
{
  (void)state;
  struct plm_generate_request request = request_of(MASKED);
  request.length = L - 2; /* the most */
  const char *text = said(&request, MASKED, STDERR_FILENO);
  if (strstr(text, "out.fasta: 1 sequence, 30 residues generated in ") == NULL)
    fail_msg("%s", text);
  request = request_of(CAUSAL);
  request.max_tokens = 3;
  request.count = 2;
  text = said(&request, CAUSAL, STDERR_FILENO);
  if (strstr(text, "out.fasta: 2 sequences, ") == NULL) fail_msg("%s", text);
}

/* FASTA has no place for them. */
static void generated_line_ends_are_counted(void **state)
{
  (void)state;
  const struct plm_tokenizer *words = models[BYTES].inference.tokenizer;
  struct plm_generate_request request = request_of(BYTES);
  char ends[2][40], *events, expected[100];
  size_t size;
  request.length = 30;
  request.count = 30;
  request.steps = 1;
  request.trace = trace;
  const char *text = said(&request, BYTES, STDERR_FILENO);
  assert_int_equal(plm_file_read(trace, 1 << 20, &events, &size, NULL), PLM_OK);
  for (int i = 0; i < 2; i++)
    snprintf(ends[i], sizeof ends[i], "\"token\":%d,",
             plm_tokenizer_encode(words, (uint8_t) "\n\r"[i]));
  const int count = captured_times(events, ends[0]) + captured_times(events, ends[1]);
  assert_true(count > 0);
  snprintf(expected, sizeof expected, "line ends, so generated ones were written as blanks: %d\n",
           count);
  assert_non_null(strstr(text, expected));
  free(events);
  assert_int_equal(unlink(trace), 0);
}

static void each_sequence_is_shown(void **state)
{
  (void)state;
  struct plm_error error = {0};
  for (int model = MASKED; model <= CAUSAL; model++) {
    struct plm_generate_request request = request_of(model);
    request.count = 4;
    if (model == MASKED) request.length = 5;
    shown_progress_begin();
    const plm_status status = plm_generate(&request, models[model].inference.ops, &error);
    shown_progress_end("generate 25 %  1 sequence, \ngenerate 50 %  2 sequences, \n"
                       "generate 75 %  3 sequences, \ngenerate 100 %  4 sequences, ");
    assert_int_equal(status, PLM_OK);
    assert_int_equal(unlink(out), 0);
  }
}

/* Passes that were traced: each fills at least one residue. */
static int passes(uint32_t steps)
{
  struct plm_generate_request request = request_of(MASKED);
  char *text;
  size_t size;
  int last = -1, lines = 0;
  request.length = 30;
  request.steps = steps;
  request.trace = trace;
  said(&request, MASKED, STDERR_FILENO);
  assert_int_equal(plm_file_read(trace, 1 << 20, &text, &size, NULL), PLM_OK);
  for (const char *line = strstr(text, "\"step\":"); line != NULL;
       line = strstr(line + 1, "\"step\":")) {
    last = atoi(line + strlen("\"step\":"));
    lines++;
  }
  assert_int_equal(lines, 30);
  free(text);
  assert_int_equal(unlink(trace), 0);
  return last;
}

static void there_are_twenty_passes_unless_another_number_is_given(void **state)
{
  (void)state;
  const int first = passes(1);
  assert_int_equal(passes(0) - first, 19);
  assert_int_equal(passes(7) - first, 6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_models, close_models)
  const struct CMUnitTest tests[] = {
      TEST(a_causal_model_has_no_masks),
      TEST(a_masked_model_needs_masks),
      TEST(an_input_has_to_have_masks),
      TEST(a_signal_ends_it),
      TEST(only_with_max_length_sequences_are_cut),
      TEST(the_output_is_not_the_input),
      TEST(json_has_what_was_generated),
      TEST(people_are_told_how_much_was_generated),
      TEST(generated_line_ends_are_counted),
      TEST(each_sequence_is_shown),
      TEST(there_are_twenty_passes_unless_another_number_is_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
