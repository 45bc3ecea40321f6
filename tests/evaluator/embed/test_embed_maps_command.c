/* `embed` as a whole, for what the weights of ESM-2 and ESM-C can do: maps and contacts against
 * those of each sequence by itself, and chains that do not see each other. And what is refused. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/philox.h"
#include "common/checkpoint/safetensors.h"
#include "common/huggingface/contact_head.h"
#include "evaluator/embed/embed.h"
#include "evaluator/embed/embed_maps.h"
#include "tests/support/cases/published_file.h"
#include "tests/support/cases/task_files.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/scratch.h"

enum { SEQUENCES = 9, MOST = 20 /* tokens */, MAPS = 1 + PUBLISHED_HEADS };

static struct plm_ops *ops;
static char plain[PLM_PATH_SIZE], trunk[PLM_PATH_SIZE], with_head[PLM_PATH_SIZE],
    with_chains[PLM_PATH_SIZE];
static char in[PLM_PATH_SIZE], out[PLM_PATH_SIZE];

/* In residues; two do not fit as a whole. */
static uint32_t length_of(uint32_t n)
{
  return n % 5 == 3 ? MOST - 1 + n / 5 : 1 + plm_philox(6, n, 0, 0).w[0] % (MOST - 2);
}

static struct plm_embed_request request_of(const char *folder, enum plm_embed_kind kind)
{
  static const char *const inputs[] = {in};
  return (struct plm_embed_request){.of.checkpoint = folder,
                                    .of.inputs = inputs,
                                    .of.input_count = 1,
                                    .of.output = out,
                                    .of.max_length = MOST,
                                    .of.batch_tokens = 2 * MOST,
                                    .of.json = true,
                                    .kind = kind};
}

/* Runs it, and opens what it has written. */
static struct plm_safetensors *embedded(const struct plm_embed_request *request)
{
  struct plm_error error = {0};
  struct plm_safetensors *file;
  captured_begin(STDERR_FILENO);
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_embed(request, ops, &error);
  captured_end();
  captured_end();
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_int_equal(plm_safetensors_open(out, &file, NULL), PLM_OK);
  return file;
}

static const float *tensor_of(const struct plm_safetensors *file, uint32_t n, size_t values)
{
  char name[16];
  snprintf(name, sizeof name, "%u", n);
  const struct plm_tensor_info *tensor = plm_safetensors_find(file, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->bytes, values * sizeof(float));
  return tensor->data;
}

/* ---- maps ------------------------------------------------------------------------------------ */

static float single[MAPS * MOST * MOST]; /* of one sequence by itself */

static plm_status keep(void *context, uint32_t k, uint64_t at, const float *values, uint64_t count,
                       struct plm_error *error)
{
  size_t *kept = context;
  (void)error;
  assert_int_equal(k, 0);
  assert_true(at + count <= sizeof single / sizeof *single);
  memcpy(single + at, values, count * sizeof *values);
  *kept += count;
  return PLM_OK;
}

/* Returns the number of its values. */
static size_t run_alone(struct plm_maps_request *request, uint32_t n, bool keep_eos)
{
  const struct plm_tokenizer *words = request->inference->tokenizer;
  const bool whole = length_of(n) + 2 <= MOST, ends = whole || keep_eos;
  const uint32_t residues = whole ? length_of(n) : (uint32_t)MOST - 1 - ends,
                 count = residues + 1 + ends;
  int32_t tokens[MOST];
  struct plm_sequence_batch *batch;
  struct plm_embed_maps *maps;
  size_t kept = 0;
  tokens[0] = words->cls;
  for (uint32_t i = 0; i < residues; i++)
    tokens[i + 1] = plm_tokenizer_encode(words, (uint8_t)task_files_letter(n, i));
  if (ends) tokens[count - 1] = words->eos;
  assert_int_equal(
      plm_sequence_batch_open(&request->inference->config, words->pad, 1, &batch, NULL), PLM_OK);
  plm_sequence_batch_reset(batch);
  assert_true(plm_sequence_batch_add(batch, tokens, count));
  assert_int_equal(plm_embed_maps_open(request, &maps, NULL), PLM_OK);
  assert_int_equal(plm_embed_maps_run(maps, batch, &count, keep, &kept, NULL), PLM_OK);
  plm_embed_maps_close(maps);
  plm_sequence_batch_close(batch);
  return kept;
}

