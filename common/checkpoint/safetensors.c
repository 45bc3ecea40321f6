/* safetensors: the reader checks every rule of the format before it hands out a tensor, and the
 * writer makes files that pass these checks. */
#include "common/checkpoint/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/files/map_guard.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"

enum {
  HEADER_LIMIT = PLM_SAFETENSORS_HEADER_LIMIT,
  HEADER_ALIGNMENT = PLM_SAFETENSORS_ALIGNMENT,
};

/* A tensor of two dimensions has 12 values: its name and object, three keys, the dtype, and two
 * arrays of two. A header at this limit takes about 70 MB while it is read. */
static const struct plm_json_limits header_limits = {.values = 16 * PLM_SAFETENSORS_MAX_TENSORS,
                                                     .depth = 3, /* {name: {shape: []}} */
                                                     .numbers = PLM_JSON_COUNTS};

/* Every dtype of the format. Those that this project does not compute with are PLM_DTYPE_OTHER. */
static const struct {
  const char *name;
  enum plm_dtype dtype;
  uint32_t bits; /* of one element */
} dtypes[] = {
    {"F32", PLM_F32, 32},
    {"F64", PLM_F64, 64},
    {"BF16", PLM_BF16, 16},
    {"F16", PLM_F16, 16},
    {"I32", PLM_I32, 32},
    {"I64", PLM_I64, 64},
    {"U8", PLM_U8, 8},
    {"BOOL", PLM_DTYPE_OTHER, 8},
    {"I8", PLM_DTYPE_OTHER, 8},
    {"I16", PLM_DTYPE_OTHER, 16},
    {"U16", PLM_DTYPE_OTHER, 16},
    {"U32", PLM_DTYPE_OTHER, 32},
    {"U64", PLM_DTYPE_OTHER, 64},
    {"C64", PLM_DTYPE_OTHER, 64},
    {"F8_E5M2", PLM_DTYPE_OTHER, 8},
    {"F8_E4M3", PLM_DTYPE_OTHER, 8},
    {"F8_E8M0", PLM_DTYPE_OTHER, 8},
    {"F8_E5M2FNUZ", PLM_DTYPE_OTHER, 8},
    {"F8_E4M3FNUZ", PLM_DTYPE_OTHER, 8},
    {"F6_E2M3", PLM_DTYPE_OTHER, 6},
    {"F6_E3M2", PLM_DTYPE_OTHER, 6},
    {"F4", PLM_DTYPE_OTHER, 4},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

struct plm_safetensors {
  void *mapping; /* NULL: the caller owns the bytes */
  size_t mapping_size;
  char path[512]; /* of the mapped file, printable and cut to fit, for the guard of the map */
  cJSON *header;  /* owns the names */
  const cJSON *metadata;
  struct plm_tensor_info *tensors; /* in the order of their data */
  size_t count;
  const struct plm_tensor_info **by_name;
};

/* ---- reading ----------------------------------------------------------------------------------*/

static plm_status parse_dtype(const cJSON *entry, struct plm_tensor_info *info, uint32_t *item_bits,
                              struct plm_error *error)
{
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
  if (!cJSON_IsString(dtype))
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s has no dtype", info->name);
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (strcmp(dtype->valuestring, dtypes[i].name) != 0) continue;
    info->dtype = dtypes[i].dtype;
    *item_bits = dtypes[i].bits;
    return PLM_OK;
  }
  return plm_error_set(error, PLM_FORMAT, "tensor %.200s has the unknown dtype %.40s", info->name,
                       dtype->valuestring);
}

/* Sets info->bytes to the size of the elements. Elements smaller than a byte must fill whole bytes.
 */
static plm_status count_bytes(struct plm_tensor_info *info, uint64_t elements, uint32_t item_bits,
                              struct plm_error *error)
{
  uint64_t bits;
  if (__builtin_mul_overflow(elements, item_bits, &bits))
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s is larger than the address space",
                         info->name);
  if (bits % 8 != 0)
    return plm_error_set(error, PLM_FORMAT,
                         "tensor %.200s does not fill its last byte: %llu elements of %u bits",
                         info->name, (unsigned long long)elements, item_bits);
  info->bytes = bits / 8;
  return PLM_OK;
}

