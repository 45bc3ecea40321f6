/* clang-format off */
/* The safetensors reader and writer for test_safetensors_library.py, which compares them with the
 * reference library.
 *
 *   tool_safetensors read        stdin: one path on each line; stdout: for each a line of JSON, the
 *                                tensors in the order of their data or {"error", "status"}
 *   tool_safetensors write OUT   stdin: {"tensors": [{"name", "dtype", "shape", "hex"}],
 *                                "metadata": {...}}
 */
/* clang-format on */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/checkpoint/safetensors.h"
#include "common/cli/program.h"

static const char *const dtype_names[] = {"F32", "F64", "BF16", "F16", "I32", "I64", "U8", "other"};

static void add_tensor(cJSON *list, const struct plm_tensor_info *tensor)
{
  cJSON *entry = cJSON_CreateObject();
  cJSON_AddStringToObject(entry, "name", tensor->name);
  cJSON_AddStringToObject(entry, "dtype", dtype_names[tensor->dtype]);
  cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
  for (int i = 0; i < tensor->rank; i++) {
    char digits[24]; /* all digits; cJSON would print 15 */
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)tensor->shape[i]);
    cJSON_AddItemToArray(shape, cJSON_CreateRaw(digits));
  }
  char *hex = calloc(1, 2 * tensor->bytes + 1);
  for (uint64_t i = 0; i < tensor->bytes; i++)
    snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)tensor->data)[i]);
  cJSON_AddStringToObject(entry, "hex", hex);
  free(hex);
  cJSON_AddItemToArray(list, entry);
}

static void read_file(const char *path)
{
  struct plm_safetensors *file;
  struct plm_error error = {0};
  cJSON *json = cJSON_CreateObject();
  const plm_status status = plm_safetensors_open(path, &file, &error);
  if (status != PLM_OK) {
    cJSON_AddStringToObject(json, "error", error.what);
    cJSON_AddStringToObject(json, "status", plm_status_text(status));
  } else {
    cJSON *list = cJSON_AddArrayToObject(json, "tensors");
    for (size_t i = 0; i < plm_safetensors_count(file); i++) {
      const struct plm_tensor_info *tensor = plm_safetensors_at(file, i);
      PLM_ASSERT(plm_safetensors_find(file, tensor->name) == tensor);
      add_tensor(list, tensor);
    }
    static const char *const keys[] = {"format", "a key", "ключ \"🧬\""};
    cJSON *metadata = cJSON_AddObjectToObject(json, "metadata");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      const char *value = plm_safetensors_metadata(file, keys[i]);
      if (value != NULL) cJSON_AddStringToObject(metadata, keys[i], value);
    }
    plm_safetensors_close(file);
  }
  plm_json_print(json, NULL);
}

static int read_all(void)
{
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
    if (line[length - 1] == '\n') line[length - 1] = '\0';
    read_file(line);
  }
  free(line);
  return 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

static char *read_stdin(void)
{
  size_t size = 0, capacity = 1 << 20;
  char *text = malloc(capacity);
  for (size_t got; (got = fread(text + size, 1, capacity - size - 1, stdin)) > 0;) {
    size += got;
    if (size + 1 == capacity) text = realloc(text, capacity *= 2);
  }
  text[size] = '\0';
  return text;
}

static struct plm_tensor_info parse_entry(const cJSON *entry)
{
  struct plm_tensor_info tensor = {.name = plm_json_string(entry, "name", "")};
  const char *hex = plm_json_string(entry, "hex", ""), *dtype = plm_json_string(entry, "dtype", "");
  while (strcmp(dtype_names[tensor.dtype], dtype) != 0) tensor.dtype++;
  for (const cJSON *extent = cJSON_GetObjectItem(entry, "shape")->child; extent != NULL;
       extent = extent->next)
    tensor.shape[tensor.rank++] = (uint64_t)extent->valuedouble;
  tensor.bytes = strlen(hex) / 2;
  unsigned char *data = malloc(tensor.bytes + 1);
  for (uint64_t i = 0; i < tensor.bytes; i++) {
    const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
    data[i] = (unsigned char)strtoul(digits, NULL, 16);
  }
  tensor.data = data;
  return tensor;
}

static int write_file(const char *path)
{
  char *text = read_stdin();
  cJSON *json = cJSON_Parse(text);
  const cJSON *list = cJSON_GetObjectItem(json, "tensors");
  const cJSON *metadata = cJSON_GetObjectItem(json, "metadata");
  struct plm_tensor_info *tensors = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *tensors);
  struct plm_metadata_entry *entries =
      calloc((size_t)cJSON_GetArraySize(metadata) + 1, sizeof *entries);
  size_t count = 0, metadata_count = 0;
  for (const cJSON *entry = list->child; entry != NULL; entry = entry->next)
    tensors[count++] = parse_entry(entry);
  for (const cJSON *entry = metadata->child; entry != NULL; entry = entry->next)
    entries[metadata_count++] = (struct plm_metadata_entry){entry->string, entry->valuestring};
  struct plm_error error = {0};
  const plm_status status =
      plm_safetensors_write(path, tensors, count, entries, metadata_count, &error);
  if (status != PLM_OK) plm_error_print("tool_safetensors", &error);
  for (size_t i = 0; i < count; i++) free((void *)tensors[i].data);
  free(tensors);
  free(entries);
  cJSON_Delete(json);
  free(text);
  return plm_status_exit_code(status);
}

int main(int argc, char **argv)
{
  plm_program_begin();
  if (argc == 2 && strcmp(argv[1], "read") == 0) return read_all();
  if (argc == 3 && strcmp(argv[1], "write") == 0) return write_file(argv[2]);
  fprintf(stderr, "usage: tool_safetensors read | write OUT\n");
  return 2;
}
