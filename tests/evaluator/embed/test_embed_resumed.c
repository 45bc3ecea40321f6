/* `embed` that is stopped after a batch continues there and writes the same bytes. With other
 * options it refuses, and names those that it was begun with. */
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/run/stop.h"
#include "evaluator/embed/embed.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { L = 32, SEQUENCES = 40 };

static struct inference_case model;
static char folder[200], in[200], out[200];
static const char *const inputs[] = {in};

static uint32_t length_of(uint32_t n)
{
  return 1 + plm_philox(6, n, 0, 0).w[0] % (L - 2);
}

static int begin(void **state)
{
  (void)state;
  snprintf(folder, sizeof folder, "%.199s", scratch_path("model"));
  snprintf(in, sizeof in, "%.199s", scratch_path("in.fasta"));
  snprintf(out, sizeof out, "%.199s", scratch_path("out.safetensors"));
  inference_case_open(&model, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, L, 2);
  inference_case_save(&model, folder);
  task_files_fasta(in, SEQUENCES, length_of);
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int end(void **state)
{
  (void)state;
  inference_case_close(&model);
  return 0;
}

static struct plm_embed_request request_of(enum plm_embed_kind kind, const char *pooling,
                                           const char *layers)
{
  struct plm_embed_request request = {.of.checkpoint = folder,
                                      .of.inputs = inputs,
                                      .of.input_count = 1,
                                      .of.output = out,
                                      .kind = kind,
                                      .layers = layers,
                                      .of.batch_tokens = 2 * L,
                                      .of.json = true};
  if (pooling != NULL) assert_int_equal(plm_pooling_parse(pooling, &request.pooling, NULL), PLM_OK);
  return request;
}

/* norm_forward of the operators, with which a signal comes while the model computes. */
static void (*norm_forward)(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D);

static void stop_and_norm(struct plm_ops *ops, act *to, const act *x, int64_t N, int64_t D)
{
  plm_stop_requested = SIGTERM;
  norm_forward(ops, to, x, N, D);
}

/* The number behind a word of a text. */
static unsigned number_after(const char *text, const char *before)
{
  const char *found = strstr(text, before);
  if (found == NULL) fail_msg("no \"%s\" in %s", before, text);
  return (unsigned)strtoul(found + strlen(before), NULL, 10);
}

/* Runs it, stopped after the first batch if `stops`. Returns what it prints on stdout. */
static const char *embed(const struct plm_embed_request *request, bool stops, plm_status wanted,
                         struct plm_error *error)
{
  *error = (struct plm_error){0};
  captured_begin(STDERR_FILENO);
  captured_begin(STDOUT_FILENO);
  struct plm_ops *ops = model.inference.ops;
  norm_forward = ops->norm_forward;
  if (stops) ops->norm_forward = stop_and_norm;
  const plm_status status = plm_embed(request, ops, error);
  ops->norm_forward = norm_forward;
  plm_stop_requested = 0;
  const char *text = captured_end();
  static char kept[4096];
  snprintf(kept, sizeof kept, "%s", text);
  const bool continues = strstr(captured_end(), ": continuing after ") != NULL;
  if (status == PLM_OK) assert_int_equal(continues, number_after(kept, "resumed_sequences\":") > 0);
  if (status != wanted) fail_msg("%s", error->what);
  return kept;
}

static char *result(size_t *size)
{
  char *bytes;
  assert_int_equal(plm_file_read(out, 1 << 24, &bytes, size, NULL), PLM_OK);
  assert_int_equal(unlink(out), 0);
  return bytes;
}

static void a_stopped_run_continues_with_the_same_bytes(void **state)
{
  (void)state;
  static const struct {
    enum plm_embed_kind kind;
    const char *pooling, *layers;
  } cases[] = {{PLM_EMBED_POOLED, "mean,max", NULL},
               {PLM_EMBED_POOLED, "cls", "0,last"},
               {PLM_EMBED_PER_TOKEN, NULL, NULL},
               {PLM_EMBED_LOGITS, NULL, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_embed_request request =
        request_of(cases[i].kind, cases[i].pooling, cases[i].layers);
    struct plm_error error;
    size_t whole_size, size;
    assert_int_equal(number_after(embed(&request, false, PLM_OK, &error), "resumed_sequences\":"),
                     0);
    char *whole = result(&whole_size);
    unsigned before = 0;
    for (int stops = 0; stops < 3; stops++) {
      embed(&request, true, PLM_TERMINATED, &error);
      const unsigned done = number_after(error.what, " after ");
      assert_non_null(strstr(error.what, " of 40 sequences"));
      assert_string_equal(error.hint, "the same command continues from there");
      assert_true(done > before && done < SEQUENCES);
      before = done;
      assert_false(plm_file_exists(out));
    }
    assert_int_equal(number_after(embed(&request, false, PLM_OK, &error), "resumed_sequences\":"),
                     before);
    char *parts = result(&size);
    assert_int_equal(size, whole_size);
    assert_memory_equal(parts, whole, size);
    free(parts);
    free(whole);
  }
}

static int allocation_fails; /* errno of the next call; 0: it succeeds */

/* Takes the place of libc's function in this program. */
int fallocate(int descriptor, int mode, off_t from, off_t size)
{
  errno = allocation_fails;
  allocation_fails = 0;
  return errno != 0 ? -1 : (int)syscall(SYS_fallocate, descriptor, mode, from, size);
}

/* The result has its whole size before anything is computed, where the file system can do that. */
static void room_is_taken_first(void **state)
{
  (void)state;
  static const struct {
    int fails;
    plm_status status;
    const char *hint;
  } cases[] = {{EINTR, PLM_OK, ""},
               {EOPNOTSUPP, PLM_OK, ""},
               {ENOSYS, PLM_OK, ""},
               {EIO, PLM_IO, ""},
               {ENOSPC, PLM_NO_SPACE, "the result needs 0.0 MB; nothing was written"}};
  struct plm_embed_request request = request_of(PLM_EMBED_POOLED, "mean", NULL);
  struct plm_error error;
  size_t size;
  request.of.fresh = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    allocation_fails = cases[i].fails;
    embed(&request, false, cases[i].status, &error);
    assert_string_equal(error.hint, cases[i].hint);
    if (cases[i].status == PLM_OK) free(result(&size));
    assert_false(plm_file_exists(scratch_path("out.safetensors.partial")));
  }
}

static int writing_fails;  /* errno of all calls; 0: they succeed */
static bool writing_parts; /* of seven bytes at most */

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at)
{
  errno = writing_fails;
  if (writing_parts && size > 7) size = 7;
  return errno != 0 ? -1 : syscall(SYS_pwrite64, descriptor, bytes, size, at);
}

