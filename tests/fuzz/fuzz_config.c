/* Fuzzes the configuration: any text is either refused with problems, or it is accepted, and then
 * printing and loading it again gives the same. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/config/config.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("version: 1\nrun: runs/demo\nseed: 1\ncorpus: data/c\n"
              "network: {feed: tcp://127.0.0.1:5701, keys: null, credit_bytes: 67108864}\n"
              "data: {tokenizer: esm, max_length: 512, document_alignment: auto}\n"),
    FUZZ_TEXT("model:\n  architecture: patch_unet\n  hidden_size: 128\n  attention:\n"
              "    pattern: [document, local+causal]\n    window: {start: 512, end: 512}\n"),
    FUZZ_TEXT("trainer:\n  steps: 300\n  masking: {mask_rate: 0.15, rate_scope: chunk}\n"
              "  optimizer: {name: muon, betas: [0.8, 0.95]}\n  clip: {norm: 1e-3}\n"
              "evaluator:\n  splits: [valid, test]\n  mask_rates: [0.1]\n  max_tokens: null\n"),
    FUZZ_TEXT("a: &x [1, *x]\n? b\n: !!str \"\\x41\"\n---\n<<: {seed: 1}\n"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  struct plm_config config, again;
  struct plm_error error = {0};
  char *first, *second;
  if (plm_config_load_text((const char *)bytes, size, &config, &error) != PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0');
    return 0;
  }
  first = plm_config_print(&config);
  PLM_ASSERT(plm_config_load_text(first, strlen(first), &again, &error) == PLM_OK);
  second = plm_config_print(&again);
  PLM_ASSERT(strcmp(first, second) == 0);
  PLM_ASSERT(plm_config_check_resume(&config, &again, NULL, NULL) == PLM_OK);
  free(first);
  free(second);
  plm_config_deinit(&config);
  plm_config_deinit(&again);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
