/* An independent program follows a real run: it makes the sequences itself, lets the real programs
 * ingest, pack and train, and then reads nothing but the checkpoint step_00000000, `trace` and the
 * losses. From these it computes the initial weights, the masks, and twenty steps of training in
 * double precision, by the formulas of model.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/hash.h"
#include "common/base/philox.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/reference_model.h"
#include "tests/support/reference_training.h"
#include "tests/support/scratch.h"

enum { DOCUMENTS = 60, LENGTH = 64, CHUNKS = 2, STEPS = 20, PLACES = CHUNKS * LENGTH };
enum { CLS = 0, PAD = 1, EOS = 2, FIRST_RESIDUE = 4, TENSORS_MAX = 128 };
static const char alphabet[] = "LAGVSERTIDPKQNFYMHWC"; /* ids 4 to 23 */

static char sequences[DOCUMENTS][128];

static const char *program(const char *name)
{
  static char path[4096];
  const char *bin = getenv("PLM_BIN");
  snprintf(path, sizeof path, "%s/%s", bin != NULL ? bin : "build/bin", name);
  return path;
}

static void run_command(const char *format, ...)
{
  char command[8192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  const int status = system(command);
  if (status != 0) fail_msg("`%s` ended with %d", command, WEXITSTATUS(status));
}

/* ---- the run ------------------------------------------------------------------------------- */

static void write_corpus(const char *folder)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/sequences.fasta", folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (uint32_t d = 0; d < DOCUMENTS; d++) {
    const uint32_t residues = 8 + plm_philox(5, d, 0, 9).w[0] % 90; /* some longer than a chunk */
    for (uint32_t i = 0; i < residues; i++)
      sequences[d][i] = alphabet[plm_philox(5, d, 1 + i, 9).w[0] % 20 *
                                 (plm_philox(5, d, 1 + i, 9).w[1] % 20) / 20];
    fprintf(file, ">d%u\n%s\n", d, sequences[d]);
  }
  fclose(file);
  run_command("%s ingest %s --corpus %s/corpus --split train=1 -q >%s/ingest.log 2>&1",
              program("plm-pipeline"), path, folder, folder);
}

static void write_config(const char *folder, const char *architecture, const char *trainer)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/%s.yaml", folder, architecture);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file,
          "run: %s\nseed: 8589934597\ncorpus: corpus\n"
          "network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'tcp://127.0.0.1:*', "
          "announcements: 'tcp://127.0.0.1:*', wait_packers_s: 30}\n"
          "data: {max_length: %d}\n"
          "model: {architecture: %s, hidden_size: 64, num_attention_heads: 2, "
          "num_hidden_layers: 2, num_unet_layers: 4, num_extra_layers: 1}\n"
          "trainer:\n  steps: %d\n  batch_tokens: %d\n  micro_batch_tokens: %d\n"
          "  precision: fp32\n  checkpoint: {every: 100, keep_last: 9}\n"
          "  schedule: {warmup_steps: 5, cooldown_steps: 8}\n%s",
          architecture, LENGTH, architecture, STEPS, PLACES, PLACES / 2, trainer);
  fclose(file);
}

static void train(const char *folder, const char *architecture)
{
  char packer[4096], trainer[4096];
  assert_non_null(realpath(program("plm-packer"), packer));
  assert_non_null(realpath(program("plm-trainer"), trainer));
  run_command("cd %s && { %s -c %s.yaml --corpus corpus --run %s >%s-packer.log 2>&1 & p=$!; "
              "%s -c %s.yaml -q >%s-trainer.log 2>&1; status=$?; kill $p; wait $p; "
              "[ $status -eq 0 ] || tail -n 20 %s-trainer.log %s-packer.log >&2; exit $status; }",
              folder, packer, architecture, architecture, architecture, trainer, architecture,
              architecture, architecture, architecture);
}

/* ---- what the oracle reads ----------------------------------------------------------------- */

struct oracle {
  struct plm_config config;
  struct reference_parameter parameters[TENSORS_MAX];
  struct reference_weights weights[TENSORS_MAX];
  size_t count;
};

static double *zeros(size_t count)
{
  double *values = calloc(count, sizeof *values);
  assert_non_null(values);
  return values;
}

/* U of element e by purpose 3. */
static double weight_draw(uint64_t seed, const char *name, uint64_t e)
{
  const struct plm_philox_words words =
      plm_philox(seed, (uint32_t)(e / 4), plm_hash32_name(name), 3);
  return ((double)(words.w[e % 4] >> 8) + 0.5) / 16777216.0;
}

/* What model.md says the parameter begins with. */
static double initial_weight(uint64_t seed, const struct reference_weights *weights, uint64_t e)
{
  const char *name = weights->name;
  if (strstr(name, "attention.output") != NULL || strstr(name, "mlp.down") != NULL ||
      strcmp(name, "lm_head.bias") == 0)
    return 0;
  if (strstr(name, "value_mix") != NULL) return 0.5;
  if (strstr(name, "input_mix") != NULL) return e == 0;
  if (strstr(name, "skip_weights") != NULL) return 1;
  if (strstr(name, "embeddings") != NULL) {
    const double r = sqrt(-2 * log(weight_draw(seed, name, e & ~(uint64_t)1)));
    const double angle = 2 * acos(-1) * weight_draw(seed, name, e | 1);
    return e % 2 == 0 ? r * cos(angle) : r * sin(angle);
  }
  return (2 * weight_draw(seed, name, e) - 1) / sqrt((double)weights->cols);
}

