/* What to do with a folder that has no safetensors, or does not exist. */
#include "common/huggingface/folder_remedy.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"

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

/* Finds the first file, by name, with one of these ends. */
static bool find(const char *directory, const char *const *ends, char found[NAME_SIZE])
{
  DIR *folder = opendir(directory);
  const struct dirent *entry;
  found[0] = '\0';
  while (folder != NULL && plm_directory_next(folder, directory, &entry, NULL) == PLM_OK &&
         entry != NULL)
    for (const char *const *end = ends; *end != NULL; end++)
      if (strlen(entry->d_name) > strlen(*end) && plm_text_ends_with(entry->d_name, *end) &&
          (found[0] == '\0' || strcmp(entry->d_name, found) < 0))
        (void)snprintf(found, NAME_SIZE, "%s", entry->d_name);
  if (folder != NULL) closedir(folder);
  return found[0] != '\0';
}

/* ---- weights in another format --------------------------------------------------------------- */

static bool holds(const char *directory, const char *name)
{
  char path[PLM_PATH_SIZE];
  return plm_path_join(path, directory, name, NULL) == PLM_OK && plm_file_exists(path);
}

static void convert_bin(const char *directory, const char *name, struct plm_error *error)
{
  if (!holds(directory, "config.json"))
    plm_error_hint(error,
                   "only safetensors are read, not %.60s, and config.json, which converting it "
                   "needs, is missing as well: get the whole folder, such as with `hf download "
                   "OWNER/NAME --local-dir DIR`",
                   name);
  else
    plm_error_hint(error,
                   "only safetensors are read, not %.60s; convert it, which needs PyTorch and "
                   "transformers: python3 -c 'from transformers import AutoModelForMaskedLM as M; "
                   "d = \"%s\"; M.from_pretrained(d).save_pretrained(d)'",
                   name, is_plain(directory) ? directory : "DIR");
}

/* The repository on the Hub that has the model of a file of fair-esm ("esm2_t6_8M_UR50D.pt", or its
 * contact head) or of ESM-C. */
static bool find_repository(const char *file, char repository[NAME_SIZE], char folder[NAME_SIZE])
{
  static const char head[] = "-contact-regression";
  if (strncmp(file, "esmc_300m", strlen("esmc_300m")) == 0) {
    (void)snprintf(folder, NAME_SIZE, "ESMC-300M");
    (void)snprintf(repository, NAME_SIZE, "biohub/ESMC-300M");
    return true;
  }
  if (strncmp(file, "esm2_t", strlen("esm2_t")) != 0) return false;
  const size_t length = strcspn(file, ".");
  if (length > 60) return false;
  (void)snprintf(folder, NAME_SIZE, "%.*s", (int)length, file);
  if (plm_text_ends_with(folder, head)) folder[length - strlen(head)] = '\0';
  if (!is_plain(folder) || strchr(folder, '/') != NULL) return false;
  (void)snprintf(repository, NAME_SIZE, "facebook/%.60s", folder);
  return true;
}

static void fetch_again(const char *name, struct plm_error *error)
{
  char repository[NAME_SIZE], folder[NAME_SIZE];
  if (find_repository(name, repository, folder))
    plm_error_hint(error,
                   "only safetensors are read, not %.60s; get the same model as transformers "
                   "writes it: hf download %s --local-dir %s",
                   name, repository, folder);
  else
    plm_error_hint(error,
                   "only safetensors are read, not %.60s; get the same model as transformers "
                   "writes it, such as: hf download facebook/esm2_t6_8M_UR50D --local-dir "
                   "esm2_t6_8M_UR50D",
                   name);
}

/* ---- names of the Hub ------------------------------------------------------------------------ */

/* "OWNER/NAME", unless OWNER is a folder here: then the path has a mistake. */
static bool is_hub_name(const char *path)
{
  char owner[NAME_SIZE];
  const char *slash = strchr(path, '/');
  if (slash == NULL || slash == path || slash[1] == '\0' || strchr(slash + 1, '/') != NULL ||
      path[0] == '.' || slash[1] == '-' || slash[1] == '.' || strlen(path) > 128 || !is_plain(path))
    return false;
  (void)snprintf(owner, sizeof owner, "%.*s", (int)(slash - path), path);
  return !plm_file_exists(owner);
}

bool plm_folder_remedy(const char *directory, struct plm_error *error)
{
  static const char *const transformers[] = {".bin", NULL};
  static const char *const others[] = {".pth", ".pt", ".ckpt", ".gguf", NULL};
  char name[NAME_SIZE];
  if (is_hub_name(directory) && !plm_file_exists(directory))
    plm_error_hint(error,
                   "if this is a model of the Hugging Face Hub, download it and give its folder: "
                   "hf download %s --local-dir %s",
                   directory, strchr(directory, '/') + 1);
  else if (find(directory, transformers, name))
    convert_bin(directory, name, error);
  else if (find(directory, others, name))
    fetch_again(name, error);
  else if (holds(directory, "config.json"))
    plm_error_hint(error, "there is a config.json, but no safetensors: get model.safetensors too, "
                          "such as with `hf download OWNER/NAME --local-dir DIR`; weights in "
                          "another format become safetensors with transformers' save_pretrained");
  else
    return false;
  return true;
}
