/* The files of embed: headers as the formats demand, the journal, and a partial file that is begun,
 * continued, refused and finished. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/checkpoint/safetensors.h"
#include "evaluator/embed/embed_output.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

/* ---- the spool ------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  uint32_t tokens;
} sequences[] = {
    {"sp|P1|A", 5},      {"a \"quoted\" \\ one", 3}, {"tab\there", 7},
    {"na\xc3\xafve", 2}, {"bad\xff\xc3", 4},
};
enum { COUNT = sizeof sequences / sizeof *sequences, TOKENS = 21 };

static uint8_t token(uint32_t i, uint32_t t)
{
  return (uint8_t)(i * 16 + t);
}

static struct plm_sequence_spool *small_spool(void)
{
  struct plm_sequence_spool *spool;
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  for (uint32_t i = 0; i < COUNT; i++) {
    uint8_t tokens[8];
    for (uint32_t t = 0; t < sequences[i].tokens; t++) tokens[t] = token(i, t);
    assert_int_equal(plm_sequence_spool_add(spool, sequences[i].name, strlen(sequences[i].name),
                                            tokens, sequences[i].tokens, NULL),
                     PLM_OK);
  }
  assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_count(spool), COUNT);
  assert_int_equal(plm_sequence_spool_tokens(spool), TOKENS);
  return spool;
}

/* ---- the file -------------------------------------------------------------------------------- */

static struct plm_embed_layout layout_of(enum plm_embed_kind kind, enum plm_embed_format format,
                                         struct plm_sequence_spool *spool)
{
  struct plm_embed_layout layout = {
      .kind = kind, .format = format, .pooling = "mean,max", .width = 3};
  assert_int_equal(plm_embed_layout_compute(&layout, spool, NULL), PLM_OK);
  return layout;
}

static struct plm_embed_journal journal_of(const struct plm_embed_layout *layout,
                                           const struct plm_sequence_spool *spool)
{
  return (struct plm_embed_journal){.input = plm_sequence_spool_fingerprint(spool),
                                    .checkpoint = {1, 2},
                                    .config = {3, 4},
                                    .options = "pooled mean,max fp32",
                                    .bytes = layout->bytes};
}

static struct plm_embed_output *output_of(const char *path, const struct plm_embed_layout *layout,
                                          struct plm_sequence_spool *spool,
                                          struct plm_embed_journal *journal)
{
  struct plm_embed_output *output;
  struct plm_error error = {0};
  *journal = journal_of(layout, spool);
  if (plm_embed_output_open(path, layout, spool, false, journal, &output, &error) != PLM_OK)
    fail_msg("%s: %s", error.where, error.what);
  return output;
}

/* Writes rows of three floats, 10 * row + column, in some order. */
static void put_rows(struct plm_embed_output *output, uint64_t begin, uint64_t end)
{
  for (uint64_t row = end; row-- > begin;) {
    const float values[3] = {(float)(10 * row), (float)(10 * row + 1), (float)(10 * row + 2)};
    assert_int_equal(plm_embed_output_put(output, row, values, 1, NULL), PLM_OK);
  }
}

static void check_rows(const float *values, uint64_t first, uint64_t rows)
{
  for (uint64_t i = 0; i < 3 * rows; i++)
    assert_true(values[i] == (float)(10 * (first + i / 3) + i % 3));
}

static void check_names(const char *json)
{
  static const char *const expected[COUNT] = {"sp|P1|A", "a \"quoted\" \\ one", "tab\there",
                                              "na\xc3\xafve", "bad\xef\xbf\xbd\xef\xbf\xbd"};
  cJSON *names = cJSON_Parse(json);
  assert_int_equal(cJSON_GetArraySize(names), COUNT);
  for (int i = 0; i < COUNT; i++)
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(names, i)), expected[i]);
  cJSON_Delete(names);
}

static char *beside(const char *path, const char *ending)
{
  static char name[PLM_PATH_SIZE];
  snprintf(name, sizeof name, "%s%s", path, ending);
  return name;
}

