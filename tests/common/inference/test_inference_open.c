/* A folder opened for inference: which head, which weights, and what these compute. */
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "common/inference/pseudo_likelihood.h"
#include "common/model/architecture.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

enum { LENGTH = 32, OUTPUTS = 3, BATCH_TOKENS = 2 * LENGTH + 5 };
static const int32_t tokens[] = {0, 4, 5, 6, 7, 8, 2};
enum { TOKENS = sizeof tokens / sizeof *tokens };

typedef plm_status opener(const char *folder, const char *weights, struct plm_ops *ops,
                          uint32_t batch_tokens, struct plm_inference **inference,
                          struct plm_hash *identity, struct plm_error *error);

static struct plm_inference *open_with(opener *open, const char *folder, const char *weights,
                                       struct plm_ops *ops, struct plm_hash *identity)
{
  struct plm_inference *inference;
  struct plm_error error = {0};
  if (open(folder, weights, ops, BATCH_TOKENS, &inference, identity, &error) != PLM_OK)
    fail_msg("%s: %s", error.where, error.what);
  return inference;
}

/* The logits, or the hidden states, of the tokens. */
static void run(struct plm_inference *inference, float *hidden, float *logits)
{
  int32_t padded[LENGTH];
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = TOKENS, .residues = TOKENS};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = LENGTH, .document_begin = begin, .documents = &document};
  for (int t = 0; t < LENGTH; t++) padded[t] = t < TOKENS ? tokens[t] : 1;
  assert_int_equal(plm_inference_run(inference, &batch, padded, NULL, 0, hidden, logits, NULL),
                   PLM_OK);
}

/* Both files of weights: the model's and, halved, those of its moving average. */
static void write_average(const struct inference_case *c, const char *folder)
{
  char path[PLM_PATH_SIZE];
  size_t count;
  const struct plm_parameter *table = plm_model_table(c->inference.model, &count);
  const size_t elements = plm_model_arena_elements(c->inference.model);
  float *half = malloc(elements * sizeof *half);
  assert_non_null(half);
  for (size_t e = 0; e < elements; e++) half[e] = 0.5f * c->c.weights[e];
  assert_int_equal(plm_path_join(path, folder, "ema.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_write(path, table, count, half, NULL), PLM_OK);
  free(half);
}

static void a_language_model_has_its_weights(void **state)
{
  static float logits[LENGTH * 64];
  struct inference_case c;
  struct plm_hash identity = {0, 0}, file;
  struct plm_error error = {0};
  struct plm_inference *inference;
  char path[PLM_PATH_SIZE];
  const char *folder = scratch_path("tokens");
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LENGTH, 2);
  inference_case_save(&c, folder);
  const float *expected = inference_case_logits(&c, tokens, TOKENS);
  const size_t bytes = TOKENS * c.inference.config.vocab_size * sizeof *logits;
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_hash_file(path, &file, NULL, NULL, NULL), PLM_OK);
  for (int trunk = 0; trunk < 2; trunk++) {
    inference = open_with(trunk ? plm_inference_open_trunk : plm_inference_open_verified, folder,
                          NULL, c.c.ops, &identity);
    assert_true(plm_hash_equal(identity, file));
    assert_string_equal(inference->weights, "model");
    assert_string_equal(inference->file, "model.safetensors");
    assert_int_equal(inference->head, PLM_HEAD_LM);
    assert_int_equal(inference->window, c.inference.window);
    assert_int_equal(inference->max_chunks, 2);
    assert_int_equal(inference->batch_tokens, BATCH_TOKENS);
    assert_int_equal(inference->trained_length, LENGTH);
    assert_ptr_equal(inference->tokenizer, plm_tokenizer_of(PLM_TOKENIZER_ESM));
    run(inference, NULL, logits);
    assert_memory_equal(logits, expected, bytes);
    plm_inference_close(inference);
  }
  assert_int_equal(
      plm_inference_open_predictor(folder, NULL, c.c.ops, BATCH_TOKENS, &inference, NULL, &error),
      PLM_CONFIG);
  /* Averaged weights are taken unless the user chooses others. */
  assert_int_equal(
      plm_inference_open_verified(folder, "ema", c.c.ops, BATCH_TOKENS, &inference, NULL, &error),
      PLM_NOT_FOUND);
  /* Of a folder that is verified already, averaged weights are loaded if there are any. */
  for (int average = 0; average < 2; average++) {
    if (average) write_average(&c, folder);
    assert_int_equal(plm_inference_open(folder, c.c.ops, BATCH_TOKENS, &inference, &error), PLM_OK);
    assert_int_equal(plm_inference_load(inference, folder, NULL, &error), PLM_OK);
    assert_string_equal(inference->weights, average ? "ema" : "model");
    run(inference, NULL, logits);
    assert_int_equal(memcmp(logits, expected, bytes) == 0, !average);
    /* Without room, everything stays as it is. */
    inference->batch_tokens = UINT32_MAX;
    assert_int_equal(plm_inference_make_room(inference, LENGTH + 1, &error), PLM_LIMIT);
    inference->batch_tokens = BATCH_TOKENS;
    assert_int_equal(inference->config.max_length, LENGTH);
    assert_int_equal(inference->max_chunks, 2);
    plm_inference_close(inference);
  }
  inference_case_close(&c);
}

