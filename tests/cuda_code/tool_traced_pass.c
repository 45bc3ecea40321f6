/* Runs one training pass of a small model on the emulated CUDA backend with the kernels for sm_90a,
 * and prints what was done, for the comparison with the model of a step (cuda_step.py).
 *
 *   tool_traced_pass ARCHITECTURE LAYERS WIDTH HEADS HIDDEN LENGTH DOCUMENT...
 *
 * HIDDEN is the width within the MLP, DOCUMENT a number of tokens. The lines have tabs:
 *   rows CHUNKS HEAD_ROWS            of the pass
 *   parameters ELEMENTS              of all that are trained
 *   document CHUNK BEGIN TOKENS
 *   operator NAME CALLS BYTES FLOPS  as in ops_trace.h
 *   before, after                    the lines `launch` that follow count from the start
 *   launch OFFSET COUNT              of a kernel in the emulated library
 *   work MULTIPLY_ADDS               of matrix instructions */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "common/model/model.h"
#include "tests/emulation/controls.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/operators/ops_trace.h"

static struct plm_model_config configuration(char **argv)
{
  int architecture = PLM_TRANSFORMER;
  while (strcmp(argv[1], plm_architecture_names[architecture]) != 0) architecture++;
  const bool published = plm_architecture_rules((enum plm_architecture)architecture)->published;
  struct plm_model_config config =
      case_config((enum plm_architecture)architecture, (uint32_t)atoi(argv[2]), 64);
  config.hidden_size = (uint32_t)atoi(argv[3]);
  config.num_attention_heads = (uint32_t)atoi(argv[4]);
  if (published)
    config.intermediate_size = (uint32_t)atoi(argv[5]);
  else
    config.expansion_ratio = atof(argv[5]) / config.hidden_size;
  config.max_length = (uint32_t)atoi(argv[6]);
  config.window_start = config.window_end = config.max_length;
  if (published)
    config.max_positions = config.max_length;
  else
    config.token_dropout = false;
  return config;
}

static void print_documents(const struct plm_batch *batch)
{
  for (uint32_t c = 0; c < batch->chunks; c++)
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++)
      printf("document\t%u\t%u\t%u\n", c, batch->documents[d].start, batch->documents[d].tokens);
}

static void print_parameters(const struct plm_model *model)
{
  size_t count, elements = 0;
  const struct plm_parameter *table = plm_model_table(model, &count);
  for (size_t i = 0; i < count; i++) elements += table[i].count;
  printf("parameters\t%zu\n", elements);
}

static void print_launch(void *context, const void *kernel, uint64_t launches)
{
  (void)context;
  Dl_info place;
  if (dladdr(kernel, &place) == 0) abort();
  printf("launch\t%tx\t%" PRIu64 "\n", (const char *)kernel - (const char *)place.dli_fbase,
         launches);
}

int main(int argc, char **argv)
{
  static uint32_t lengths[CASE_MAX_DOCUMENTS + 1];
  static struct case_documents documents;
  if (argc < 8 || argc - 7 > CASE_MAX_DOCUMENTS) {
    (void)fprintf(stderr, "tool_traced_pass: ARCHITECTURE LAYERS WIDTH HEADS HIDDEN LENGTH "
                          "DOCUMENT...\n");
    return 2;
  }
  const struct plm_model_config config = configuration(argv);
  for (int i = 7; i < argc; i++) lengths[i - 7] = (uint32_t)atoi(argv[i]);
  plm_emulation_capability(90, false);
  plm_emulation_scratch((size_t)8 << 20);
  setenv("PLM_CUDA_ATTENTION", "sm90", 1); /* forced choices are not checked */
  setenv("PLM_CUDA_RELU2", "fused", 1);
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  struct case_batch placed;
  struct model_case c;
  unsigned count;
  case_documents_draw(&documents, lengths, config.vocab_size, 11);
  case_batch_place(&placed, &documents, config.max_length, 1, false);
  const struct plm_model_options options = {.max_chunks = placed.batch.chunks, .training = true};
  model_case_open_on(&c, ops, &config, &options, 13);
  printf(
      "rows\t%u\t%u\n", placed.batch.chunks,
      plm_model_rows(ops, (uint64_t)placed.batch.chunks * config.max_length, placed.targets.rows));
  print_parameters(c.model);
  print_documents(&placed.batch);
  (void)ops->synchronize(ops, NULL);
  printf("before\n");
  plm_emulation_launches(print_launch, NULL);
  const uint64_t multiply_adds = plm_emulation_work_done().multiply_adds;
  ops_trace_begin(ops);
  (void)model_case_step(&c, &placed, 1);
  const struct ops_trace_row *rows = ops_trace_end(ops, &count);
  printf("after\n");
  plm_emulation_launches(print_launch, NULL);
  for (unsigned i = 0; i < count; i++)
    printf("operator\t%s\t%u\t%.17g\t%.17g\n", rows[i].name, rows[i].calls, rows[i].bytes,
           rows[i].flops);
  printf("work\t%" PRIu64 "\n", plm_emulation_work_done().multiply_adds - multiply_adds);
  model_case_close(&c);
  case_batch_free(&placed);
  return 0;
}
