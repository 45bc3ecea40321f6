/* Gives a checkpoint other weights, all of them finite, with which its model computes NaN for every
 * sequence, and a MANIFEST that verifies:
 *
 *   tool_overflow CHECKPOINT
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/safetensors.h"
#include "common/cli/program.h"

enum { MODEL_LIMIT = 1 << 28 };

/* The square of what `up` gives is then infinite, and an MLP subtracts such numbers. */
static void enlarge(const struct plm_safetensors *file)
{
  for (size_t i = 0; i < plm_safetensors_count(file); i++) {
    const struct plm_tensor_info *tensor = plm_safetensors_at(file, i);
    if (strstr(tensor->name, ".mlp.up.weight") == NULL) continue;
    float *values = (float *)tensor->data; /* in the caller's bytes */
    PLM_ASSERT(tensor->dtype == PLM_F32);
    for (size_t j = 0; j < tensor->bytes / sizeof *values; j++) {
      values[j] *= 1e30F;
      PLM_ASSERT(isfinite(values[j]));
    }
  }
}

static plm_status overflow(const char *path, struct plm_error *error)
{
  struct plm_safetensors *file;
  char *bytes;
  size_t size;
  PLM_TRY(plm_file_read(path, MODEL_LIMIT, &bytes, &size, error));
  plm_status status = plm_safetensors_parse(bytes, size, path, &file, error);
  if (status == PLM_OK) {
    enlarge(file);
    plm_safetensors_close(file);
    status = plm_file_write(path, bytes, size, 0666, error);
  }
  free(bytes);
  return status;
}

/* Lists the model as it is now. */
static plm_status seal(const char *checkpoint, const char *model, struct plm_error *error)
{
  struct plm_manifest manifest;
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_manifest_read(checkpoint, &manifest, error));
  PLM_TRY(plm_path_join(path, checkpoint, "MANIFEST", error));
  for (size_t i = 0; i < manifest.count; i++) {
    struct plm_manifest_file *file = &manifest.files[i];
    if (strcmp(file->name, "model.safetensors") != 0) continue;
    PLM_TRY(plm_hash_file(model, &file->hash, &file->size, NULL, error));
  }
  char *text = plm_manifest_print(&manifest);
  PLM_ASSERT(text != NULL);
  const plm_status status = plm_file_write(path, text, strlen(text), 0666, error);
  free(text);
  return status;
}

int main(int argc, char **argv)
{
  struct plm_error error = {0};
  char model[PLM_PATH_SIZE];
  plm_program_begin();
  if (argc != 2) {
    fprintf(stderr, "usage: tool_overflow CHECKPOINT\n");
    return 2;
  }
  plm_status status = plm_path_join(model, argv[1], "model.safetensors", &error);
  if (status == PLM_OK) status = overflow(model, &error);
  if (status == PLM_OK) status = seal(argv[1], model, &error);
  if (status != PLM_OK) plm_error_print("tool_overflow", &error);
  return plm_status_exit_code(status);
}