/* An overflow is an error even if a later extent is 0, as in the reference library. */
static plm_status parse_shape(const cJSON *entry, struct plm_tensor_info *info, uint32_t item_bits,
                              struct plm_error *error)
{
  const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
  if (!cJSON_IsArray(shape))
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s has no shape", info->name);
  uint64_t elements = 1;
  for (const cJSON *extent = shape->child; extent; extent = extent->next) {
    if (info->rank == PLM_TENSOR_MAX_RANK)
      return plm_error_set(error, PLM_LIMIT, "tensor %.200s has more than %d dimensions",
                           info->name, PLM_TENSOR_MAX_RANK);
    uint64_t *size = &info->shape[info->rank++];
    if (!plm_json_count(extent, size))
      return plm_error_set(error, PLM_FORMAT,
                           "the shape of tensor %.200s holds something other than counts",
                           info->name);
    if (__builtin_mul_overflow(elements, *size, &elements))
      return plm_error_set(error, PLM_FORMAT, "tensor %.200s is larger than the address space",
                           info->name);
  }
  return count_bytes(info, elements, item_bits, error);
}

static plm_status parse_offsets(const cJSON *entry, const unsigned char *data, uint64_t data_size,
                                struct plm_tensor_info *info, struct plm_error *error)
{
  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
  uint64_t begin, end;
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
      !plm_json_count(offsets->child, &begin) || !plm_json_count(offsets->child->next, &end))
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s has no data_offsets [begin, end]",
                         info->name);
  if (begin > end || end > data_size)
    return plm_error_set(error, PLM_FORMAT, "tensor %.200s ends at byte %llu of %llu bytes of data",
                         info->name, (unsigned long long)end, (unsigned long long)data_size);
  if (end - begin != info->bytes)
    return plm_error_set(
        error, PLM_FORMAT, "tensor %.200s has %llu bytes, but its shape and dtype need %llu",
        info->name, (unsigned long long)(end - begin), (unsigned long long)info->bytes);
  info->data = data + begin;
  return PLM_OK;
}

static plm_status parse_tensor(const cJSON *entry, const unsigned char *data, uint64_t data_size,
                               struct plm_tensor_info *info, struct plm_error *error)
{
  uint32_t item_bits = 0;
  *info = (struct plm_tensor_info){.name = entry->string};
  if (entry->string[0] == '\0')
    return plm_error_set(error, PLM_FORMAT, "a tensor has an empty name");
  if (!cJSON_IsObject(entry) || cJSON_GetArraySize(entry) != 3)
    return plm_error_set(error, PLM_FORMAT,
                         "tensor %.200s is not an object of dtype, shape and data_offsets",
                         info->name);
  PLM_TRY(parse_dtype(entry, info, &item_bits, error));
  PLM_TRY(parse_shape(entry, info, item_bits, error));
  return parse_offsets(entry, data, data_size, info, error);
}

static plm_status check_metadata(const cJSON *metadata, struct plm_error *error)
{
  if (!cJSON_IsObject(metadata))
    return plm_error_set(error, PLM_FORMAT, "__metadata__ is not an object");
  for (const cJSON *item = metadata->child; item; item = item->next)
    if (!cJSON_IsString(item))
      return plm_error_set(error, PLM_FORMAT, "__metadata__ entry %.200s is not a string",
                           item->string);
  return PLM_OK;
}

