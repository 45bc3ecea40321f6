/* One evaluation of a small corpus: the JSON object has each number in its place, and what is
 * printed for people has the same numbers. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "evaluator/evaluate/evaluate_once.h"
#include "stages/ingest/corpus_writer.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { L = 32 };

static char corpus[200], folder[200];

static void write_corpus(const char *path, enum plm_tokenizer_kind tokenizer, bool clustered)
{
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {
      .directory = path, .tokenizer = tokenizer, .threads = 1, .clustered = clustered};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = 1};
  static const char *const residues[] = {"LAGVSERT", "IDPKQ", "NFYMHWCLAG", "MKLAVGIDPK"};
  assert_int_equal(plm_corpus_writer_open(&options, &writer, NULL), PLM_OK);
  for (int i = 0; i < 4; i++)
    assert_int_equal(plm_corpus_writer_add(writer, PLM_SPLIT_VALID, "x", 1,
                                           (const uint8_t *)residues[i], strlen(residues[i]), NULL),
                     PLM_OK);
  assert_int_equal(plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, NULL), PLM_OK);
  plm_corpus_writer_close(writer);
}

static int begin(void **state)
{
  (void)state;
  static int number;
  char name[20];
  snprintf(name, sizeof name, "corpus-%d", number++);
  snprintf(corpus, sizeof corpus, "%.199s", scratch_path(name));
  write_corpus(corpus, PLM_TOKENIZER_ESM, false);
  plm_log_init("t", PLM_LOG_ERROR);
  return 0;
}

static void open_model(struct inference_case *c, enum plm_objective objective)
{
  static int number;
  char name[20];
  snprintf(name, sizeof name, "model-%d", number++);
  snprintf(folder, sizeof folder, "%.199s", scratch_path(name));
  inference_case_open(c, PLM_TRANSFORMER, objective, PLM_TOKENIZER_ESM, L, 2);
  inference_case_save(c, folder);
}

static struct plm_evaluate_request request_of(bool json)
{
  return (struct plm_evaluate_request){.checkpoint = folder,
                                       .corpus = corpus,
                                       .split = "valid",
                                       .mask_rate = 0.5,
                                       .seed = 4,
                                       .json = json};
}

static char *evaluate(struct inference_case *c, const struct plm_evaluate_request *request)
{
  struct plm_error error = {0};
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_evaluate_once(request, c->inference.ops, &error);
  char *text = strdup(captured_end());
  if (status != PLM_OK) fail_msg("%s", error.what);
  return text;
}

static const char *word(const cJSON *line, const char *name)
{
  return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, name));
}

static double number(const cJSON *line, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
  if (!cJSON_IsNumber(item)) fail_msg("no %s", name);
  return item->valuedouble;
}

/* What is printed for people, from the object, without the time. */
static void print(const cJSON *line, char *text, size_t size)
{
  const cJSON *layers = cJSON_GetObjectItemCaseSensitive(line, "attention_entropy"), *layer;
  const cJSON *least = layers->child, *most = layers->child;
  assert_true(least->valuedouble > 0);
  cJSON_ArrayForEach(layer, layers)
  {
    if (layer->valuedouble < least->valuedouble) least = layer;
    if (layer->valuedouble > most->valuedouble) most = layer;
  }
  int used = snprintf(text, size,
                      "model        %s\nsplit        valid of %s, %.0f tokens predicted\n"
                      "loss         %.6f nats (composition only: %.4f)\nperplexity   %.4f\n"
                      "accuracy     %.4f   precision %.4f   recall %.4f   f1 %.4f   mcc %.4f\n",
                      folder, corpus, number(line, "tokens"), number(line, "loss"),
                      number(line, "baseline_entropy"), number(line, "perplexity"),
                      number(line, "accuracy"), number(line, "precision"), number(line, "recall"),
                      number(line, "f1"), number(line, "mcc"));
  if (cJSON_HasObjectItem(line, "elbo"))
    used += snprintf(text + used, size - (size_t)used,
                     "elbo         %.6f nats per residue\npseudo-perplexity  %.4f\n"
                     "pseudo-perplexity  %.4f (estimated from one pass)\n",
                     number(line, "elbo"), number(line, "pseudo_perplexity"),
                     number(line, "pseudo_perplexity_fast"));
  snprintf(text + used, size - (size_t)used,
           "by length    <64: %.4f  \nattention    entropy %.3f nats (%s) to %.3f (%s)\ntime  ",
           number(line, "loss"), least->valuedouble, least->string, most->valuedouble,
           most->string);
}

