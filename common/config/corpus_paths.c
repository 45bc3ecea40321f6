/* Splitting --corpus, and the sources of a configuration. */
#include "common/config/corpus_paths.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/name_list.h"

static plm_status add_path(struct plm_corpus_paths *corpora, const char *path,
                           struct plm_error *error)
{
  if (corpora->count == PLM_MAX_SOURCES)
    return plm_error_set(error, PLM_USAGE, "more than %d corpora", PLM_MAX_SOURCES);
  corpora->paths[corpora->count++] = plm_strdup(path);
  return PLM_OK;
}

/* "A,B", unless there is a folder of this name. */
static plm_status split_paths(const char *text, struct plm_corpus_paths *corpora,
                              struct plm_error *error)
{
  if (plm_file_exists(text) || strchr(text, ',') == NULL) return add_path(corpora, text, error);
  struct plm_name_list list;
  plm_status status = PLM_OK;
  plm_name_list_init(&list, text);
  for (uint32_t i = 0; i < list.count && status == PLM_OK; i++)
    status = add_path(corpora, list.names[i], error);
  plm_name_list_deinit(&list);
  return status;
}

plm_status plm_corpus_paths_find(const char *given, const struct plm_config *config,
                                 struct plm_corpus_paths *corpora, struct plm_error *error)
{
  if (given != NULL) return split_paths(given, corpora, error);
  for (uint32_t k = 0; config != NULL && k < plm_config_source_count(config); k++) {
    const char *path = plm_config_source(config, k).path;
    if (path != NULL) PLM_TRY(add_path(corpora, path, error));
  }
  return PLM_OK;
}

void plm_corpus_paths_deinit(struct plm_corpus_paths *corpora)
{
  for (uint32_t i = 0; i < corpora->count; i++) free(corpora->paths[i]);
  corpora->count = 0;
}
