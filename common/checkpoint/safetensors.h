/* Reader and writer of safetensors files. A file begins with the length of its header (u64,
 * little-endian, at most 100 MB) and a JSON header, padded with spaces to 8 bytes; the offsets in
 * it are relative to the data that follows. Before any tensor is used, the reader checks that there
 * are no holes, overlaps or duplicate names, and that the shape and dtype of each tensor match its
 * byte range: doc/checkpoints.md#safetensors. Source: huggingface.co/docs/safetensors (format). */
#ifndef PLM_COMMON_CHECKPOINT_SAFETENSORS_H
#define PLM_COMMON_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum plm_dtype { PLM_F32, PLM_F64, PLM_BF16, PLM_F16, PLM_I32, PLM_I64, PLM_U8, PLM_DTYPE_OTHER };
enum {
  PLM_TENSOR_MAX_RANK = 8,
  PLM_SAFETENSORS_HEADER_LIMIT = 100 * 1000 * 1000, /* bytes, set by the format */
  PLM_SAFETENSORS_ALIGNMENT = 8,                    /* of the end of the header */
  PLM_SAFETENSORS_MAX_TENSORS = 1 << 16,            /* that the reader takes */
};

struct plm_tensor_info {
  const char *name;
  enum plm_dtype dtype;
  int rank;
  uint64_t shape[PLM_TENSOR_MAX_RANK];
  uint64_t bytes;
  const void *data; /* reader: in the mapped file; writer: the bytes to write */
};

struct plm_safetensors; /* a mapped file */
/* Maps and checks a file. PLM_FORMAT: it breaks a rule. PLM_LIMIT: it has more tensors than the
 * reader takes, or a larger header than the format allows. error->where is path. *file is NULL
 * after an error. If the file is truncated while it is open, a read of it ends the process with a
 * message (map_guard.h). */
plm_status plm_safetensors_open(const char *path, struct plm_safetensors **file,
                                struct plm_error *error);
/* The same for bytes that the caller owns, for the fuzzer and tests. name is used in errors. */
plm_status plm_safetensors_parse(const void *bytes, size_t size, const char *name,
                                 struct plm_safetensors **file, struct plm_error *error);
void plm_safetensors_close(struct plm_safetensors *file);
size_t plm_safetensors_count(const struct plm_safetensors *file);
const struct plm_tensor_info *plm_safetensors_at(const struct plm_safetensors *file, size_t i);
const struct plm_tensor_info *plm_safetensors_find(const struct plm_safetensors *file,
                                                   const char *name); /* NULL: absent */
const char *plm_safetensors_metadata(const struct plm_safetensors *file, const char *key);
/* Says that a tensor of the file has been read: its pages need not stay in the process's memory. If
 * it is read again, they come from the page cache. */
void plm_safetensors_release(const struct plm_safetensors *file,
                             const struct plm_tensor_info *tensor);

struct plm_metadata_entry {
  const char *key, *value;
};
/* Writes and fsyncs a file. The tensors keep their order. */
plm_status plm_safetensors_write(const char *path, const struct plm_tensor_info *tensors,
                                 size_t count, const struct plm_metadata_entry *metadata,
                                 size_t metadata_count, struct plm_error *error);

#endif