static void compare(enum plm_objective objective, bool measures)
{
  struct inference_case c;
  char expected[2000];
  open_model(&c, objective);
  struct plm_evaluate_request request = request_of(true);
  if (measures) {
    request.elbo_rates = 2;
    request.pseudo_perplexity = request.pseudo_perplexity_fast = true;
    request.random_fraction = 0.1;
    request.keep_fraction = 0.1;
  }
  char *text = evaluate(&c, &request);
  cJSON *line = cJSON_Parse(text);
  assert_non_null(line);
  free(text);
  assert_false(cJSON_HasObjectItem(line, "step"));
  assert_string_equal(word(line, "checkpoint"), folder);
  assert_string_equal(word(line, "set"), "corpus");
  assert_string_equal(word(line, "split"), "valid");
  assert_string_equal(word(line, "weights"), "model");
  assert_int_equal(strlen(word(line, "identity")), 32);
  assert_int_equal(strspn(word(line, "identity"), "0123456789abcdef"), 32);
  assert_int_not_equal(strspn(word(line, "identity"), "0"), 32);
  assert_true(number(line, "seconds") >= 0);
  assert_true(number(line, "baseline_entropy") > 2 && number(line, "baseline_entropy") < 3);
  assert_int_equal(cJSON_HasObjectItem(line, "elbo"), measures);
  print(line, expected, sizeof expected);
  request.json = false;
  text = evaluate(&c, &request);
  if (strncmp(text, expected, strlen(expected)) != 0) fail_msg("%s is not %s", text, expected);
  free(text);
  cJSON_Delete(line);
  inference_case_close(&c);
}

static void people_read_the_numbers_of_the_object(void **state)
{
  (void)state;
  compare(PLM_OBJECTIVE_MLM, false);
  compare(PLM_OBJECTIVE_MLM, true);
  compare(PLM_OBJECTIVE_CAUSAL, false);
}

/* Homologues may be shared by the splits of a corpus without clusters, which is said. */
static void splits_without_clusters_are_told(void **state)
{
  (void)state;
  struct inference_case c;
  char clustered[200];
  snprintf(clustered, sizeof clustered, "%.199s", scratch_path("clustered"));
  write_corpus(clustered, PLM_TOKENIZER_ESM, true);
  open_model(&c, PLM_OBJECTIVE_MLM);
  for (int clusters = 0; clusters < 2; clusters++) {
    struct plm_evaluate_request request = request_of(true);
    if (clusters) request.corpus = clustered;
    plm_log_init("t", PLM_LOG_INFO);
    captured_begin(STDERR_FILENO);
    free(evaluate(&c, &request));
    const char *said = captured_end();
    assert_int_equal(captured_times(said, "split without clusters: homologues may be shared"),
                     !clusters);
  }
  inference_case_close(&c);
}

static double value(struct inference_case *c, const struct plm_evaluate_request *request,
                    const char *name)
{
  char *text = evaluate(c, request);
  cJSON *line = cJSON_Parse(text);
  const double found = number(line, name);
  cJSON_Delete(line);
  free(text);
  return found;
}

/* 33 residues, of which a causal model predicts all, and the end of each sequence. */
static void options_choose_what_is_predicted(void **state)
{
  (void)state;
  struct inference_case c;
  open_model(&c, PLM_OBJECTIVE_MLM);
  struct plm_evaluate_request request = request_of(true);
  const double tokens = value(&c, &request, "tokens"), loss = value(&c, &request, "loss");
  assert_true(tokens > 5 && tokens < 28);
  request.seed = 5;
  assert_true(value(&c, &request, "loss") != loss);
  request.mask_rate = 1;
  assert_true(value(&c, &request, "tokens") == 33);
  request.max_tokens = 17; /* 10 and 7 tokens */
  assert_true(value(&c, &request, "tokens") == 13);
  inference_case_close(&c);
  open_model(&c, PLM_OBJECTIVE_CAUSAL);
  request = request_of(true);
  assert_true(value(&c, &request, "tokens") == 33 + 4);
  inference_case_close(&c);
}

