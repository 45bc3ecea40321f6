/* MANIFEST: the contents of a checkpoint folder, as a text that has exactly one valid form.
 *
 *   plm-checkpoint 1
 *   step 500
 *   3817284 0f0e0d0c0b0a09080706050403020100 model.safetensors      size, XXH3-128, name
 *   ...
 *   manifest 00112233445566778899aabbccddeeff                       XXH3-128 of all lines above
 *
 * Parsing is therefore simple: read the values, print them again, compare byte for byte.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"

enum { MANIFEST_LIMIT = 1 << 16 }; /* bytes; 64 lines need far fewer */

char *plm_manifest_print(const struct plm_manifest *manifest)
{
  struct plm_text text = {0};
  char hex[PLM_HASH_HEX_SIZE];
  PLM_ASSERT(manifest->count <= PLM_MANIFEST_MAX_FILES);
  plm_text_printf(&text, "plm-checkpoint %d\nstep %" PRIu64 "\n", PLM_CHECKPOINT_FORMAT,
                  manifest->step);
  for (size_t i = 0; i < manifest->count; i++) {
    plm_hash_to_hex(manifest->files[i].hash, hex);
    plm_text_printf(&text, "%" PRIu64 " %s %s\n", manifest->files[i].size, hex,
                    manifest->files[i].name);
  }
  plm_hash_to_hex(plm_hash_bytes(text.data, text.length), hex);
  plm_text_printf(&text, "manifest %s\n", hex);
  return text.data;
}

/* A plain file name: without a folder, not hidden, and not the MANIFEST itself. */
static bool name_is_plain(const char *name)
{
  if (name[0] == '\0' || name[0] == '.' || strcmp(name, "MANIFEST") == 0) return false;
  for (const char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) && *c != '.' && *c != '_' && *c != '-') return false;
  return true;
}

static plm_status parse_file_line(const char *line, struct plm_manifest *manifest,
                                  struct plm_error *error)
{
  struct plm_manifest_file *file = &manifest->files[manifest->count];
  char hex[PLM_HASH_HEX_SIZE], name[sizeof file->name];
  if (manifest->count == PLM_MANIFEST_MAX_FILES)
    return plm_error_set(error, PLM_LIMIT, "more than %d files", PLM_MANIFEST_MAX_FILES);
  if (sscanf(line, "%" SCNu64 " %32[0-9a-f] %63s", &file->size, hex, name) != 3 ||
      !name_is_plain(name))
    return plm_error_set(error, PLM_CORRUPT, "a line is not \"size hash name\": %.80s", line);
  for (size_t i = 0; i < manifest->count; i++)
    if (strcmp(manifest->files[i].name, name) == 0)
      return plm_error_set(error, PLM_CORRUPT, "%s is listed twice", name);
  PLM_TRY(plm_hash_from_hex(hex, &file->hash, error));
  memcpy(file->name, name, sizeof name);
  manifest->count++;
  return PLM_OK;
}

/* Fills manifest from an untrusted text. The caller checks that the text has the valid form. */
static plm_status parse_lines(char *text, struct plm_manifest *manifest, struct plm_error *error)
{
  char *rest = text;
  int format = 0;
  memset(manifest, 0, sizeof *manifest);
  const char *first = strsep(&rest, "\n"), *second = strsep(&rest, "\n");
  if (sscanf(first, "plm-checkpoint %d", &format) != 1)
    return plm_error_set(error, PLM_CORRUPT, "it does not begin with \"plm-checkpoint\"");
  if (format != PLM_CHECKPOINT_FORMAT)
    return plm_error_set(error, PLM_UNSUPPORTED, "format %d; this program reads format %d", format,
                         PLM_CHECKPOINT_FORMAT);
  if (!second || sscanf(second, "step %" SCNu64, &manifest->step) != 1)
    return plm_error_set(error, PLM_CORRUPT, "it has no step");
  for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
    if (strncmp(line, "manifest ", 9) == 0) return PLM_OK;
    PLM_TRY(parse_file_line(line, manifest, error));
  }
  return plm_error_set(error, PLM_CORRUPT, "it is incomplete");
}

plm_status plm_manifest_parse(const char *text, size_t size, struct plm_manifest *manifest,
                              struct plm_error *error)
{
  char *copy = plm_alloc(size + 1);
  memcpy(copy, text, size);
  copy[size] = '\0';
  plm_status status = parse_lines(copy, manifest, error);
  free(copy);
  if (status != PLM_OK) return status;
  char *printed = plm_manifest_print(manifest);
  if (strlen(printed) != size || memcmp(printed, text, size) != 0)
    status = plm_error_set(error, PLM_CORRUPT, "it was changed after it was written");
  free(printed);
  return status;
}

bool plm_manifest_identity(const struct plm_manifest *manifest, struct plm_hash *identity)
{
  for (size_t i = 0; i < manifest->count; i++) {
    if (strcmp(manifest->files[i].name, "model.safetensors") != 0) continue;
    *identity = manifest->files[i].hash;
    return true;
  }
  return false;
}

plm_status plm_manifest_read(const char *directory, struct plm_manifest *manifest,
                             struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, directory, "MANIFEST", error));
  PLM_TRY(plm_file_read(path, MANIFEST_LIMIT, &text, &size, error));
  const plm_status status = plm_manifest_parse(text, size, manifest, error);
  if (status != PLM_OK) plm_error_where(error, "%s", path);
  free(text);
  return status;
}