/* Rows that cannot be written: what a file has so far is kept, but not what waits for a stream. */
static void rows_that_cannot_be_written(void **state)
{
  (void)state;
  static const char kept[] = "finished work is kept; free some space";
  char partial[240];
  struct plm_error error;
  snprintf(partial, sizeof partial, "cannot write %s.partial", out);
  for (int stream = 0; stream < 2; stream++)
    for (int full = 0; full < 2; full++) {
      struct plm_embed_request request = request_of(PLM_EMBED_POOLED, "mean", NULL);
      request.of.fresh = true;
      request.of.json = false;
      if (stream) request.of.output = "-";
      writing_fails = full ? ENOSPC : EIO;
      embed(&request, false, full ? PLM_NO_SPACE : PLM_IO, &error);
      writing_fails = 0;
      assert_non_null(strstr(error.what, stream ? "cannot write a temporary file in " : partial));
      assert_int_equal(strncmp(error.hint, kept, strlen(kept)) == 0, full && !stream);
    }
}

/* A call may write less than it is given. */
static void rows_may_be_written_in_parts(void **state)
{
  (void)state;
  struct plm_embed_request request = request_of(PLM_EMBED_POOLED, "mean,max", NULL);
  struct plm_error error;
  size_t whole_size, size;
  request.of.fresh = true;
  embed(&request, false, PLM_OK, &error);
  char *whole = result(&whole_size);
  writing_parts = true;
  embed(&request, false, PLM_OK, &error);
  writing_parts = false;
  char *parts = result(&size);
  assert_int_equal(size, whole_size);
  assert_memory_equal(parts, whole, size);
  free(parts);
  free(whole);
}

/* Begun with one request, continued with another one. */
static void refuses(const struct plm_embed_request *first, const struct plm_embed_request *second,
                    const char *what)
{
  struct plm_error error;
  struct plm_embed_request fresh = *first;
  fresh.of.fresh = true;
  embed(&fresh, true, PLM_TERMINATED, &error);
  embed(second, false, PLM_EXISTS, &error);
  if (strstr(error.what, what) == NULL) fail_msg("\"%s\" is not \"%s\"", error.what, what);
}

#define BEGUN(first, second) \
  "it was begun as \"" first "\", but this command asks for \"" second "\""

static void other_options_are_refused_and_named(void **state)
{
  (void)state;
  const struct plm_embed_request mean = request_of(PLM_EMBED_POOLED, "mean", NULL),
                                 most = request_of(PLM_EMBED_POOLED, "max", "last"),
                                 tokens = request_of(PLM_EMBED_PER_TOKEN, NULL, NULL),
                                 logits = request_of(PLM_EMBED_LOGITS, NULL, NULL);
  struct plm_embed_request larger = mean;
  larger.of.batch_tokens = 3 * L;
  refuses(&mean, &most,
          BEGUN("pooled mean fp32 safetensors --batch-tokens 64",
                "pooled max fp32 safetensors --batch-tokens 64 --layers 6"));
  refuses(&tokens, &logits,
          BEGUN("per token fp32 safetensors --batch-tokens 64",
                "logits fp32 safetensors --batch-tokens 64"));
  refuses(&mean, &larger,
          BEGUN("pooled mean fp32 safetensors --batch-tokens 64",
                "pooled mean fp32 safetensors --batch-tokens 96"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(a_stopped_run_continues_with_the_same_bytes),
      TEST(room_is_taken_first),
      TEST(rows_that_cannot_be_written),
      TEST(rows_may_be_written_in_parts),
      TEST(other_options_are_refused_and_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
