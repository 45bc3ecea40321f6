/* safetensors, by its specification: u64 little-endian header length (at most 100 MB), a JSON
 * header padded with spaces to 8 bytes, offsets relative to the data; no holes, no overlaps, no
 * duplicate names, every tensor's shape and dtype agreeing with its byte range. Reading checks all
 * of it before any use. Source: huggingface.co/docs/safetensors (format). */
#ifndef PLM_COMMON_CHECKPOINT_SAFETENSORS_H
#define PLM_COMMON_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum plm_dtype { PLM_F32, PLM_F64, PLM_BF16, PLM_F16, PLM_I32, PLM_I64, PLM_U8, PLM_DTYPE_OTHER };
enum {
  PLM_TENSOR_MAX_RANK = 8,
  PLM_SAFETENSORS_HEADER_LIMIT = 100 * 1000 * 1000, /* bytes, of the format */
  PLM_SAFETENSORS_ALIGNMENT = 8,                    /* of the header's end */
};

struct plm_tensor_info {
  const char *name;
  enum plm_dtype dtype;
  int rank;
  uint64_t shape[PLM_TENSOR_MAX_RANK];
  uint64_t bytes;
  const void *data; /* reader: mapped; writer: what to write */
};

struct plm_safetensors; /* a mapped file */
plm_status plm_safetensors_open(const char *path, struct plm_safetensors **file,
                                struct plm_error *error);
/* The parser alone, over bytes the caller owns: for the fuzzer and tests. name is for errors. */
plm_status plm_safetensors_parse(const void *bytes, size_t size, const char *name,
                                 struct plm_safetensors **file, struct plm_error *error);
void plm_safetensors_close(struct plm_safetensors *file);
size_t plm_safetensors_count(const struct plm_safetensors *file);
const struct plm_tensor_info *plm_safetensors_at(const struct plm_safetensors *file, size_t i);
const struct plm_tensor_info *plm_safetensors_find(const struct plm_safetensors *file,
                                                   const char *name); /* NULL: absent */
const char *plm_safetensors_metadata(const struct plm_safetensors *file, const char *key);

struct plm_metadata_entry {
  const char *key, *value;
};
/* Writes and fsyncs path. Tensors keep their order. */
plm_status plm_safetensors_write(const char *path, const struct plm_tensor_info *tensors,
                                 size_t count, const struct plm_metadata_entry *metadata,
                                 size_t metadata_count, struct plm_error *error);

#endif
