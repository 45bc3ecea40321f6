/* The files of a configuration: the one that the program was given, and those that it includes
 * (`include: base.yaml`, or a list). */
#ifndef PLM_COMMON_CONFIG_CONFIG_INCLUDE_H
#define PLM_COMMON_CONFIG_CONFIG_INCLUDE_H

#include <sys/types.h>

#include <yaml.h>

#include "common/base/files/file.h"
#include "common/config/problems.h"

#define PLM_INCLUDE_KEY "include"

enum {
  PLM_INCLUDE_MAX_DEPTH = 8, /* files that include each other in a row, after the first */
  PLM_INCLUDE_MAX_FILES = 64 /* files that one configuration reads in all, after the first */
};

/* A file that is being read. It lives on the stack of its reader. */
struct plm_config_file {
  const struct plm_config_file *includer; /* NULL: the program was given this file */
  const char *name;                       /* as problems name it; config->files owns it */
  uint32_t number;                        /* its place in config->files */
  char folder[PLM_PATH_SIZE];             /* absolute; paths in the file are relative to it */
  dev_t device;
  ino_t inode;
};

/* The value of `include` in the mapping of a whole file; NULL if there is none, or if all that
 * stood below it is commented out. */
const yaml_node_t *plm_include_node(yaml_document_t *document, const yaml_node_t *root);

/* Adds the name of a file to config->files, which owns it from then on. */
void plm_config_file_add(struct plm_loader *loader, const char *name, struct plm_config_file *file);

/* Opens and reads the file that `includer` includes as `path`, which is relative to the includer's
 * folder. place is that of the path. false: a problem has been added, which may be that the file
 * cannot be read, that it is being read already (a cycle), or a limit. The caller frees *text. */
bool plm_include_read(struct plm_loader *loader, const struct plm_config_file *includer,
                      struct plm_place place, const char *path, struct plm_config_file *file,
                      char **text, size_t *size);

#endif
