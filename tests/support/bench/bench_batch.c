/* Makes batches for benchmarks. */
#include "tests/support/bench/bench_batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/plan/assemble.h"
#include "tests/support/harness/must.h"
#include "trainer/input/objective.h"
#include "trainer/trainer_options.h"

struct bench_batch_memory {
  struct plm_window window;
  uint8_t *tokens;
  struct plm_objective_state objective;
};

static plm_status assemble(const char *directory, const struct plm_config *config,
                           struct bench_batch_memory *memory, struct plm_error *error)
{
  const struct plm_corpus_options options = {.allow_remote = true};
  struct plm_plan_parameters parameters = plm_config_training_plan(config);
  struct plm_corpus *corpus = NULL;
  struct plm_corpus_cursor *cursor = NULL;
  struct plm_plan *plan = NULL;
  plm_status status;
  PLM_TRY_GOTO(status, plm_corpus_open(directory, &options, &corpus, error), done);
  PLM_TRY_GOTO(status, plm_plan_open_corpus(&parameters, corpus, PLM_SPLIT_TRAIN, &plan, error),
               done);
  PLM_TRY_GOTO(status, plm_corpus_cursor_open(corpus, &cursor, error), done);
  const struct plm_plan_corpus from = {.plan = plan, .cursor = cursor, .split = PLM_SPLIT_TRAIN};
  PLM_TRY_GOTO(status,
               plm_plan_window(plan, 0, 0, plm_plan_read_corpus, &from, &memory->window, error),
               done);
  memory->tokens = must(malloc(plm_assemble_bytes(plan, &memory->window)));
  status =
      plm_assemble_window(cursor, PLM_SPLIT_TRAIN, plan, &memory->window, memory->tokens, error);
done:
  plm_corpus_cursor_close(cursor);
  plm_plan_close(plan);
  plm_corpus_close(corpus);
  return status;
}

plm_status bench_batch_open(const char *corpus, const struct plm_config *config, uint32_t chunks,
                            struct bench_batch *batch, struct plm_error *error)
{
  struct bench_batch_memory *memory = must(calloc(1, sizeof *memory));
  uint64_t count;
  plm_status status;
  const struct plm_objective_options options = plm_objective_options_of(config);
  *batch = (struct bench_batch){.memory = memory};
  PLM_TRY_GOTO(status, assemble(corpus, config, memory, error), failed);
  if (memory->window.chunks < chunks) {
    status = plm_error_set(error, PLM_NOT_FOUND, "%s: %u chunks of %u, the batch has %u", corpus,
                           memory->window.chunks, config->data.max_length, chunks);
    goto failed;
  }
  batch->batch = (struct plm_batch){.chunks = chunks,
                                    .max_length = config->data.max_length,
                                    .token_bytes = 1,
                                    .tokens = memory->tokens,
                                    .document_begin = memory->window.chunk_begin,
                                    .documents = memory->window.documents};
  PLM_TRY_GOTO(status, plm_objective_init(&memory->objective, &options, chunks, chunks, error),
               failed);
  plm_objective_targets(&memory->objective, 0, 0, &batch->batch, &batch->targets, &count);
  for (uint32_t i = 0; i < memory->window.chunk_begin[chunks]; i++)
    batch->real_tokens += memory->window.documents[i].tokens;
  return PLM_OK;
failed:
  bench_batch_close(batch);
  return status;
}

void bench_batch_close(struct bench_batch *batch)
{
  if (batch->memory == NULL) return;
  plm_window_deinit(&batch->memory->window);
  plm_objective_deinit(&batch->memory->objective);
  free(batch->memory->tokens);
  free(batch->memory);
  *batch = (struct bench_batch){0};
}

plm_status bench_batch_write(const struct bench_batch *b, const char *path, struct plm_error *error)
{
  const uint32_t B = b->batch.chunks, L = b->batch.max_length;
  const size_t n = (size_t)B * L;
  int32_t *labels = must(malloc(n * sizeof *labels)),
          *documents = must(malloc(n * sizeof(int32_t)));
  for (size_t i = 0; i < n; i++) {
    labels[i] = -100;
    documents[i] = -1;
  }
  for (uint32_t i = 0; i < b->targets.rows; i++)
    labels[b->targets.positions[i]] = b->targets.labels[i];
  for (uint32_t c = 0; c < B; c++)
    for (uint32_t d = b->batch.document_begin[c]; d < b->batch.document_begin[c + 1]; d++)
      for (uint32_t i = 0; i < b->batch.documents[d].tokens; i++)
        documents[(size_t)c * L + b->batch.documents[d].start + i] =
            (int32_t)(d - b->batch.document_begin[c]);
  FILE *file = fopen(path, "wb");
  const int32_t head[2] = {(int32_t)B, (int32_t)L};
  bool written = file != NULL && fwrite(head, sizeof head, 1, file) == 1 &&
                 fwrite(b->targets.inputs, sizeof(int32_t), n, file) == n &&
                 fwrite(labels, sizeof(int32_t), n, file) == n &&
                 fwrite(documents, sizeof(int32_t), n, file) == n;
  if (file != NULL && fclose(file) != 0) written = false;
  free(labels);
  free(documents);
  return written ? PLM_OK : plm_error_set(error, PLM_IO, "%s: cannot write the batch", path);
}
