/* Runs one training pass of a small U-Net on the emulated CUDA backend with the kernels for sm_90a,
 * and prints what was done, for the comparison with the model of a step (cuda_step.py).
 *
 *   tool_traced_pass LAYERS WIDTH HEADS RATIO LENGTH DOCUMENT...
 *
 * DOCUMENT is a number of tokens. The lines have tabs:
 *   rows CHUNKS HEAD_ROWS            of the pass
 *   document CHUNK BEGIN TOKENS
 *   operator NAME CALLS BYTES FLOPS  as in ops_trace.h
 *   before, after                    the lines `launch` that follow count from the start
 *   launch OFFSET COUNT              of a kernel in the emulated library
 *   work MULTIPLY_ADDS               of matrix instructions */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/model/model.h"
#include "tests/emulation/controls.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/operators/ops_trace.h"

static struct plm_model_config configuration(char **argv)
{
  struct plm_model_config config = case_config(PLM_UNET, (uint32_t)atoi(argv[1]), 64);
  config.hidden_size = (uint32_t)atoi(argv[2]);
  config.num_attention_heads = (uint32_t)atoi(argv[3]);
  config.expansion_ratio = atof(argv[4]);
  config.max_length = (uint32_t)atoi(argv[5]);
  config.window_start = config.window_end = config.max_length;
  config.token_dropout = false;
  return config;
}

static void print_documents(const struct plm_batch *batch)
{
  for (uint32_t c = 0; c < batch->chunks; c++)
    for (uint32_t d = batch->document_begin[c]; d < batch->document_begin[c + 1]; d++)
      printf("document\t%u\t%u\t%u\n", c, batch->documents[d].start, batch->documents[d].tokens);
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
  if (argc < 7 || argc - 6 > CASE_MAX_DOCUMENTS) {
    (void)fprintf(stderr, "tool_traced_pass: LAYERS WIDTH HEADS RATIO LENGTH DOCUMENT...\n");
    return 2;
  }
  const struct plm_model_config config = configuration(argv);
  for (int i = 6; i < argc; i++) lengths[i - 6] = (uint32_t)atoi(argv[i]);
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
