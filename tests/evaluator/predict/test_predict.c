/* What `predict` writes for many sequences, in batches and continued after stops, against the
 * outputs of the model for each sequence by itself; its summary, and what it refuses. */
#include "tests/support/harness/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/model/architecture.h"
#include "common/run/stop.h"
#include "evaluator/predict/predict.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, SEQUENCES = 40, OUTPUTS = 3 };

static struct model_case model;
static char folder[PLM_PATH_SIZE], in[PLM_PATH_SIZE], out[PLM_PATH_SIZE];
static const char *const inputs[] = {in};
static char *names[] = {"C", "E", "H"};
static double means[] = {50, -1, 0.25}, deviations[] = {8, 0.5, 2};

/* The residues of sequence n, of which every 13th is longer than the model takes. */
static uint32_t length_of(uint32_t n)
{
  return n % 13 == 5 ? L - 2 + n % 3 : 1 + plm_philox(6, n, 0, 0).w[0] % (L - 2);
}

static void save_model(const struct plm_label_names *of, enum plm_objective objective)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(model.model, &count);
  char *text =
      plm_huggingface_config_print_labels(&model.config, model.window, objective, "float32", of);
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "config.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_write(path, table, count, model.weights, NULL), PLM_OK);
}

static void open_model(struct plm_head_config head, bool scaled)
{
  const enum plm_objective objective = head.kind == PLM_PREDICTS_RESIDUES ? PLM_OBJECTIVE_RESIDUES
                                       : head.loss == PLM_LOSS_SQUARES
                                           ? PLM_OBJECTIVE_REGRESSION
                                           : PLM_OBJECTIVE_CLASSIFICATION;
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 2, L);
  const struct plm_model_options options = {.max_chunks = 1};
  const struct plm_label_names of = {OUTPUTS, names, scaled ? means : NULL,
                                     scaled ? deviations : NULL};
  head.outputs = OUTPUTS;
  config.head = head;
  model_case_open(&model, &config, &options, PLM_PRECISION_FP32, 8);
  snprintf(folder, sizeof folder, "%s", scratch_path("model"));
  snprintf(in, sizeof in, "%s", scratch_path("in.fasta"));
  save_model(&of, objective);
  task_files_fasta(in, SEQUENCES, length_of);
  plm_log_init("t", PLM_LOG_INFO);
}

/* ---- what is expected ------------------------------------------------------------------------ */

/* The outputs (rows, OUTPUTS) of sequence n by itself. Returns how many rows. */
static uint32_t alone(uint32_t n, float outputs[L * OUTPUTS])
{
  const struct plm_tokenizer *words = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  const uint32_t length = length_of(n), residues = length + 1 < L ? length : L - 1;
  const uint32_t tokens = length + 2 < L ? length + 2 : L, chunk[] = {0, 1};
  const struct plm_chunk_document document = {.tokens = tokens, .residues = residues};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = L, .document_begin = chunk, .documents = &document};
  const bool each = model.config.head.kind == PLM_PREDICTS_RESIDUES,
             cls = !each && model.config.head.pooling == PLM_HEAD_CLS;
  int32_t ids[L], begin[L], end[L];
  for (uint32_t t = 0; t < L; t++) ids[t] = words->pad;
  ids[0] = words->cls;
  for (uint32_t i = 0; i < residues; i++)
    ids[i + 1] = plm_tokenizer_encode(words, (uint8_t)task_files_letter(n, i));
  if (length + 1 < L) ids[length + 1] = words->eos;
  for (uint32_t i = 0; i < residues; i++) begin[i] = (int32_t)(i + 1), end[i] = begin[i] + 1;
  if (!each) begin[0] = cls ? 0 : 1, end[0] = cls ? 1 : (int32_t)residues + 1;
  const struct plm_label_targets targets = {
      .inputs = ids, .rows = each ? residues : 1, .begin = begin, .end = end};
  plm_model_attention_masks(model.model, &batch, model.window, model.masks);
  assert_int_equal(plm_model_predict(model.model, &(struct plm_masked_batch){&batch, model.masks},
                                     &targets, outputs, NULL),
                   PLM_OK);
  return targets.rows;
}

/* ---- running it ------------------------------------------------------------------------------ */

static void (*norm_forward)(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D);

/* A signal comes while the model computes. */
static void stop_and_norm(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D)
{
  plm_stop_requested = SIGTERM;
  norm_forward(ops, to, x, N, D);
}

