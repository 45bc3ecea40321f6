/* See whole_checkpoint.h. */
#include "tests/support/cases/whole_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

struct plm_hash whole_checkpoint_write(const char *parent, uint64_t step)
{
  static const char *const files[] = {"config.json", "model.safetensors"};
  enum { FILES = sizeof files / sizeof *files };
  char name[PLM_CHECKPOINT_NAME_SIZE], folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  struct plm_manifest manifest = {.step = step, .count = FILES};
  plm_checkpoint_name(step, name);
  assert_int_equal(plm_path_join(folder, parent, name, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  for (size_t i = 0; i < FILES; i++) {
    struct plm_manifest_file *file = &manifest.files[i];
    snprintf(file->name, sizeof file->name, "%s", files[i]);
    assert_int_equal(plm_path_join(path, folder, files[i], NULL), PLM_OK);
    scratch_write(path, "weights", 7);
    assert_int_equal(plm_hash_file(path, &file->hash, &file->size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  assert_int_equal(plm_path_join(path, folder, "MANIFEST", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  return manifest.files[1].hash;
}