/* Of a split with documents of 7 to 12 tokens: the longest one that is evaluated counts, not the
 * room in the chunks, which is a power of two. */
static void longer_documents_are_warned_about(void **state)
{
  (void)state;
  static const struct {
    uint32_t trained, asked; /* tokens */
    uint64_t most;           /* of all documents together; 0: no limit */
    int warned, cut;
  } cases[] = {
      {24, 0, 0, 0, 0},  {24, 8, 0, 0, 3},  {24, 32, 0, 0, 0}, /* none is longer */
      {9, 0, 0, 12, 0},  {9, 16, 0, 12, 0}, {9, 8, 0, 0, 3},   /* chunks of 16 tokens, or of 8 */
      {9, 0, 17, 10, 0}, {9, 0, 10, 10, 0},                    /* the first two, or one */
      {4, 0, 0, 0, 4},   {6, 0, 0, 8, 3},   {6, 8, 17, 8, 1},  /* some are both long and cut */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct inference_case c;
    char name[20], expected[200];
    snprintf(name, sizeof name, "model-of-%zu", i);
    snprintf(folder, sizeof folder, "%.199s", scratch_path(name));
    inference_case_open(&c, PLM_ESM2, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, cases[i].trained, 2);
    inference_case_save(&c, folder);
    plm_log_init("t", PLM_LOG_WARNING);
    struct plm_evaluate_request request = request_of(true);
    request.max_length = cases[i].asked;
    request.max_tokens = cases[i].most;
    request.elbo_rates = 2; /* further passes count no document again */
    captured_begin(STDERR_FILENO);
    assert_int_equal(value(&c, &request, "cut"), cases[i].cut);
    const char *said = captured_end();
    snprintf(expected, sizeof expected,
             "a sequence of %d tokens is longer than those that the model was trained with, which "
             "have at most %u",
             cases[i].warned, cases[i].trained);
    assert_int_equal(captured_times(said, expected), cases[i].warned > 0);
    assert_int_equal(captured_times(said, "longer"), cases[i].warned > 0);
    request.json = false;
    char *text = evaluate(&c, &request);
    snprintf(expected, sizeof expected, "tokens predicted, %d document%s cut\n", cases[i].cut,
             cases[i].cut == 1 ? "" : "s");
    assert_int_equal(captured_times(text, expected), cases[i].cut > 0);
    assert_int_equal(captured_times(text, " cut"), cases[i].cut > 0);
    free(text);
    inference_case_close(&c);
  }
}

static void what_does_not_fit_is_refused(void **state)
{
  (void)state;
  struct inference_case c;
  struct plm_error error = {0};
  char bytes[200];
  open_model(&c, PLM_OBJECTIVE_MLM);
  struct plm_evaluate_request request = request_of(true);
  request.split = "test";
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_CONFIG);
  assert_string_equal(error.what, "the corpus has no documents in split test");
  request.split = "all";
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_USAGE);
  request = request_of(true);
  snprintf(bytes, sizeof bytes, "%.199s", scratch_path("bytes"));
  write_corpus(bytes, PLM_TOKENIZER_BYTE, false);
  request.corpus = bytes;
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_CONFIG);
  assert_string_equal(error.what, "the checkpoint has 33 tokens, the corpus's tokenizer 261");
  request.corpus = scratch_path("none");
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_NOT_FOUND);
  request = request_of(true);
  request.checkpoint = scratch_path("none");
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_NOT_FOUND);
  inference_case_close(&c);
  inference_case_open(&c, PLM_PATCH_UNET, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  inference_case_save(&c, folder);
  request = request_of(true);
  request.max_length = 3;
  assert_int_equal(plm_evaluate_once(&request, c.inference.ops, &error), PLM_USAGE);
  assert_string_equal(error.what,
                      "--max-length 3 is too short for chunks of this patch_unet, which "
                      "merges groups of 4 tokens");
  inference_case_close(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      TEST(people_read_the_numbers_of_the_object), TEST(splits_without_clusters_are_told),
      TEST(options_choose_what_is_predicted),      TEST(longer_documents_are_warned_about),
      TEST(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