static int compare_place(const void *a, const void *b)
{
  const struct plm_tensor_info *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Sorts the tensors by offset and checks that they cover the data without gaps or overlaps. */
static plm_status check_cover(struct plm_safetensors *file, const unsigned char *data,
                              uint64_t data_size, struct plm_error *error)
{
  const unsigned char *next = data;
  if (file->count > 0) qsort(file->tensors, file->count, sizeof *file->tensors, compare_place);
  for (size_t i = 0; i < file->count; i++) {
    const struct plm_tensor_info *info = &file->tensors[i];
    const unsigned char *begin = info->data;
    if (begin != next)
      return plm_error_set(error, PLM_FORMAT,
                           begin < next ? "tensor %.200s overlaps the one before it"
                                        : "there are unused bytes before tensor %.200s",
                           info->name);
    next = begin + info->bytes;
  }
  if (next != data + data_size)
    return plm_error_set(error, PLM_FORMAT, "there are %llu unused bytes after the last tensor",
                         (unsigned long long)(data + data_size - next));
  return PLM_OK;
}

static int compare_name(const void *a, const void *b)
{
  const struct plm_tensor_info *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static plm_status parse_entries(struct plm_safetensors *file, const unsigned char *data,
                                uint64_t data_size, struct plm_error *error)
{
  const size_t entries = (size_t)cJSON_GetArraySize(file->header);
  if (entries > PLM_SAFETENSORS_MAX_TENSORS)
    return plm_error_set(error, PLM_LIMIT, "%zu tensors exceed the limit of %d", entries,
                         PLM_SAFETENSORS_MAX_TENSORS);
  file->tensors = calloc(entries + 1, sizeof *file->tensors);
  file->by_name = calloc(entries + 1, sizeof(struct plm_tensor_info *));
  if (!file->tensors || !file->by_name)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu tensors", entries);
  for (const cJSON *entry = file->header->child; entry; entry = entry->next) {
    if (strcmp(entry->string, "__metadata__") == 0) {
      PLM_TRY(check_metadata(entry, error));
      file->metadata = entry;
    } else {
      PLM_TRY(parse_tensor(entry, data, data_size, &file->tensors[file->count], error));
      file->count++;
    }
  }
  PLM_TRY(check_cover(file, data, data_size, error));
  for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensors[i];
  if (file->count > 0)
    qsort(file->by_name, file->count, sizeof(struct plm_tensor_info *), compare_name);
  return PLM_OK;
}

static plm_status parse_bytes(struct plm_safetensors *file, const unsigned char *bytes, size_t size,
                              struct plm_error *error)
{
  if (size > 23 && memcmp(bytes, "version https://git-lfs", 23) == 0) {
    plm_error_set(error, PLM_FORMAT, "it is a pointer of Git LFS, not the file that it points to");
    return plm_error_hint(error, "run `git lfs pull` in the folder, or use `hf download`");
  }
  if (size < 8)
    return plm_error_set(error, PLM_FORMAT, "%zu bytes are too few for a safetensors file", size);
  uint64_t header_size = 0;
  for (int i = 0; i < 8; i++) header_size |= (uint64_t)bytes[i] << (8 * i);
  if (header_size > HEADER_LIMIT)
    return plm_error_set(error, PLM_LIMIT, "the header of %llu bytes exceeds the limit of %d",
                         (unsigned long long)header_size, HEADER_LIMIT);
  if (header_size > size - 8)
    return plm_error_set(error, PLM_FORMAT,
                         "the header of %llu bytes does not fit into the file of %zu",
                         (unsigned long long)header_size, size);
  if (header_size % HEADER_ALIGNMENT != 0)
    return plm_error_set(error, PLM_FORMAT,
                         "the header of %llu bytes is not padded to a multiple of %d",
                         (unsigned long long)header_size, HEADER_ALIGNMENT);
  const char *header = (const char *)bytes + 8;
  PLM_TRY(plm_json_parse(header, header_size, &header_limits, &file->header, error));
  size_t end = header_size; /* only spaces may pad the header */
  while (header[end - 1] == ' ') end--;
  if (header[end - 1] != '}')
    return plm_error_set(error, PLM_FORMAT,
                         "the header is padded with something other than spaces");
  return parse_entries(file, bytes + 8 + header_size, size - 8 - header_size, error);
}

static const char get_again[] = "the file is damaged, or was not copied completely; get it again";

/* Parses the bytes into `made`, which becomes *file or is closed. */
static plm_status parse_into(struct plm_safetensors *made, const void *bytes, size_t size,
                             const char *name, struct plm_safetensors **file,
                             struct plm_error *error)
{
  const plm_status status = parse_bytes(made, bytes, size, error);
  if (status != PLM_OK) {
    const bool damaged = status == PLM_FORMAT || (status == PLM_LIMIT && made->header == NULL);
    plm_safetensors_close(made);
    plm_error_where(error, "%s", name);
    if (damaged && error != NULL && error->hint[0] == '\0') plm_error_hint(error, "%s", get_again);
    return status;
  }
  *file = made;
  return PLM_OK;
}

plm_status plm_safetensors_parse(const void *bytes, size_t size, const char *name,
                                 struct plm_safetensors **file, struct plm_error *error)
{
  struct plm_safetensors *made = plm_alloc_zeroed(1, sizeof *made);
  *file = NULL;
  return parse_into(made, bytes, size, name, file, error);
}

static plm_status map_file(const char *path, void **mapping, size_t *size, struct plm_error *error)
{
  struct stat info;
  const int descriptor = plm_descriptors_open(path, O_RDONLY, 0);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  if (fstat(descriptor, &info) != 0) {
    const plm_status status = plm_error_errno(error, "cannot stat %s", path);
    close(descriptor);
    return status;
  }
  if (!S_ISREG(info.st_mode) || info.st_size == 0) {
    close(descriptor);
    plm_error_set(error, PLM_FORMAT,
                  S_ISREG(info.st_mode) ? "it is empty" : "it is not a regular file");
    plm_error_where(error, "%s", path);
    return S_ISREG(info.st_mode) ? plm_error_hint(error, "%s", get_again) : PLM_FORMAT;
  }
  *size = (size_t)info.st_size;
  *mapping = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const plm_status status =
      *mapping == MAP_FAILED ? plm_error_errno(error, "cannot map %s", path) : PLM_OK;
  close(descriptor);
  return status;
}

plm_status plm_safetensors_open(const char *path, struct plm_safetensors **file,
                                struct plm_error *error)
{
  *file = NULL;
  struct plm_safetensors *made = plm_alloc_zeroed(1, sizeof *made);
  const plm_status status = map_file(path, &made->mapping, &made->mapping_size, error);
  if (status != PLM_OK) {
    free(made);
    return status;
  }
  plm_printable(made->path, sizeof made->path, path, PLM_PRINTABLE_LINE);
  plm_map_guard_add(made->mapping, made->mapping_size, made->path);
  return parse_into(made, made->mapping, made->mapping_size, path, file, error);
}

void plm_safetensors_close(struct plm_safetensors *file)
{
  if (!file) return;
  if (file->mapping) {
    plm_map_guard_remove(file->mapping);
    munmap(file->mapping, file->mapping_size);
  }
  cJSON_Delete(file->header);
  free(file->tensors);
  free(file->by_name);
  free(file);
}

size_t plm_safetensors_count(const struct plm_safetensors *file)
{
  return file->count;
}

const struct plm_tensor_info *plm_safetensors_at(const struct plm_safetensors *file, size_t i)
{
  PLM_ASSERT(i < file->count);
  return &file->tensors[i];
}

const struct plm_tensor_info *plm_safetensors_find(const struct plm_safetensors *file,
                                                   const char *name)
{
  const struct plm_tensor_info key = {.name = name}, *key_pointer = &key;
  const struct plm_tensor_info *const *found =
      file->count == 0 ? NULL
                       : bsearch(&key_pointer, file->by_name, file->count,
                                 sizeof(struct plm_tensor_info *), compare_name);
  return found ? *found : NULL;
}

const char *plm_safetensors_metadata(const struct plm_safetensors *file, const char *key)
{
  return file->metadata
             ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file->metadata, key))
             : NULL;
}

