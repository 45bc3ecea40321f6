/* Reading one text of YAML into a configuration: a file with those that it includes, or the value
 * of a variable or a flag. */
#ifndef PLM_COMMON_CONFIG_CONFIG_TEXT_H
#define PLM_COMMON_CONFIG_CONFIG_TEXT_H

#include <yaml.h>

#include "common/config/config_include.h"
#include "common/config/problems.h"

/* The text being read: the file, a variable or a flag. */
struct plm_config_text {
  struct plm_loader *loader;
  const char *name;                   /* as problems name it */
  bool has_lines;                     /* it is a file, so places have line and column */
  const char *base;                   /* folder that relative paths are relative to */
  const struct plm_config_file *file; /* NULL: not a file, so it cannot include any */
  enum plm_origin_kind origin;
  yaml_document_t *document; /* while it is read */
};

/* Reads text, the value of `key`. key is "" for a whole file. Mistakes are added to the loader's
 * problems, here and below. */
void plm_config_text_read(struct plm_config_text *input, const char *text, size_t size,
                          const char *key);
/* Reads the text of a whole file, and frees it. */
void plm_config_text_read_file(struct plm_loader *loader, const struct plm_config_file *file,
                               char *text, size_t size);
/* Reads the text of a variable or a flag. Strings and paths are taken literally, and a list may be
 * written without brackets. */
void plm_config_text_override(struct plm_config_text *input, const char *key, const char *text);

#endif