static void a_predictor_keeps_its_head(void **state)
{
  struct plm_model_config config = case_config(PLM_TRANSFORMER, 2, LENGTH);
  const struct plm_model_options options = {.max_chunks = 2};
  struct plm_label_names labels = {.count = OUTPUTS};
  char *names[] = {"a", "b", "c"}, path[PLM_PATH_SIZE];
  const char *folder = scratch_path("labels");
  struct model_case c;
  struct plm_error error = {0};
  struct plm_inference *inference;
  size_t count;
  static float hidden[LENGTH * 64];
  (void)state;
  labels.names = names;
  config.head = (struct plm_head_config){
      PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, OUTPUTS, 0};
  model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 5);
  char *text =
      plm_huggingface_config_print_labels(&config, LENGTH, PLM_OBJECTIVE_MLM, "float32", &labels);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "config.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  const struct plm_parameter *table = plm_model_table(c.model, &count);
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_write(path, table, count, c.weights, NULL), PLM_OK);

  inference = open_with(plm_inference_open_predictor, folder, NULL, c.ops, NULL);
  assert_int_equal(inference->config.head.kind, PLM_PREDICTS_SEQUENCES);
  int32_t padded[LENGTH], first[] = {1}, last[] = {TOKENS - 1};
  for (int t = 0; t < LENGTH; t++) padded[t] = t < TOKENS ? tokens[t] : 1;
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = TOKENS, .residues = TOKENS - 2};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = LENGTH, .document_begin = begin, .documents = &document};
  const struct plm_label_targets targets = {
      .inputs = padded, .rows = 1, .begin = first, .end = last};
  float outputs[OUTPUTS], expected[OUTPUTS];
  assert_int_equal(plm_inference_predict(inference, &batch, &targets, outputs, &error), PLM_OK);
  plm_model_attention_masks(c.model, &batch, c.window, c.masks);
  assert_int_equal(plm_model_predict(c.model, &(struct plm_masked_batch){&batch, c.masks}, &targets,
                                     expected, &error),
                   PLM_OK);
  assert_memory_equal(outputs, expected, sizeof outputs);
  plm_inference_close(inference);

  inference = open_with(plm_inference_open_trunk, folder, NULL, c.ops, NULL);
  assert_int_equal(inference->config.head.kind, PLM_PREDICTS_TOKENS);
  assert_int_equal(inference->head, PLM_HEAD_CLASSIFIER);
  run(inference, hidden, NULL);
  plm_inference_close(inference);
  assert_int_not_equal(
      plm_inference_open_verified(folder, NULL, c.ops, BATCH_TOKENS, &inference, NULL, &error),
      PLM_OK); /* it has no head for tokens */
  model_case_close(&c);
}

