/* Finds, checks and reads included files. */
#include "common/config/config_include.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"
#include "common/config/yaml_limits.h"

const yaml_node_t *plm_include_node(yaml_document_t *document, const yaml_node_t *root)
{
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
       pair < root->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(document, pair->key);
    const yaml_node_t *node = yaml_document_get_node(document, pair->value);
    if (key->type != YAML_SCALAR_NODE ||
        strcmp((const char *)key->data.scalar.value, PLM_INCLUDE_KEY) != 0)
      continue;
    const bool empty = node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
                       node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return empty ? NULL : node;
  }
  return NULL;
}

void plm_config_file_add(struct plm_loader *loader, const char *name, struct plm_config_file *file)
{
  struct plm_config *config = loader->config;
  char *copy = plm_strdup(name);
  config->files = plm_realloc(config->files, (config->file_count + 1) * sizeof *config->files);
  config->files[config->file_count] = copy;
  file->name = copy;
  file->number = config->file_count++;
}

/* The name of an included file: its path relative to the working directory, if that is how the
 * including file was named. */
static plm_status config_include_name_of(const struct plm_config_file *includer, const char *path,
                                         char name[PLM_PATH_SIZE], struct plm_error *error)
{
  char folder[PLM_PATH_SIZE];
  while (strncmp(path, "./", 2) == 0) path += 2;
  if (strchr(includer->name, '/') == NULL) {
    if (snprintf(name, PLM_PATH_SIZE, "%s", path) < PLM_PATH_SIZE) return PLM_OK;
    return plm_error_set(error, PLM_LIMIT, "path %.80s is too long", path);
  }
  PLM_TRY(plm_path_parent(folder, includer->name, error));
  return plm_path_join(name, folder, path, error);
}

/* Writes the absolute folder of a file whose name is relative to the working directory. */
static plm_status config_include_folder_of(const char *name, char folder[PLM_PATH_SIZE],
                                           struct plm_error *error)
{
  char here[PLM_PATH_SIZE], full[PLM_PATH_SIZE];
  if (getcwd(here, sizeof here) == NULL) return plm_error_errno(error, "working directory");
  PLM_TRY(plm_path_join(full, here, name, error));
  return plm_path_parent(folder, full, error);
}

/* Whether the file is being read already. *depth is the number of files that lead to it. */
static const struct plm_config_file *being_read(const struct plm_config_file *includer,
                                                const struct stat *found, unsigned *depth)
{
  const struct plm_config_file *same = NULL;
  *depth = 0;
  for (const struct plm_config_file *file = includer; file != NULL; file = file->includer) {
    if (same == NULL && file->device == found->st_dev && file->inode == found->st_ino) same = file;
    ++*depth;
  }
  return same;
}

/* "a.yaml -> b.yaml -> a.yaml" */
static void refuse_cycle(struct plm_loader *loader, struct plm_place place,
                         const struct plm_config_file *first, const struct plm_config_file *last)
{
  struct plm_text chain = {0};
  const struct plm_config_file *files[PLM_INCLUDE_MAX_DEPTH + 1];
  size_t count = 0;
  for (const struct plm_config_file *file = last;; file = file->includer) {
    files[count++] = file;
    if (file == first) break;
  }
  while (count > 0) plm_text_printf(&chain, "%s -> ", files[--count]->name);
  plm_text_puts(&chain, first->name);
  plm_problems_add(loader->problems, place,
                   PLM_INCLUDE_KEY ": %.80s includes itself (%.600s); remove one of these",
                   first->name, chain.data);
  plm_text_deinit(&chain);
}

static bool within_limits(struct plm_loader *loader, struct plm_place place, unsigned depth)
{
  if (depth > PLM_INCLUDE_MAX_DEPTH)
    plm_problems_add(loader->problems, place,
                     PLM_INCLUDE_KEY ": files include each other more than %d deep; put the values "
                                     "of some into one file",
                     PLM_INCLUDE_MAX_DEPTH);
  else if (loader->config->file_count > PLM_INCLUDE_MAX_FILES)
    plm_problems_add(loader->problems, place,
                     PLM_INCLUDE_KEY ": more than %d included files; put the values of some into "
                                     "one file",
                     PLM_INCLUDE_MAX_FILES);
  else
    return true;
  return false;
}

static bool config_include_refuse(struct plm_loader *loader, struct plm_place place,
                                  const struct plm_error *error)
{
  plm_problems_add_error(loader->problems, place, PLM_INCLUDE_KEY ": ", error);
  return false;
}

bool plm_include_read(struct plm_loader *loader, const struct plm_config_file *includer,
                      struct plm_place place, const char *path, struct plm_config_file *file,
                      char **text, size_t *size)
{
  struct plm_error error = {0};
  struct stat found;
  char name[PLM_PATH_SIZE];
  unsigned depth;
  *file = (struct plm_config_file){.includer = includer};
  if (path[0] == '\0') {
    plm_problems_add(loader->problems, place, PLM_INCLUDE_KEY ": the path of the file is empty");
    return false;
  }
  if (config_include_name_of(includer, path, name, &error) != PLM_OK ||
      config_include_folder_of(name, file->folder, &error) != PLM_OK)
    return config_include_refuse(loader, place, &error);
  if (stat(name, &found) != 0) {
    plm_error_errno(&error, "cannot open %s", name);
    return config_include_refuse(loader, place, &error);
  }
  const struct plm_config_file *first = being_read(includer, &found, &depth);
  if (first != NULL) {
    refuse_cycle(loader, place, first, includer);
    return false;
  }
  if (!within_limits(loader, place, depth)) return false;
  if (plm_file_read(name, PLM_YAML_MAX_BYTES, text, size, &error) != PLM_OK)
    return config_include_refuse(loader, place, &error);
  file->device = found.st_dev;
  file->inode = found.st_ino;
  plm_config_file_add(loader, name, file);
  return true;
}