static struct plm_predict_request request_of(const char *name)
{
  snprintf(out, sizeof out, "%s", scratch_path(name));
  return (struct plm_predict_request){.of.checkpoint = folder,
                                      .of.inputs = inputs,
                                      .of.input_count = 1,
                                      .of.output = out,
                                      .of.batch_tokens = 2 * L + 5, /* two chunks */
                                      .of.json = true};
}

/* Runs it, stopped after the first batch if `stops`. Returns what it prints on stdout. */
static const char *predict(const struct plm_predict_request *request, bool stops, plm_status wanted,
                           struct plm_error *error)
{
  static char kept[4096];
  *error = (struct plm_error){0};
  captured_begin(STDERR_FILENO);
  captured_begin(STDOUT_FILENO);
  norm_forward = model.ops->norm_forward;
  if (stops) model.ops->norm_forward = stop_and_norm;
  const plm_status status = plm_predict(request, model.ops, error);
  model.ops->norm_forward = norm_forward;
  plm_stop_requested = 0;
  snprintf(kept, sizeof kept, "%s", captured_end());
  captured_end();
  if (status != wanted) fail_msg("status %d: %s", status, error->what);
  return kept;
}

static char *result(void)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(out, 1 << 24, &text, &size, NULL), PLM_OK);
  assert_int_equal(unlink(out), 0);
  return text;
}

static unsigned number_after(const char *text, const char *before)
{
  const char *found = strstr(text, before);
  if (found == NULL) fail_msg("no \"%s\" in %s", before, text);
  return found == NULL ? 0 : (unsigned)strtoul(found + strlen(before), NULL, 10);
}

/* Reads a number behind a comma and moves on. */
static void next_is(char **at, double expected, uint32_t n)
{
  assert_int_equal(**at, ',');
  const double value = strtod(*at + 1, at);
  if (!(fabs(value - expected) <= 2e-4 * (1 + fabs(expected))))
    fail_msg("sequence %u: %.9g is not %.9g", n, value, expected);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Rows of numbers in the order of the input: as the head gives them, or in the table's units. */
static void numbers_are_those_of_each_alone(enum plm_head_pooling pooling, bool logits, bool scaled)
{
  struct plm_error error;
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES,
                                      .loss = PLM_LOSS_SQUARES,
                                      .pooling = pooling},
             scaled);
  struct plm_predict_request request = request_of("out.csv");
  request.logits = logits;
  predict(&request, false, PLM_OK, &error);
  char *text = result(), *at = text;
  const char header[] = "name,C,E,H\n";
  assert_memory_equal(at, header, strlen(header));
  at += strlen(header);
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    float outputs[L * OUTPUTS];
    assert_int_equal(alone(n, outputs), 1);
    assert_int_equal(*at, 's');
    assert_int_equal(strtoul(at + 1, &at, 10), n);
    for (uint32_t o = 0; o < OUTPUTS; o++)
      next_is(&at,
              logits || !scaled ? (double)outputs[o]
                                : (double)outputs[o] * deviations[o] + means[o],
              n);
    assert_int_equal(*at++, '\n');
  }
  assert_int_equal(*at, '\0');
  free(text);
  model_case_close(&model);
}

static void numbers(void **state)
{
  (void)state;
  numbers_are_those_of_each_alone(PLM_HEAD_MEAN, false, true);
  numbers_are_those_of_each_alone(PLM_HEAD_CLS, true, true);
  numbers_are_those_of_each_alone(PLM_HEAD_CLS, false, false);
}

static uint32_t largest(const float outputs[OUTPUTS])
{
  uint32_t best = 0;
  for (uint32_t o = 1; o < OUTPUTS; o++)
    if (outputs[o] > outputs[best]) best = o;
  return best;
}

