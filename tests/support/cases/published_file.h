/* Small folders of published weights, in any state: the tensors can be renamed, added and damaged
 * before they are written. For cmocka tests. */
#ifndef PLM_TESTS_SUPPORT_CASES_PUBLISHED_FILE_H
#define PLM_TESTS_SUPPORT_CASES_PUBLISHED_FILE_H

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

#define PUBLISHED_WEIGHTS "model.safetensors"
#define PUBLISHED_CONTACTS "esm.contact_head.regression."
enum { PUBLISHED_LAYERS = 2, PUBLISHED_HEADS = 4 };

/* The tensors of a file, and the values that reading them has to give. */
struct published_file {
  struct plm_model_config model;
  struct plm_parameter *table;
  size_t count, elements, tensor_count;
  float *values;
  struct plm_tensor_info *tensors;
  char (*names)[128];
};

extern const float published_numbers[64];

struct published_file published_file_of(enum plm_architecture architecture);
void published_file_free(struct published_file *file);

struct plm_tensor_info *published_tensor(struct published_file *file, const char *name);
void published_add(struct published_file *file, const char *name, enum plm_dtype dtype, int rank,
                   uint64_t rows, uint64_t cols, const void *data);
/* Adds to ESM-2 the tensors that are no parameters, of all versions, with its contact head. */
void published_add_ignored(struct published_file *file);
/* Puts `to` in the place of `from` at the end of names, and removes `drop` from their beginning. */
void published_rename(struct published_file *file, const char *from, const char *to,
                      const char *drop);

/* Writes a text, a file of tensors, or a new folder with the model's own config.json. */
void published_put(const char *folder, const char *name, const char *text);
void published_part_write(const char *folder, const char *name,
                          const struct plm_tensor_info *tensors, size_t count);
void published_folder_write(const struct published_file *file, char folder[PLM_PATH_SIZE]);

/* Reads the weights of a folder. wrong NULL: they are the file's values; otherwise the error has
 * this text, in any of its three parts. */
void published_expect(const struct published_file *file, const char *folder, const char *wrong);

#endif
