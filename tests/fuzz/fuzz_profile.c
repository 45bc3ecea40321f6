/* Fuzzes the reader of profiles: any text is either refused with a reason, or a table comes of it
 * that can be printed. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "stages/views/profile_table.h"

#define FUZZ_HEAD                                                                              \
  "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":1,\"last_step\":1,\"ranks\":1},"  \
  "\"traceEvents\":[\n{\"name\":\"step 1\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":0,\"tid\":0," \
  "\"ts\":0,\"dur\":5.5}"

static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT(FUZZ_HEAD "\n]}"),
    FUZZ_TEXT(FUZZ_HEAD ",\n{\"name\":\"add 7\",\"cat\":\"operator\",\"ph\":\"X\",\"pid\":0,"
                        "\"tid\":2,\"ts\":1,\"dur\":2,\"args\":{\"shape\":\"8\",\"bytes\":8,"
                        "\"flops\":1e9}}\n]}"),
    FUZZ_TEXT(FUZZ_HEAD ",\n{\"name\":\"idle\",\"cat\":\"idle\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
                        "\"ts\":1e-3,\"dur\":1e14}\n]}"),
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  for (int shapes = 0; shapes <= 1; shapes++) {
    const struct plm_profile_view view = {.shapes = shapes != 0, .rank = -1};
    struct plm_profile_table table;
    struct plm_text out = {0};
    struct plm_error error = {0};
    char *text = malloc(size + 1);
    PLM_ASSERT(text != NULL);
    memcpy(text, bytes, size);
    text[size] = '\n'; /* no file of memory is empty */
    FILE *file = fmemopen(text, size + 1, "r");
    PLM_ASSERT(file != NULL);
    if (plm_profile_table_read(file, &view, &table, &error) == PLM_OK) {
      plm_profile_table_print(&table, &out);
      plm_profile_table_json(&table, &out);
      PLM_ASSERT(out.length > 0 && table.steps > 0);
    } else {
      PLM_ASSERT(error.what[0] != '\0');
    }
    plm_text_deinit(&out);
    plm_profile_table_deinit(&table);
    fclose(file);
    free(text);
  }
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
