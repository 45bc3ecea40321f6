/* What to do with a folder whose weights are not safetensors. */
#include "common/huggingface/folder_remedy.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"

enum { PATH_SHOWN = 160, NAME_SIZE = 256 };

/* Whether a path can stand in a command line as it is. The name of a folder may come from a
 * stranger, and the command is copied into a shell. */
static bool is_plain(const char *path)
{
  if (strlen(path) > PATH_SHOWN || path[0] == '-') return false;
  for (const char *c = path; *c != '\0'; c++)
    if (!isalnum((unsigned char)*c) && strchr("._/-+=@", *c) == NULL) return false;
  return true;
}

static bool ends_with(const char *name, const char *end)
{
  const size_t length = strlen(name), size = strlen(end);
  return length > size && strcmp(name + length - size, end) == 0;
}

/* Finds the first file, by name, with one of these ends. */
static bool find(const char *directory, const char *const *ends, char found[NAME_SIZE])
{
  DIR *folder = opendir(directory);
  const struct dirent *entry;
  found[0] = '\0';
  while (folder != NULL && plm_directory_next(folder, directory, &entry, NULL) == PLM_OK &&
         entry != NULL)
    for (const char *const *end = ends; *end != NULL; end++)
      if (ends_with(entry->d_name, *end) && (found[0] == '\0' || strcmp(entry->d_name, found) < 0))
        (void)snprintf(found, NAME_SIZE, "%s", entry->d_name);
  if (folder != NULL) closedir(folder);
  return found[0] != '\0';
}

bool plm_folder_remedy(const char *directory, struct plm_error *error)
{
  static const char *const transformers[] = {".bin", NULL};
  static const char *const others[] = {".pth", ".pt", ".ckpt", ".gguf", NULL};
  char name[NAME_SIZE];
  if (find(directory, transformers, name))
    plm_error_hint(error,
                   "only safetensors are read, not %.60s; convert it, which needs PyTorch and "
                   "transformers: python3 -c 'from transformers import AutoModelForMaskedLM as M; "
                   "d = \"%s\"; M.from_pretrained(d).save_pretrained(d)'",
                   name, is_plain(directory) ? directory : "DIR");
  else if (find(directory, others, name))
    plm_error_hint(error,
                   "only safetensors are read, not %.60s; get the same model as transformers "
                   "writes it: hf download facebook/esm2_t33_650M_UR50D, or biohub/ESMC-300M",
                   name);
  else
    return false;
  return true;
}
