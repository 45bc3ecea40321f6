/* `plm-pipeline trace --step N`: lists the documents that step N trained on, in the order of the
 * batch. They follow from the run's configuration and the corpus, so no packer is asked. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/corpus/corpus.h"
#include "stages/commands/command.h"
#include "stages/commands/trace_sources.h"
#include "stages/commands/trace_verify.h"

static const struct plm_option options[] = {
    {.name = "step",
     .argument = "N",
     .help = "the step; the first is 1, and step N leads to checkpoint N"},
    {.name = "verify", .help = "prove that the step was trained on exactly these documents"},
    {0},
};

static plm_status document_json(struct plm_corpus_cursor *cursor,
                                const struct plm_chunk_document *document, cJSON *array,
                                struct plm_error *error)
{
  const char *name;
  PLM_TRY(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, document->number, &name, error));
  cJSON *entry = cJSON_CreateObject();
  cJSON_AddNumberToObject(entry, "index", (double)document->number);
  cJSON_AddStringToObject(entry, "name", name);
  cJSON_AddNumberToObject(entry, "start", document->start);
  cJSON_AddNumberToObject(entry, "length", document->tokens);
  cJSON_AddNumberToObject(entry, "offset", document->offset);
  plm_json_append(array, entry);
  return PLM_OK;
}

/* source: its number, or -1 if the run has only one corpus. */
static plm_status trace_print_json(struct plm_corpus_cursor *cursor, int source,
                                   const struct plm_traced_chunk *chunk, struct plm_error *error)
{
  cJSON *line = cJSON_CreateObject();
  plm_status status = PLM_OK;
  if (source >= 0) cJSON_AddNumberToObject(line, "source", source);
  cJSON_AddNumberToObject(line, "epoch", (double)chunk->epoch);
  cJSON_AddNumberToObject(line, "chunk", (double)chunk->chunk);
  cJSON *documents = cJSON_AddArrayToObject(line, "documents");
  for (uint32_t i = 0; i < chunk->count && status == PLM_OK; i++)
    status = document_json(cursor, &chunk->documents[i], documents, error);
  if (status == PLM_OK) return plm_json_print(line, error);
  cJSON_Delete(line);
  return status;
}

static plm_status trace_print_table(struct plm_corpus_cursor *cursor, int source,
                                    const struct plm_traced_chunk *chunk, struct plm_error *error)
{
  const char *name;
  if (source >= 0) printf("source %d, ", source);
  printf("epoch %llu, chunk %llu\n", (unsigned long long)chunk->epoch,
         (unsigned long long)chunk->chunk);
  for (uint32_t i = 0; i < chunk->count; i++) {
    const struct plm_chunk_document *document = &chunk->documents[i];
    PLM_TRY(plm_corpus_name(cursor, PLM_SPLIT_TRAIN, document->number, &name, error));
    plm_print(stdout, "%10llu  start %5u  length %5u  offset %6u  %s\n",
              (unsigned long long)document->number, document->start, document->tokens,
              document->offset, name);
  }
  return PLM_OK;
}

static plm_status print_step(const struct plm_command_context *context, bool mixture,
                             struct plm_trace_sources *sources, struct plm_error *error)
{
  for (uint32_t i = 0; i < sources->chunks; i++) {
    const struct plm_trace_source *source = &sources->sources[sources->of[i]];
    const int number = mixture ? sources->of[i] : -1;
    struct plm_traced_chunk chunk;
    PLM_TRY(plm_trace_sources_next(sources, sources->of[i], &chunk, error));
    PLM_TRY(context->json ? trace_print_json(source->cursor, number, &chunk, error)
                          : trace_print_table(source->cursor, number, &chunk, error));
  }
  return fflush(stdout) == 0 ? PLM_OK : plm_error_errno(error, "cannot write the trace");
}

static plm_status trace_run(const struct plm_command_context *context, struct plm_error *error)
{
  struct plm_config config = {0};
  struct plm_trace_sources sources = {0};
  unsigned long long step;
  PLM_TRY(plm_command_operands(context, 0, error));
  PLM_TRY(plm_arguments_u64(context->arguments, "step", 0, &step, error));
  if (step == 0) {
    plm_error_set(error, PLM_USAGE, "--step N is needed: the number of the step");
    return plm_error_hint(error, "the first step is 1");
  }
  PLM_TRY(plm_command_run_config(context, &config, error));
  plm_status status;
  if (!config.corpus) {
    plm_error_set(error, PLM_CONFIG, "the configuration names no corpus");
    status = plm_error_hint(error, "set `corpus` to the folder that the packers read");
  } else {
    status = plm_trace_sources_open(&config, step - 1, &sources, error);
    if (status == PLM_OK) status = plm_trace_sources_place(&sources, step - 1, error);
    if (status == PLM_OK) status = print_step(context, config.source_count > 0, &sources, error);
    if (status == PLM_OK && plm_arguments_has(context->arguments, "verify"))
      status = plm_trace_verify(&config, step, &sources, error);
    plm_trace_sources_close(&sources);
  }
  plm_config_deinit(&config);
  return status;
}

const struct plm_command plm_command_trace = {
    .name = "trace",
    .sets = true,
    .operands = "--step N",
    .summary = "list the documents that a step trained on",
    .details = "Prints the chunks of step N in the order of the batch, and for each chunk its "
               "documents: number in the training split; start, the first token in the chunk; "
               "length in tokens, <cls> and <eos> included; offset, the first residue within the "
               "document; and name. In a mixture of corpora, each chunk names its source, by its "
               "number in the list. Reads the run's pipeline.yaml and the corpus. --json prints an "
               "object on one line for each chunk.\n\n"
               "--verify then recomputes the hash over everything that training consumed (the "
               "chain). It begins at the last checkpoint before step N, or at the start of the "
               "run, and ends at the first checkpoint that contains step N, where it compares the "
               "result with the recorded one. The documents are read from the corpus, and each is "
               "checked against the corpus's fingerprint. It exits with 1 if the hashes differ or "
               "the corpus is damaged, and with 2 if the corpus is not the one that the run was "
               "trained on.",
    .options = options,
    .run = trace_run,
};