static void pooled_safetensors(void **state)
{
  (void)state;
  const char *path = scratch_path("pooled.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  assert_int_equal(journal.sequences, 0);
  put_rows(output, 0, COUNT);
  assert_false(plm_file_exists(path));
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  plm_embed_output_close(output);
  assert_false(plm_file_exists(beside(path, ".partial")));
  assert_false(plm_file_exists(beside(path, ".journal")));
  struct plm_safetensors *file;
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_count(file), 1);
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, "embeddings");
  assert_true(tensor->dtype == PLM_F32 && tensor->rank == 2);
  assert_true(tensor->shape[0] == COUNT && tensor->shape[1] == 3);
  check_rows(tensor->data, 0, COUNT);
  check_names(plm_safetensors_metadata(file, "names"));
  assert_string_equal(plm_safetensors_metadata(file, "pooling"), "mean,max");
  plm_safetensors_close(file);
  plm_sequence_spool_close(spool);
}

static void a_tensor_a_sequence(void **state)
{
  (void)state;
  const char *path = scratch_path("tokens.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout =
      layout_of(PLM_EMBED_PER_TOKEN, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  put_rows(output, 0, TOKENS);
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  plm_embed_output_close(output);
  struct plm_safetensors *file;
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_count(file), COUNT);
  uint64_t first = 0;
  for (uint32_t i = 0; i < COUNT; i++) {
    char name[16];
    snprintf(name, sizeof name, "%u", i);
    const struct plm_tensor_info *tensor = plm_safetensors_find(file, name);
    assert_true(tensor->shape[0] == sequences[i].tokens && tensor->shape[1] == 3);
    check_rows(tensor->data, first, sequences[i].tokens);
    first += sequences[i].tokens;
  }
  check_names(plm_safetensors_metadata(file, "names"));
  plm_safetensors_close(file);
  plm_sequence_spool_close(spool);
}

/* A map has a row and a column for each residue. */
static void a_map_a_sequence(void **state)
{
  (void)state;
  static const uint64_t sides[COUNT] = {3, 1, 5, 0, 2};
  const char *path = scratch_path("contacts.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  struct plm_embed_layout layout = {.kind = PLM_EMBED_CONTACTS, .width = 1};
  assert_int_equal(plm_embed_layout_compute(&layout, spool, NULL), PLM_OK);
  assert_int_equal(layout.rows, 9 + 1 + 25 + 4);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  plm_embed_output_close(output);
  struct plm_safetensors *file;
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  for (uint32_t i = 0; i < COUNT; i++) {
    char name[16];
    snprintf(name, sizeof name, "%u", i);
    const struct plm_tensor_info *tensor = plm_safetensors_find(file, name);
    assert_int_equal(tensor->rank, 2);
    assert_true(tensor->shape[0] == sides[i] && tensor->shape[1] == sides[i]);
  }
  plm_safetensors_close(file);
  plm_sequence_spool_close(spool);
}

static void npy_and_its_names(void **state)
{
  (void)state;
  const char *path = scratch_path("pooled.npy");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_NPY, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  put_rows(output, 0, COUNT);
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  plm_embed_output_close(output);
  char *bytes;
  size_t size;
  assert_int_equal(plm_file_read(path, 1 << 16, &bytes, &size, NULL), PLM_OK);
  assert_int_equal(size, 128 + COUNT * 3 * sizeof(float));
  assert_memory_equal(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
  assert_memory_equal(bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }",
                      59);
  assert_int_equal(bytes[127], '\n');
  check_rows((const float *)(const void *)(bytes + 128), 0, COUNT);
  free(bytes);
  assert_int_equal(plm_file_read(beside(path, ".names.json"), 1 << 16, &bytes, &size, NULL),
                   PLM_OK);
  check_names(bytes);
  free(bytes);
  plm_sequence_spool_close(spool);
}

/* With a header of more than one buffer (16 KiB), and more rows than are copied at once (64 KiB).
 */
static void a_long_stream_is_whole(void **state)
{
  (void)state;
  enum { MANY = 6000 };
  char path[PLM_PATH_SIZE];
  struct plm_sequence_spool *spool;
  snprintf(path, sizeof path, "%s", scratch_path("long.safetensors"));
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  for (int i = 0; i < MANY; i++)
    assert_int_equal(plm_sequence_spool_add(spool, "name", 4, "\x05", 1, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal;
  const int to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), before = dup(STDOUT_FILENO);
  fflush(stdout);
  assert_true(to >= 0 && before >= 0 && dup2(to, STDOUT_FILENO) == STDOUT_FILENO);
  struct plm_embed_output *output = output_of("-", &layout, spool, &journal);
  put_rows(output, 0, MANY);
  const plm_status status = plm_embed_output_finish(output, spool, NULL);
  plm_embed_output_close(output);
  dup2(before, STDOUT_FILENO);
  close(before);
  close(to);
  assert_int_equal(status, PLM_OK);
  struct plm_safetensors *file;
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, "embeddings");
  assert_true(tensor->shape[0] == MANY && tensor->shape[1] == 3);
  check_rows(tensor->data, 0, MANY);
  cJSON *names = cJSON_Parse(plm_safetensors_metadata(file, "names"));
  assert_int_equal(cJSON_GetArraySize(names), MANY);
  cJSON_Delete(names);
  plm_safetensors_close(file);
  plm_sequence_spool_close(spool);
}

/* Also if the last bytes are the first that are written. */
static void a_full_disk_is_told(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool = small_spool();
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  assert_true(full >= 0);
  for (int format = PLM_EMBED_SAFETENSORS; format <= PLM_EMBED_NPY; format++) {
    const struct plm_embed_layout layout =
        layout_of(PLM_EMBED_POOLED, (enum plm_embed_format)format, spool);
    struct plm_error error = {0};
    assert_int_equal(plm_embed_layout_write_header(&layout, spool, full, "the file", &error),
                     PLM_NO_SPACE);
    assert_non_null(strstr(error.what, "the file"));
    assert_int_equal(plm_embed_layout_write_header(&layout, spool, full, "the file", NULL),
                     PLM_NO_SPACE);
  }
  close(full);
  assert_int_equal(plm_embed_write_names(spool, "/dev/full", NULL), PLM_NO_SPACE);
  plm_sequence_spool_close(spool);
}

static void formats_follow_the_name(void **state)
{
  (void)state;
  enum plm_embed_format format;
  struct plm_error error = {0};
  assert_int_equal(plm_embed_format_of("a/b.npy", PLM_EMBED_POOLED, &format, NULL), PLM_OK);
  assert_int_equal(format, PLM_EMBED_NPY);
  assert_int_equal(plm_embed_format_of("b.safetensors", PLM_EMBED_LOGITS, &format, NULL), PLM_OK);
  assert_int_equal(format, PLM_EMBED_SAFETENSORS);
  assert_int_equal(plm_embed_format_of("b.npy", PLM_EMBED_PER_TOKEN, &format, &error), PLM_USAGE);
  assert_int_equal(plm_embed_format_of("b.npz", PLM_EMBED_POOLED, &format, &error), PLM_USAGE);
  assert_int_equal(plm_embed_format_of(".npy", PLM_EMBED_POOLED, &format, &error), PLM_USAGE);
  const char *pipe = scratch_path("pipe.npy");
  assert_int_equal(mkfifo(pipe, 0600), 0);
  assert_int_equal(plm_embed_format_of("/dev/null", PLM_EMBED_POOLED, &format, NULL), PLM_OK);
  assert_int_equal(format, PLM_EMBED_SAFETENSORS); /* of what has no ending */
  assert_int_equal(plm_embed_format_of(pipe, PLM_EMBED_POOLED, &format, &error), PLM_USAGE);
  assert_string_equal(error.hint,
                      "a pipe or a device whose name does not end in .npy receives safetensors");
  assert_int_equal(unlink(pipe), 0);
}

/* More names than a header may hold are refused before anything is computed, with a remedy. */
static void headers_have_a_limit(void **state)
{
  (void)state;
  struct plm_sequence_spool *spool;
  char name[4000];
  memset(name, 'n', sizeof name);
  assert_int_equal(plm_sequence_spool_open(scratch_directory(), 1, &spool, NULL), PLM_OK);
  for (int i = 0; i < 25100; i++)
    assert_int_equal(plm_sequence_spool_add(spool, name, sizeof name, "\x05", 1, NULL), PLM_OK);
  assert_int_equal(plm_sequence_spool_finish(spool, NULL), PLM_OK);
  struct plm_embed_layout layout = {.pooling = "mean", .width = 3};
  struct plm_error error = {0};
  assert_int_equal(plm_embed_layout_compute(&layout, spool, &error), PLM_LIMIT);
  assert_non_null(strstr(error.hint, ".npy"));
  layout.format = PLM_EMBED_NPY;
  assert_int_equal(plm_embed_layout_compute(&layout, spool, NULL), PLM_OK);
  plm_sequence_spool_close(spool);
}

/* ---- continuing ------------------------------------------------------------------------------ */

static void a_run_goes_on_where_it_was_saved(void **state)
{
  (void)state;
  const char *path = scratch_path("resume.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal), *second;
  put_rows(output, 0, 2);
  journal.windows = 1;
  journal.batches = UINT64_MAX; /* needs all 64 bits */
  journal.sequences = 2;
  assert_int_equal(plm_embed_output_save(output, &journal, false, NULL), PLM_OK);
  put_rows(output, 2, 3); /* after the last save */

  struct plm_error error = {0};
  struct plm_embed_journal other = journal_of(&layout, spool);
  assert_int_equal(plm_embed_output_open(path, &layout, spool, false, &other, &second, &error),
                   PLM_BUSY);
  plm_embed_output_close(output);

  output = output_of(path, &layout, spool, &journal);
  assert_int_equal(journal.windows, 1);
  assert_true(journal.batches == UINT64_MAX);
  assert_int_equal(journal.sequences, 2);
  put_rows(output, 2, COUNT);
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  plm_embed_output_close(output);
  struct plm_safetensors *file;
  assert_int_equal(plm_safetensors_open(path, &file, NULL), PLM_OK);
  check_rows(plm_safetensors_find(file, "embeddings")->data, 0, COUNT);
  plm_safetensors_close(file);
  plm_sequence_spool_close(spool);
}

static void another_run_is_refused_and_left_alone(void **state)
{
  (void)state;
  const char *path = scratch_path("other.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  journal.sequences = 1;
  assert_int_equal(plm_embed_output_save(output, &journal, false, NULL), PLM_OK);
  plm_embed_output_close(output);

  static const char *const says[] = {"sequences or names", "another checkpoint",
                                     "another checkpoint", "pooled mean,max fp32", "bytes"};
  for (int what = 0; what < 5; what++) {
    struct plm_embed_journal wanted = journal_of(&layout, spool);
    struct plm_error error = {0};
    if (what == 0) wanted.input.low ^= 1;
    if (what == 1) wanted.checkpoint.high ^= 1;
    if (what == 2) wanted.config.low ^= 1;
    if (what == 3) snprintf(wanted.options, sizeof wanted.options, "logits fp32");
    if (what == 4) wanted.bytes++;
    assert_int_equal(plm_embed_output_open(path, &layout, spool, false, &wanted, &output, &error),
                     PLM_EXISTS);
    if (strstr(error.what, says[what]) == NULL) fail_msg("%d says: %s", what, error.what);
    assert_non_null(strstr(error.where, "other.safetensors.partial"));
    assert_non_null(strstr(error.hint, "--resume never"));
  }
  output = output_of(path, &layout, spool, &journal); /* the refusals have lost nothing */
  assert_int_equal(journal.sequences, 1);
  plm_embed_output_close(output);

  /* a truncated file and a broken journal are refused as well, and discarded on demand */
  assert_int_equal(truncate(beside(path, ".partial"), 100), 0);
  struct plm_error error = {0};
  journal = journal_of(&layout, spool);
  assert_int_equal(plm_embed_output_open(path, &layout, spool, false, &journal, &output, &error),
                   PLM_EXISTS);
  assert_int_equal(plm_file_write(beside(path, ".journal"), "{}", 2, 0666, NULL), PLM_OK);
  assert_int_equal(plm_embed_output_open(path, &layout, spool, false, &journal, &output, &error),
                   PLM_EXISTS);
  assert_int_equal(plm_embed_output_open(path, &layout, spool, true, &journal, &output, NULL),
                   PLM_OK);
  assert_int_equal(journal.sequences, 0);
  plm_embed_output_close(output);

  /* a journal without its partial file is ignored */
  assert_int_equal(unlink(beside(path, ".partial")), 0);
  output = output_of(path, &layout, spool, &journal);
  assert_int_equal(journal.sequences, 0);
  plm_embed_output_close(output);
  plm_sequence_spool_close(spool);
}

static void a_folder_in_the_way_is_found_at_once(void **state)
{
  (void)state;
  const char *path = scratch_path("folder.safetensors");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_SAFETENSORS, spool);
  struct plm_embed_journal journal = journal_of(&layout, spool);
  struct plm_embed_output *output;
  assert_int_equal(mkdir(path, 0777), 0);
  assert_int_equal(plm_embed_output_open(path, &layout, spool, false, &journal, &output, NULL),
                   PLM_EXISTS);
  assert_false(plm_file_exists(beside(path, ".partial")));
  plm_sequence_spool_close(spool);
}

/* One that comes later is told at the end, and nothing is lost. A path has to have room for the
 * names of all files. */
static void a_folder_that_comes_later_is_told(void **state)
{
  (void)state;
  static const char *const endings[] = {".names.json", ""};
  const char *path = scratch_path("later.npy");
  struct plm_sequence_spool *spool = small_spool();
  const struct plm_embed_layout layout = layout_of(PLM_EMBED_POOLED, PLM_EMBED_NPY, spool);
  struct plm_embed_journal journal;
  struct plm_embed_output *output = output_of(path, &layout, spool, &journal);
  struct plm_error error = {0};
  put_rows(output, 0, COUNT);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(mkdir(beside(path, endings[i]), 0777), 0);
    assert_int_not_equal(plm_embed_output_finish(output, spool, &error), PLM_OK);
    assert_non_null(strstr(error.what, "cannot rename "));
    assert_non_null(strstr(error.what, beside(path, endings[i])));
    assert_false(plm_file_exists(beside(path, ".names.json.partial")));
    assert_true(plm_file_exists(beside(path, ".partial")));
    assert_int_equal(rmdir(beside(path, endings[i])), 0);
  }
  assert_int_equal(plm_embed_output_finish(output, spool, NULL), PLM_OK);
  assert_true(plm_file_exists(path));
  plm_embed_output_close(output);

  char far[PLM_PATH_SIZE];
  snprintf(far, sizeof far, "%s/", scratch_directory());
  while (strlen(far) < PLM_PATH_SIZE - 16) strcat(far, "./");
  strcat(far, "a.npy");
  journal = journal_of(&layout, spool);
  assert_int_equal(plm_embed_output_open(far, &layout, spool, false, &journal, &output, &error),
                   PLM_LIMIT);
  assert_non_null(strstr(error.what, "is too long"));
  plm_sequence_spool_close(spool);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pooled_safetensors),
      cmocka_unit_test(a_tensor_a_sequence),
      cmocka_unit_test(a_map_a_sequence),
      cmocka_unit_test(npy_and_its_names),
      cmocka_unit_test(a_long_stream_is_whole),
      cmocka_unit_test(a_full_disk_is_told),
      cmocka_unit_test(formats_follow_the_name),
      cmocka_unit_test(headers_have_a_limit),
      cmocka_unit_test(a_run_goes_on_where_it_was_saved),
      cmocka_unit_test(another_run_is_refused_and_left_alone),
      cmocka_unit_test(a_folder_in_the_way_is_found_at_once),
      cmocka_unit_test(a_folder_that_comes_later_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