/* Sequences that are longer than the model takes lose their end. */
static void residues(void **state)
{
  (void)state;
  struct plm_error error;
  uint32_t cut = 0;
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_RESIDUES, .loss = PLM_LOSS_CLASS},
             false);
  struct plm_predict_request request = request_of("out.tsv");
  request.per_residue = true;
  const char *said = predict(&request, false, PLM_OK, &error);
  for (uint32_t n = 0; n < SEQUENCES; n++) cut += length_of(n) > L - 2;
  assert_true(cut > 0);
  assert_int_equal(number_after(said, "\"cut\":"), cut);
  char *text = result(), *at = text;
  const char header[] = "name\tposition\tresidue\tprediction\tprobability\n";
  assert_memory_equal(at, header, strlen(header));
  at += strlen(header);
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    float outputs[L * OUTPUTS];
    const uint32_t rows = alone(n, outputs);
    assert_int_equal(rows, length_of(n) < L - 1 ? length_of(n) : L - 1);
    for (uint32_t i = 0; i < rows; i++) {
      const float *of = outputs + (size_t)i * OUTPUTS;
      double sum = 0;
      unsigned number, position;
      char residue, class;
      double probability;
      int used = 0;
      assert_int_equal(sscanf(at, "s%u\t%u\t%c\t%c\t%lf%n", &number, &position, &residue, &class,
                              &probability, &used),
                       5);
      for (uint32_t o = 0; o < OUTPUTS; o++) sum += exp((double)(of[o] - of[largest(of)]));
      assert_true(number == n && position == i + 1 && residue == task_files_letter(n, i));
      assert_true(fabs(probability - 1 / sum) < 1e-4);
      assert_int_equal(class, names[largest(of)][0]);
      at += used;
      assert_int_equal(*at++, '\n');
    }
  }
  assert_int_equal(*at, '\0');
  free(text);
  model_case_close(&model);
}

static void a_stopped_run_continues_with_the_same_text(void **state)
{
  (void)state;
  for (int each = 0; each < 2; each++) {
    struct plm_error error;
    unsigned before = 0;
    open_model(
        (struct plm_head_config){.kind = each ? PLM_PREDICTS_RESIDUES : PLM_PREDICTS_SEQUENCES,
                                 .loss = PLM_LOSS_CLASS},
        false);
    struct plm_predict_request request = request_of("out.jsonl");
    request.per_residue = each == 1;
    predict(&request, false, PLM_OK, &error);
    char *whole = result();
    for (int stops = 0; stops < 2; stops++) {
      predict(&request, true, PLM_TERMINATED, &error);
      const unsigned done = number_after(error.what, " after ");
      assert_true(done > before && done < SEQUENCES);
      before = done;
      assert_false(plm_file_exists(out));
    }
    request.logits = true; /* other outputs: refused, and nothing is lost */
    predict(&request, false, PLM_EXISTS, &error);
    assert_int_equal(captured_times(error.what, " --per-residue"), 2 * each);
    assert_int_equal(captured_times(error.what, " --logits"), 1);
    request.logits = false;
    const char *said = predict(&request, false, PLM_OK, &error);
    assert_int_equal(number_after(said, "\"resumed_sequences\":"), before);
    char *text = result();
    assert_string_equal(text, whole);
    assert_false(plm_file_exists(scratch_path("out.jsonl.partial")));
    free(whole);
    free(text);
    model_case_close(&model);
  }
}

static void the_summary_is_whole(void **state)
{
  (void)state;
  struct plm_error error;
  char expected[2 * PLM_PATH_SIZE + 512];
  uint32_t tokens = 0, cut = 0;
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS},
             false);
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    tokens += length_of(n) + 2 < L ? length_of(n) + 2 : L;
    cut += length_of(n) + 2 > L;
  }
  struct plm_predict_request request = request_of("out.csv");
  const char *said = predict(&request, false, PLM_OK, &error);
  snprintf(expected, sizeof expected,
           "{\"output\":\"%s\",\"checkpoint\":\"%s\",\"weights\":\"model\",\"sequences\":%d,"
           "\"tokens\":%u,\"bad_records\":0,\"cut\":%u,\"longer\":0,\"unknown_residues\":0,"
           "\"resumed_sequences\":0,\"seconds\":",
           out, folder, SEQUENCES, tokens, cut);
  assert_memory_equal(said, expected, strlen(expected));
  const double seconds = strtod(said + strlen(expected), NULL);
  const char *rate = strstr(said, "\"tokens_per_second\":");
  assert_non_null(rate);
  assert_true(fabs(strtod(strchr(rate, ':') + 1, NULL) * seconds - tokens) < 1e-3 * tokens);
  free(result());
  captured_begin(STDERR_FILENO);
  request.of.json = false;
  assert_int_equal(plm_predict(&request, model.ops, &error), PLM_OK);
  assert_non_null(strstr(captured_end(), "predicted 40 sequences in "));
  free(result());
  model_case_close(&model);
}