static void load_checkpoint(struct oracle *oracle, const char *folder, const char *architecture)
{
  char path[4300];
  struct plm_safetensors *file;
  struct plm_error error = {0};
  snprintf(path, sizeof path, "%s/%s/checkpoints/step_00000000/model.safetensors", folder,
           architecture);
  if (plm_safetensors_open(path, &file, &error) != PLM_OK) fail_msg("%s", error.what);
  oracle->count = plm_safetensors_count(file);
  assert_in_range(oracle->count, 1, TENSORS_MAX);
  for (size_t i = 0; i < oracle->count; i++) {
    const struct plm_tensor_info *tensor = plm_safetensors_at(file, i);
    const size_t elements = tensor->bytes / sizeof(float);
    struct reference_weights *weights = &oracle->weights[i];
    *weights = (struct reference_weights){.name = strdup(tensor->name),
                                          .rows = tensor->rank == 2 ? (int64_t)tensor->shape[0] : 1,
                                          .cols = (int64_t)tensor->shape[tensor->rank - 1],
                                          .is_vector = tensor->rank == 1,
                                          .w = zeros(elements),
                                          .first = zeros(elements),
                                          .second = zeros(elements)};
    oracle->parameters[i] = (struct reference_parameter){.name = weights->name,
                                                         .rows = weights->rows,
                                                         .cols = weights->cols,
                                                         .value = weights->w,
                                                         .gradient = zeros(elements)};
    for (size_t e = 0; e < elements; e++) {
      float value;
      memcpy(&value, (const char *)tensor->data + e * sizeof value, sizeof value);
      const double wanted = initial_weight(oracle->config.seed, weights, e);
      if (value != (float)wanted)
        fail_msg("%s[%zu] begins with %.9g instead of %.9g", weights->name, e, (double)value,
                 wanted);
      weights->w[e] = value;
    }
  }
  plm_safetensors_close(file);
}

static void free_oracle(struct oracle *oracle)
{
  for (size_t i = 0; i < oracle->count; i++) {
    free((char *)oracle->weights[i].name);
    free(oracle->weights[i].w);
    free(oracle->weights[i].first);
    free(oracle->weights[i].second);
    free(oracle->parameters[i].gradient);
  }
  plm_config_deinit(&oracle->config);
}

/* The chunks of a step, from `trace` and the sequences. */
struct traced {
  uint8_t tokens[PLACES];
  uint32_t begin[CHUNKS + 1];
  struct plm_chunk_document documents[PLACES];
};

static uint32_t number_of(const cJSON *object, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  assert_true(cJSON_IsNumber(item));
  return (uint32_t)item->valuedouble;
}

static void place_document(struct traced *traced, uint32_t chunk, const cJSON *json)
{
  const struct plm_chunk_document document = {.number = number_of(json, "index"),
                                              .start = number_of(json, "start"),
                                              .tokens = number_of(json, "length"),
                                              .offset = number_of(json, "offset")};
  const char *sequence = sequences[document.number];
  const uint32_t residues = (uint32_t)strlen(sequence);
  assert_int_equal(document.offset, 0); /* truncate: head */
  for (uint32_t i = 0; i < document.tokens; i++) {
    uint8_t *token = &traced->tokens[chunk * LENGTH + document.start + i];
    if (i == 0)
      *token = CLS;
    else if (i == residues + 1)
      *token = EOS;
    else
      *token = (uint8_t)(FIRST_RESIDUE + (strchr(alphabet, sequence[i - 1]) - alphabet));
  }
  traced->documents[traced->begin[chunk + 1]] = document;
  traced->documents[traced->begin[chunk + 1]++].residues = residues;
}

static void read_trace(struct traced *traced, const char *folder, const char *architecture,
                       uint32_t step)
{
  char command[8192];
  static char line[1 << 16];
  memset(traced, 0, sizeof *traced);
  memset(traced->tokens, PAD, sizeof traced->tokens);
  snprintf(command, sizeof command, "%s trace -c %s/%s.yaml --step %u --json",
           program("plm-pipeline"), folder, architecture, step);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  uint32_t chunk = 0;
  for (; fgets(line, sizeof line, pipe) != NULL; chunk++) {
    assert_true(chunk < CHUNKS);
    cJSON *json = cJSON_Parse(line), *document;
    traced->begin[chunk + 1] = traced->begin[chunk];
    cJSON_ArrayForEach(document, cJSON_GetObjectItemCaseSensitive(json, "documents"))
        place_document(traced, chunk, document);
    cJSON_Delete(json);
  }
  assert_int_equal(pclose(pipe), 0);
  assert_int_equal(chunk, CHUNKS);
}