/* The limit is that of the user, else that of the model. */
static void sequences_have_a_limit(void **state)
{
  const struct plm_model_config ours = case_config(PLM_TRANSFORMER, 2, LENGTH),
                                levels = case_config(PLM_PATCH_UNET, 20, LENGTH),
                                published = case_config(PLM_ESM2, 2, LENGTH);
  const uint32_t longest = plm_architecture_longest(&ours);
  struct plm_inference inference = {.config = ours};
  struct plm_error error = {0};
  uint32_t limit;
  (void)state;
  assert_int_equal(plm_inference_limit(&ours, 0, &limit, &error), PLM_OK);
  assert_int_equal(limit, LENGTH);
  assert_int_equal(plm_inference_limit(&published, 0, &limit, &error), PLM_OK);
  assert_int_equal(limit, plm_architecture_longest(&published));
  for (uint32_t asked = 3; asked <= longest; asked += longest - 3) {
    assert_int_equal(plm_inference_limit(&ours, asked, &limit, &error), PLM_OK);
    assert_int_equal(limit, asked);
  }
  assert_int_equal(plm_inference_limit(&ours, 2, &limit, &error), PLM_USAGE);
  assert_non_null(strstr(error.what, "--max-length 2: this model takes sequences of 3 to "));
  assert_string_equal(error.hint, "");
  assert_int_equal(plm_inference_limit(&ours, longest + 1, &limit, &error), PLM_USAGE);
  assert_int_equal(plm_architecture_longest(&levels), LENGTH);
  for (uint32_t half = 1; half < 8; half++) { /* a length of 2^4 can be halved four times */
    const struct plm_model_config deep = {
        .architecture = PLM_PATCH_UNET, .max_length = 16, .num_unet_layers = 2 * half};
    assert_int_equal(plm_architecture_longest(&deep), half > 4 ? 16 : PLM_MODEL_MAX_LENGTH);
  }
  assert_int_equal(plm_inference_limit(&levels, LENGTH, &limit, &error), PLM_OK);
  assert_int_equal(plm_inference_limit(&levels, LENGTH + 1, &limit, &error), PLM_USAGE);
  assert_non_null(strstr(error.hint, "levels of this patch_unet"));
  assert_int_equal(plm_inference_most(&inference), LENGTH);
  assert_int_equal(plm_inference_slice(&inference), LENGTH);
  assert_int_equal(plm_inference_set_limit(&inference, LENGTH - 1, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), LENGTH - 1);
  assert_int_equal(plm_inference_slice(&inference), LENGTH - 1);
  assert_int_equal(plm_inference_set_limit(&inference, LENGTH + 1, &error), PLM_OK);
  assert_int_equal(plm_inference_most(&inference), LENGTH + 1);
  assert_int_equal(plm_inference_slice(&inference), LENGTH); /* of a chunk */
}

static plm_status open_likelihood(void *context, struct plm_error *error)
{
  struct inference_case *c = context;
  struct plm_pseudo_likelihood *likelihood;
  double sum;
  uint32_t terms;
  PLM_TRY(plm_pseudo_likelihood_open(&c->inference, &likelihood, error));
  const plm_status status =
      plm_pseudo_likelihood_run(likelihood, tokens, TOKENS, NULL, NULL, &sum, &terms, error);
  plm_pseudo_likelihood_close(likelihood);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  struct inference_case c;
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, LENGTH, 2);
  failing_memory_try(open_likelihood, &c, 5);
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_language_model_has_its_weights),
      cmocka_unit_test(a_predictor_keeps_its_head),
      cmocka_unit_test(sequences_have_a_limit),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  plm_log_init("t", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