void plm_safetensors_release(const struct plm_safetensors *file,
                             const struct plm_tensor_info *tensor)
{
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)tensor->data;
  const uintptr_t begin = (data + page - 1) & -page, end = (data + tensor->bytes) & -page;
  if (file->mapping != NULL && begin < end) /* the bytes that a caller owns would be lost */
    (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- writing ----------------------------------------------------------------------------------*/

static const char *dtype_name(enum plm_dtype dtype, uint32_t *item_bytes)
{
  for (size_t i = 0; i < DTYPE_COUNT; i++)
    if (dtypes[i].dtype == dtype && dtype != PLM_DTYPE_OTHER) {
      *item_bytes = dtypes[i].bits / 8;
      return dtypes[i].name;
    }
  return NULL;
}

/* A JSON number with all its digits, which cJSON's doubles would lose. */
static cJSON *count_json(uint64_t count)
{
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
  return cJSON_CreateRaw(digits);
}

static plm_status add_tensor(cJSON *header, const struct plm_tensor_info *info, uint64_t begin,
                             struct plm_error *error)
{
  uint32_t item_bytes = 0;
  const char *dtype = dtype_name(info->dtype, &item_bytes);
  uint64_t bytes = item_bytes;
  for (int i = 0; i < info->rank; i++) bytes *= info->shape[i];
  if (!dtype || info->rank < 0 || info->rank > PLM_TENSOR_MAX_RANK || bytes != info->bytes)
    return plm_error_set(error, PLM_UNSUPPORTED, "tensor %s: dtype, shape and bytes disagree",
                         info->name);
  if (info->name[0] == '\0' || strcmp(info->name, "__metadata__") == 0 ||
      cJSON_GetObjectItemCaseSensitive(header, info->name))
    return plm_error_set(error, PLM_EXISTS,
                         "a tensor cannot have the name \"%s\", or it has been used already",
                         info->name);
  cJSON *entry = cJSON_AddObjectToObject(header, info->name);
  cJSON_AddStringToObject(entry, "dtype", dtype);
  cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
  for (int i = 0; i < info->rank; i++) plm_json_append(shape, count_json(info->shape[i]));
  cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
  plm_json_append(offsets, count_json(begin));
  plm_json_append(offsets, count_json(begin + bytes));
  return PLM_OK;
}

/* Prints the header with its length and padding: *size bytes, which the caller frees. */
static plm_status print_header(const struct plm_tensor_info *tensors, size_t count,
                               const struct plm_metadata_entry *metadata, size_t metadata_count,
                               char **bytes, size_t *size, struct plm_error *error)
{
  cJSON *header = cJSON_CreateObject();
  plm_status status = PLM_OK;
  uint64_t begin = 0;
  if (metadata_count > 0) {
    cJSON *entry = cJSON_AddObjectToObject(header, "__metadata__");
    for (size_t i = 0; i < metadata_count; i++)
      cJSON_AddStringToObject(entry, metadata[i].key, metadata[i].value);
  }
  for (size_t i = 0; i < count && status == PLM_OK; i++) {
    status = add_tensor(header, &tensors[i], begin, error);
    begin += tensors[i].bytes;
  }
  char *text = status == PLM_OK ? plm_json_bytes(header, false) : NULL;
  cJSON_Delete(header);
  if (status != PLM_OK) return status;
  const size_t length = strlen(text);
  const size_t padded = (length + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
  if (padded > HEADER_LIMIT) {
    free(text);
    return plm_error_set(error, PLM_LIMIT, "a header of %zu bytes exceeds the limit", padded);
  }
  char *out = plm_alloc(8 + padded + 1);
  for (int i = 0; i < 8; i++) out[i] = (char)(padded >> (8 * i) & 0xff);
  snprintf(out + 8, padded + 1, "%-*s", (int)padded, text); /* padded with spaces */
  free(text);
  *bytes = out;
  *size = 8 + padded;
  return PLM_OK;
}

plm_status plm_safetensors_write(const char *path, const struct plm_tensor_info *tensors,
                                 size_t count, const struct plm_metadata_entry *metadata,
                                 size_t metadata_count, struct plm_error *error)
{
  char *header = NULL;
  size_t header_size = 0;
  PLM_TRY(print_header(tensors, count, metadata, metadata_count, &header, &header_size, error));
  plm_status status;
  const int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    status = plm_error_errno(error, "cannot create %s", path);
    free(header);
    return status;
  }
  status = plm_file_write_all(descriptor, header, header_size, path, error);
  for (size_t i = 0; i < count && status == PLM_OK; i++)
    status = plm_file_write_all(descriptor, tensors[i].data, tensors[i].bytes, path, error);
  if (status == PLM_OK && fsync(descriptor) != 0)
    status = plm_error_errno(error, "cannot sync %s", path);
  if (close(descriptor) != 0 && status == PLM_OK)
    status = plm_error_errno(error, "cannot close %s", path);
  free(header);
  return status;
}