static void read_losses(const char *folder, const char *architecture, double losses[STEPS])
{
  char path[4300];
  static char line[1 << 14];
  snprintf(path, sizeof path, "%s/%s/trainer.jsonl", folder, architecture);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  for (int s = 0; s < STEPS; s++) {
    assert_non_null(fgets(line, sizeof line, file));
    cJSON *json = cJSON_Parse(line);
    assert_int_equal(number_of(json, "step"), s + 1);
    losses[s] = cJSON_GetObjectItemCaseSensitive(json, "loss")->valuedouble;
    cJSON_Delete(json);
  }
  fclose(file);
}

/* ---- the oracle's own training --------------------------------------------------------------- */

static double train_step(struct oracle *oracle, const struct traced *traced, uint64_t s)
{
  const struct plm_config *config = &oracle->config;
  const struct plm_batch batch = {.chunks = CHUNKS,
                                  .max_length = LENGTH,
                                  .token_bytes = 1,
                                  .tokens = traced->tokens,
                                  .document_begin = traced->begin,
                                  .documents = traced->documents};
  struct reference_masks masks;
  reference_masks_open(&masks, PLACES);
  reference_masks_draw(config, traced->tokens, CHUNKS, LENGTH, s * CHUNKS, s, 0, CHUNKS, &masks);
  float weights[PLACES];
  for (uint32_t i = 0; i < masks.rows; i++) weights[i] = (float)masks.weights[i];
  const struct plm_targets targets = {.inputs = masks.inputs,
                                      .rows = masks.rows,
                                      .positions = masks.positions,
                                      .labels = masks.labels,
                                      .weights = weights};
  const struct plm_loss_options loss = {.soft_cap = (float)config->model.soft_logit_cap};
  const struct reference_request request = {.config = &config->model,
                                            .parameters = oracle->parameters,
                                            .parameter_count = oracle->count,
                                            .batch = &batch,
                                            .window = config->model.window_end,
                                            .targets = &targets,
                                            .loss = &loss,
                                            .loss_scale = 1.0 / (double)masks.count};
  for (size_t i = 0; i < oracle->count; i++)
    memset(oracle->parameters[i].gradient, 0,
           (size_t)(oracle->weights[i].rows * oracle->weights[i].cols) * sizeof(double));
  const double mean = reference_model_loss(&request) / (double)masks.count;
  for (size_t i = 0; i < oracle->count; i++)
    reference_update(&config->trainer, &oracle->weights[i], oracle->parameters[i].gradient, s, s);
  reference_masks_close(&masks);
  return mean;
}

static void follow(const char *architecture, const char *trainer)
{
  const char *folder = scratch_directory();
  char path[4200];
  static struct oracle oracle;
  static struct traced traced;
  struct plm_error error = {0};
  double losses[STEPS], worst = 0;
  memset(&oracle, 0, sizeof oracle);
  write_config(folder, architecture, trainer);
  train(folder, architecture);
  snprintf(path, sizeof path, "%s/%s.yaml", folder, architecture);
  if (plm_config_load(path, NULL, 0, &oracle.config, NULL, &error) != PLM_OK)
    fail_msg("%s", error.what);
  load_checkpoint(&oracle, folder, architecture);
  read_losses(folder, architecture, losses);
  for (uint32_t s = 0; s < STEPS; s++) {
    read_trace(&traced, folder, architecture, s + 1);
    const double loss = train_step(&oracle, &traced, s);
    const double off = fabs(loss - losses[s]) / loss;
    worst = fmax(worst, off);
    if (!(off < 1e-5))
      fail_msg("%s: loss of step %u is %.9g, the oracle says %.9g", architecture, s + 1, losses[s],
               loss);
  }
  print_message("%s: losses of %d steps agree within %.2g\n", architecture, STEPS, worst);
  free_oracle(&oracle);
}

static int setup(void **state)
{
  (void)state;
  write_corpus(scratch_directory());
  return 0;
}

static void transformer_with_mlm(void **state)
{
  (void)state;
  follow("transformer", "  masking: {mask_rate: 0.3, starting_mask_rate: 0.1, mask_rate_steps: 10, "
                        "random_fraction: 0.1, keep_fraction: 0.1}\n");
}

static void unet_with_masked_diffusion(void **state)
{
  (void)state;
  follow("unet", "  objective: masked_diffusion\n  masking: {mlm_warmup_steps: 4}\n"
                 "  optimizer: {scale: spectral, lr_hidden: 0.02, weight_decay: 0.1}\n");
}

static void patch_unet_with_adamw(void **state)
{
  (void)state;
  follow("patch_unet", "  optimizer: {name: adamw, lr_hidden: 0.002, lr_embed: 0.002, "
                       "lr_head: 0.002, lr_scalar: 0.002, weight_decay: 0.01}\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transformer_with_mlm),
      cmocka_unit_test(unet_with_masked_diffusion),
      cmocka_unit_test(patch_unet_with_adamw),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
