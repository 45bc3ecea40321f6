/* Fuzzes trainer.json: any text is either refused with a reason, or it is printed and read again as
 * the same state. The configuration in it goes through the loader of pipeline.yaml. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/config/config.h"
#include "tests/support/harness/scratch.h"
#include "trainer/checkpoint/trainer_state.h"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\"format\":1,\"step\":4,\"configuration\":\"seed: 1\\n\",\"history\":[]}"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  struct plm_trainer_state state = {0};
  struct plm_error error = {0};
  struct plm_config config;
  char *configuration = NULL;
  scratch_write(scratch_path("trainer.json"), bytes, size);
  plm_data_cursor_init(&state.cursor, (struct plm_hash){0}, 1);
  const plm_status status =
      plm_trainer_state_read(scratch_directory(), &state, &configuration, &error);
  if (status != PLM_OK)
    PLM_ASSERT(error.what[0] != '\0');
  else if (plm_config_load_text(configuration, strlen(configuration), &config, &error) == PLM_OK) {
    free(plm_trainer_state_print(&state, &config, (struct plm_hash){0}));
    plm_config_deinit(&config);
  }
  free(configuration);
  plm_trainer_state_deinit(&state);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
