/* See task_files.h. */
#include "tests/support/cases/task_files.h"

#include <stdio.h>

#include "common/base/files/file.h"
#include "common/base/numbers/philox.h"
#include "common/base/text/text.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/scratch.h"

enum { TOKENS = 64 };

void task_files_model(const char *name, enum plm_architecture architecture, char overflows,
                      char *path)
{
  struct inference_case c;
  snprintf(path, PLM_PATH_SIZE, "%s", scratch_path(name));
  inference_case_open(&c, architecture, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, TOKENS, 1);
  if (overflows != 0) inference_case_overflow(&c, overflows);
  inference_case_save(&c, path);
  inference_case_close(&c);
}

char task_files_letter(uint32_t n, uint32_t position)
{
  return "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, position, n, 0).w[0] % 20];
}

void task_files_fasta(const char *path, uint32_t count, uint32_t (*length_of)(uint32_t n))
{
  struct plm_text text = {0};
  for (uint32_t n = 0; n < count; n++) {
    plm_text_printf(&text, ">s%u\n", n);
    for (uint32_t i = 0; i < length_of(n); i++)
      plm_text_printf(&text, "%c", task_files_letter(n, i));
    plm_text_puts(&text, "\n");
  }
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
}

static void put_sequence(struct plm_text *text, uint32_t i)
{
  for (uint32_t t = 0; t < TASK_FILES_LENGTH; t++)
    plm_text_printf(text, "%c", "LAGVSERTIDPKQNFYMHWC"[plm_philox(7, i, t, 0).w[0] % 20]);
}

void task_files_table(const char *name, uint32_t rows, char *path)
{
  struct plm_text text = {0};
  plm_text_puts(&text, "sequence,y,part\n");
  for (uint32_t i = 0; i < rows; i++) {
    put_sequence(&text, i);
    plm_text_printf(&text, ",%.3f,%s\n", plm_philox_unit(plm_philox(9, i, 0, 0).w[0]) - 0.5,
                    i % 3 == 2 ? "test" : "train");
  }
  snprintf(path, PLM_PATH_SIZE, "%s", scratch_path(name));
  scratch_write(path, text.data, text.length);
  plm_text_deinit(&text);
}

void task_files_proteins(const char *name, uint32_t count, char *path)
{
  snprintf(path, PLM_PATH_SIZE, "%s", scratch_path(name));
  PLM_ASSERT(plm_directory_make(path, NULL) == PLM_OK);
  for (uint32_t p = 0; p < count; p++) {
    struct plm_text text = {0};
    char file[PLM_PATH_SIZE + 32];
    plm_text_puts(&text, ">p\n");
    put_sequence(&text, 100 + p);
    snprintf(file, sizeof file, "%s/p%02u.fasta", path, p);
    scratch_write(file, text.data, text.length);
    plm_text_clear(&text);
    for (uint32_t i = 1; i <= TASK_FILES_LENGTH; i++)
      for (uint32_t j = i + 1; j <= TASK_FILES_LENGTH; j++)
        if (plm_philox(3, i, j, p).w[0] % 5 == 0) plm_text_printf(&text, "%u %u\n", i, j);
    snprintf(file, sizeof file, "%s/p%02u.contacts", path, p);
    scratch_write(file, text.data, text.length);
    plm_text_deinit(&text);
  }
}
