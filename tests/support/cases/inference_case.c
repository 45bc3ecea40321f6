/* Opens the model and runs single sequences. */
#include "tests/support/cases/inference_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/huggingface.h"

enum { MOST_LENGTH = 256, MOST_V = 300 };

void inference_case_open(struct inference_case *c, enum plm_architecture architecture,
                         enum plm_objective objective, enum plm_tokenizer_kind tokenizer,
                         uint32_t max_length, uint32_t max_chunks)
{
  const bool causal = objective == PLM_OBJECTIVE_CAUSAL;
  const struct plm_tokenizer *words = plm_tokenizer_of(tokenizer);
  struct plm_model_config config = case_config(architecture, 6, max_length);
  const struct plm_model_options options = {.max_chunks = max_chunks};
  config.vocab_size = words->vocab_size;
  config.pattern[0] = PLM_ATTENTION_DOCUMENT | (causal ? PLM_ATTENTION_CAUSAL : 0);
  model_case_open(&c->c, &config, &options, PLM_PRECISION_FP32, 5);
  c->inference = (struct plm_inference){.config = config,
                                        .objective = objective,
                                        .tokenizer = words,
                                        .window = c->c.window,
                                        .batch_tokens = max_chunks * max_length,
                                        .max_chunks = max_chunks,
                                        .trained_length = max_length,
                                        .weights = "model",
                                        .ops = c->c.ops,
                                        .model = c->c.model,
                                        .masks = c->c.masks};
}

static bool ends_with(const struct plm_parameter *parameter, const char *end)
{
  const size_t length = strlen(parameter->name);
  return length >= strlen(end) && strcmp(parameter->name + length - strlen(end), end) == 0;
}

/* Only the residue has anything in dimension 0 of its state: no block adds to that dimension, and
 * the first unit of each MLP multiplies it by 1e30 and squares it. */
void inference_case_overflow(struct inference_case *c, char residue)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(c->c.model, &count);
  const int32_t token = plm_tokenizer_encode(c->inference.tokenizer, (uint8_t)residue);
  for (size_t p = 0; p < count; p++) {
    float *values = c->c.weights + table[p].offset;
    const size_t columns = (size_t)table[p].cols, rows = (size_t)table[p].rows;
    if (strcmp(table[p].name, "plm.embeddings.weight") == 0) {
      for (size_t row = 0; row < rows; row++) values[row * columns] = 0;
      memset(values + (size_t)token * columns, 0, columns * sizeof *values);
      values[(size_t)token * columns] = 1;
    } else if (ends_with(&table[p], "attention.output.weight") ||
               ends_with(&table[p], "mlp.down.weight")) {
      memset(values, 0, columns * sizeof *values);
    } else if (ends_with(&table[p], "mlp.up.weight")) {
      memset(values, 0, columns * sizeof *values);
      values[0] = 1e30F;
    }
  }
  plm_model_load(c->c.model, c->c.weights);
}

void inference_case_save(const struct inference_case *c, const char *folder)
{
  const struct plm_inference *inference = &c->inference;
  char path[PLM_PATH_SIZE],
      *text =
          plm_huggingface_config_print(&inference->config, inference->window, inference->objective);
  size_t count;
  const struct plm_parameter *table = plm_model_table(inference->model, &count);
  PLM_ASSERT(plm_directory_make(folder, NULL) == PLM_OK);
  PLM_ASSERT(plm_path_join(path, folder, "config.json", NULL) == PLM_OK);
  PLM_ASSERT(plm_file_write(path, text, strlen(text), 0666, NULL) == PLM_OK);
  free(text);
  PLM_ASSERT(plm_path_join(path, folder, "model.safetensors", NULL) == PLM_OK);
  PLM_ASSERT(plm_parameters_write(path, table, count, c->c.weights, NULL) == PLM_OK);
}

void inference_case_close(struct inference_case *c)
{
  model_case_close(&c->c);
}

const float *inference_case_logits(struct inference_case *c, const int32_t *tokens, uint32_t count)
{
  static float logits[MOST_LENGTH * MOST_V];
  const uint32_t length = c->inference.config.max_length;
  int32_t padded[MOST_LENGTH];
  const uint32_t begin[2] = {0, 1};
  const struct plm_chunk_document document = {.tokens = count, .residues = count};
  const struct plm_batch batch = {
      .chunks = 1, .max_length = length, .document_begin = begin, .documents = &document};
  struct plm_error error = {0};
  PLM_ASSERT(count <= length && length <= MOST_LENGTH);
  PLM_ASSERT(c->inference.config.vocab_size <= MOST_V);
  for (uint32_t t = 0; t < length; t++)
    padded[t] = t < count ? tokens[t] : c->inference.tokenizer->pad;
  PLM_ASSERT(plm_inference_run(&c->inference, &batch, padded, NULL, 0, NULL, logits, &error) ==
             PLM_OK);
  return logits;
}

double inference_case_log_p(const struct inference_case *c, const float *logits, int32_t token)
{
  double sum = 0;
  for (uint32_t v = 0; v < c->inference.config.vocab_size; v++) sum += exp((double)logits[v]);
  return (double)logits[token] - log(sum);
}