static void same_as_alone(const struct plm_safetensors *file, struct plm_maps_request *request,
                          bool keep_eos)
{
  assert_int_equal(
      plm_inference_open_trunk(with_head, NULL, ops, MOST, &request->inference, NULL, NULL),
      PLM_OK);
  assert_int_equal(plm_inference_make_room(request->inference, MOST, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_count(file), SEQUENCES);
  for (uint32_t n = 0; n < SEQUENCES; n++) {
    const size_t count = run_alone(request, n, keep_eos);
    const float *got = tensor_of(file, n, count);
    for (size_t i = 0; i < count; i++)
      if (!(fabsf(got[i] - single[i]) <= 1e-5f * (1 + fabsf(single[i]))))
        fail_msg("sequence %u, value %zu: %g, not %g", n, i, (double)got[i], (double)single[i]);
  }
  plm_inference_close(request->inference);
}

static void attention(void **state)
{
  (void)state;
  struct plm_embed_request request = request_of(with_head, PLM_EMBED_ATTENTION);
  struct plm_map_choice choice;
  struct plm_inference *inference;
  struct plm_maps_request maps = {.choice = &choice};
  request.attention = "2,1:3";
  assert_int_equal(plm_inference_open_trunk(with_head, NULL, ops, MOST, &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(plm_map_choice_parse(request.attention, &inference->config, &choice, NULL),
                   PLM_OK);
  plm_inference_close(inference);
  struct plm_safetensors *file = embedded(&request);
  assert_string_equal(plm_safetensors_metadata(file, "attention"), "2,1:3");
  assert_int_equal(plm_safetensors_find(file, "0")->shape[0], MAPS);
  same_as_alone(file, &maps, false);
  plm_safetensors_close(file);
}

static void contacts(void **state)
{
  (void)state;
  struct plm_embed_request request = request_of(with_head, PLM_EMBED_CONTACTS);
  struct plm_contact_head head;
  struct plm_inference *inference;
  assert_int_equal(plm_inference_open_trunk(with_head, NULL, ops, MOST, &inference, NULL, NULL),
                   PLM_OK);
  assert_int_equal(plm_contact_head_read(&inference->folder, inference->file, &head, NULL), PLM_OK);
  plm_inference_close(inference);
  struct plm_maps_request maps = {.weights = head.weights, .bias = head.bias};
  struct plm_safetensors *file = embedded(&request);
  same_as_alone(file, &maps, true);
  plm_safetensors_close(file);
  plm_contact_head_deinit(&head);
}

/* ---- chains ---------------------------------------------------------------------------------- */

enum { FIRST = 6 /* tokens of the first chain, with <cls> */, ALL = 12, WIDTH = 64 };

static void embed_chains(const char *sequence, bool apart, float states[ALL * WIDTH])
{
  struct plm_embed_request request = request_of(with_chains, PLM_EMBED_PER_TOKEN);
  request.separate_chains = apart;
  scratch_write(in, sequence, strlen(sequence));
  struct plm_safetensors *file = embedded(&request);
  memcpy(states, tensor_of(file, 0, ALL * WIDTH), ALL * WIDTH * sizeof *states);
  plm_safetensors_close(file);
}

static float largest_difference(const float *a, const float *b, size_t count)
{
  float most = 0;
  for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
  return most;
}

/* Another second chain changes the states of the first one, unless they are separate. */
static void chains_see_each_other_unless_they_are_separate(void **state)
{
  (void)state;
  static float states[2][ALL * WIDTH];
  for (int apart = 0; apart < 2; apart++) {
    embed_chains(">a\nLAGVS|ERTI\n", apart, states[0]);
    embed_chains(">a\nLAGVS|WCPY\n", apart, states[1]);
    const float first = largest_difference(states[0], states[1], (size_t)FIRST * WIDTH);
    if (apart ? !(first <= 1e-5f) : !(first > 1e-3f)) fail_msg("%d: %g", apart, (double)first);
    assert_true(largest_difference(states[0] + FIRST * WIDTH, states[1] + FIRST * WIDTH,
                                   (size_t)(ALL - FIRST) * WIDTH) > 1e-2f);
  }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const struct plm_embed_request *request, plm_status expected, const char *what,
                    const char *hint)
{
  struct plm_error error = {0};
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_embed(request, ops, &error);
  captured_end();
  if (status != expected) fail_msg("%d, not %d: %s", (int)status, (int)expected, error.what);
  if (strstr(error.what, what) == NULL && strstr(error.where, what) == NULL)
    fail_msg("\"%s\" at \"%s\", not \"%s\"", error.what, error.where, what);
  if (strstr(error.hint, hint) == NULL) fail_msg("\"%s\", not \"%s\"", error.hint, hint);
  static const char *const endings[] = {"", ".partial", ".journal"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    char path[PLM_PATH_SIZE];
    snprintf(path, sizeof path, "%.4000s%s", out, endings[i]);
    assert_false(plm_file_exists(path));
  }
}

static void what_is_refused(void **state)
{
  (void)state;
  struct plm_embed_request request = request_of(plain, PLM_EMBED_ATTENTION);
  request.attention = "1,3";
  refused(&request, PLM_USAGE, "--attention: the model has no layer 3, only 1 to 2", "");
  request = request_of(plain, PLM_EMBED_PER_TOKEN);
  request.layers = "3";
  refused(&request, PLM_USAGE, "--layers: the model has no layer 3", "");
  request = request_of(plain, PLM_EMBED_PER_TOKEN);
  request.separate_chains = true;
  refused(&request, PLM_USAGE, "has no token for a break of chains", "which is written |");
  request = request_of(plain, PLM_EMBED_CONTACTS);
  refused(&request, PLM_NOT_FOUND, "has no contact head", "published weights of ESM-2");
  request = request_of(plain, PLM_EMBED_PER_TOKEN);
  request.of.max_length = 2;
  refused(&request, PLM_USAGE, "--max-length 2: ", "");
  request = request_of(scratch_path("none"), PLM_EMBED_PER_TOKEN);
  refused(&request, PLM_NOT_FOUND, "none", "");
  request = request_of(plain, PLM_EMBED_PER_TOKEN);
  request.of.output = scratch_path("out.npz");
  refused(&request, PLM_USAGE, "the name does not say which format to write", ".safetensors");
  char same[PLM_PATH_SIZE];
  snprintf(same, sizeof same, "%s", scratch_path("same.safetensors"));
  scratch_write(same, ">a\nLAG\n", 7);
  const char *const itself[] = {same};
  request.of.inputs = itself;
  request.of.output = same;
  refused(&request, PLM_USAGE, "is also the input", "");
}

/* Only logits need the head that predicts tokens. */
static void a_trunk_has_states_but_no_logits(void **state)
{
  (void)state;
  struct plm_embed_request request = request_of(trunk, PLM_EMBED_LOGITS);
  refused(&request, PLM_FORMAT, "lm_head", "");
  request.kind = PLM_EMBED_PER_TOKEN;
  struct plm_safetensors *file = embedded(&request);
  assert_int_equal(plm_safetensors_count(file), SEQUENCES);
  plm_safetensors_close(file);
}

/* All inputs are looked for before the first one is read. */
static void a_missing_input_is_found_first(void **state)
{
  (void)state;
  char bad[PLM_PATH_SIZE], missing[PLM_PATH_SIZE];
  const char *const inputs[] = {bad, missing};
  struct plm_embed_request request = request_of(plain, PLM_EMBED_PER_TOKEN);
  snprintf(bad, sizeof bad, "%s", scratch_path("bad.fasta"));
  snprintf(missing, sizeof missing, "%s", scratch_path("missing.fasta"));
  scratch_write(bad, ">a\nL1G\n", 7);
  request.of.inputs = inputs;
  request.of.strict = true;
  refused(&request, PLM_FORMAT, "bad.fasta", "");
  request.of.input_count = 2;
  refused(&request, PLM_NOT_FOUND, "missing.fasta", "");
}

static int setup(void **state)
{
  (void)state;
  struct published_file file = published_file_of(PLM_ESM2);
  published_folder_write(&file, plain);
  const size_t all = file.tensor_count;
  file.tensor_count = 0;
  for (size_t i = 0; i < all; i++) {
    const struct plm_tensor_info tensor = file.tensors[i];
    if (strncmp(tensor.name, "lm_head.", 8) == 0) continue;
    file.tensors[file.tensor_count++] = tensor;
  }
  assert_true(file.tensor_count < all);
  published_folder_write(&file, trunk);
  published_file_free(&file);
  file = published_file_of(PLM_ESM2);
  published_add_ignored(&file);
  published_folder_write(&file, with_head);
  published_file_free(&file);
  file = published_file_of(PLM_ESMC);
  published_folder_write(&file, with_chains);
  published_file_free(&file);
  snprintf(in, sizeof in, "%s", scratch_path("in.fasta"));
  snprintf(out, sizeof out, "%s", scratch_path("out.safetensors"));
  plm_log_init("t", PLM_LOG_INFO);
  return 0;
}

static int end(void **state)
{
  (void)state;
  ops->close(ops);
  return 0;
}

static int begin(void **state)
{
  (void)state;
  task_files_fasta(in, SEQUENCES, length_of);
  (void)unlink(out);
  return plm_ops_cpu_open(PLM_PRECISION_FP32, 1, NULL, &ops, NULL) == PLM_OK ? 0 : -1;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {
      TEST(attention),
      TEST(contacts),
      TEST(chains_see_each_other_unless_they_are_separate),
      TEST(what_is_refused),
      TEST(a_trunk_has_states_but_no_logits),
      TEST(a_missing_input_is_found_first),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