/* Tables with the same columns are one input; their columns stand before the predictions. */
static void columns_of_tables_must_be_the_same(void **state)
{
  (void)state;
  struct plm_error error;
  static char second[PLM_PATH_SIZE];
  const char *const tables[] = {in, second};
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS},
             false);
  snprintf(in, sizeof in, "%s", scratch_path("in.csv"));
  snprintf(second, sizeof second, "%s", scratch_path("second.csv"));
  struct plm_predict_request request = request_of("out.csv");
  request.of.inputs = tables;
  request.of.input_count = 2;
  scratch_write(in, "name,sequence,source\na,MKV,x\n", 30);
  scratch_write(second, "name,sequence,source\nb,MLV,y\n", 30);
  predict(&request, false, PLM_OK, &error);
  char *text = result();
  const char header[] = "name,source,prediction,probability\na,x,";
  assert_memory_equal(text, header, strlen(header));
  assert_non_null(strstr(text, "\nb,y,"));
  free(text);
  static const char *const others[] = {"name,sequence,sort\nb,MLV,y\n", "name,sequence\nb,MLV\n"};
  for (int i = 0; i < 4; i++) { /* in either order */
    char said[2 * PLM_PATH_SIZE + 64];
    const char *first = i < 2 ? tables[0] : tables[1], *other = i < 2 ? tables[1] : tables[0];
    scratch_write(first, "name,sequence,source\na,MKV,x\n", 30);
    scratch_write(other, others[i % 2], strlen(others[i % 2]));
    predict(&request, false, PLM_FORMAT, &error);
    snprintf(said, sizeof said, "%s has other columns than %s", second, in);
    assert_string_equal(error.what, said);
    assert_string_equal(error.hint, "run the command on each of them");
    assert_false(plm_file_exists(out));
  }
  model_case_close(&model);
}

static void what_is_refused(void **state)
{
  (void)state;
  struct plm_error error;
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES, .loss = PLM_LOSS_CLASS},
             false);
  struct plm_predict_request request = request_of("out.txt");
  predict(&request, false, PLM_USAGE, &error);
  assert_non_null(strstr(error.what, "out.txt: the name does not say which format to write"));
  assert_string_equal(error.hint, "end the name in .csv, .tsv or .jsonl");
  request = request_of("out.csv");
  request.per_residue = true;
  predict(&request, false, PLM_USAGE, &error);
  assert_string_equal(error.what, "--per-residue: the model predicts labels of whole sequences");
  request.per_residue = false;
  request.of.max_length = 2;
  predict(&request, false, PLM_USAGE, &error);
  assert_non_null(strstr(error.what, "--max-length 2: this model takes sequences of 3 to "));
  request.of.max_length = 0;
  request.of.output = in;
  snprintf(in, sizeof in, "%s", scratch_path("in.csv"));
  scratch_write(in, "sequence\nMKV\n", 13);
  predict(&request, false, PLM_USAGE, &error);
  assert_non_null(strstr(error.what, "is also the input"));
  assert_false(plm_file_exists(scratch_path("out.csv")));
  model_case_close(&model);
}

/* Finite weights with which the head overflows: the state that it reads has values above 1. */
static void not_finite_outputs_name_the_sequence(void **state)
{
  (void)state;
  struct plm_error error;
  size_t count;
  open_model((struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES,
                                      .loss = PLM_LOSS_CLASS,
                                      .pooling = PLM_HEAD_CLS},
             false);
  const struct plm_parameter *table = plm_model_table(model.model, &count);
  for (size_t p = 0; p < count; p++)
    for (int64_t i = 0; i < table[p].cols && table[p].rows == OUTPUTS; i++)
      model.weights[table[p].offset + (size_t)i] = FLT_MAX;
  const struct plm_label_names of = {OUTPUTS, names, NULL, NULL};
  save_model(&of, PLM_OBJECTIVE_CLASSIFICATION);
  scratch_write(in, ">a\nMKV\n", 7);
  struct plm_predict_request request = request_of("out.csv");
  predict(&request, false, PLM_NOT_FINITE, &error);
  assert_non_null(strstr(error.what, "for sequence 1 of the input"));
  assert_false(plm_file_exists(out));
  model_case_close(&model);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers),
      cmocka_unit_test(residues),
      cmocka_unit_test(a_stopped_run_continues_with_the_same_text),
      cmocka_unit_test(the_summary_is_whole),
      cmocka_unit_test(columns_of_tables_must_be_the_same),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(not_finite_outputs_name_the_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
