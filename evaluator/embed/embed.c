/* What `embed` computes for a batch, and the rows that it writes. */
#include "evaluator/embed/embed.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/base/numbers/finite.h"
#include "common/checkpoint/parameter_file.h"
#include "common/cli/output_file.h"
#include "common/huggingface/contact_head.h"
#include "common/inference/finite_output.h"
#include "common/model/architecture.h"
#include "evaluator/embed/embed_maps.h"
#include "evaluator/embed/embed_report.h"
#include "evaluator/embed/layer_choice.h"
#include "evaluator/embed/sequence_run.h"

struct embed {
  const struct plm_embed_request *request;
  struct plm_sequence_run run;
  float *values; /* (max_chunks * max_length, columns) */
  float *room;   /* (max_chunks * max_length, D) for a state; NULL without --layers */
  struct plm_layer_choice layers; /* none: the last hidden state */
  struct plm_map_choice choice;   /* of attention maps */
  struct plm_contact_head head;   /* for contacts */
  struct plm_embed_maps *maps;    /* NULL unless maps are wanted */
  uint32_t *map_tokens;           /* (window) of each sequence of the batch */
  float *pooled;                  /* (layout.width) */
  double *scratch;                /* (2 D) */
  uint64_t positions;             /* computed by this run, including padding */
  char pooling[PLM_POOLING_NAME_SIZE];
};

/* The token of |, 0 if the model has none. */
static uint16_t chain_break_of(const struct embed *embed)
{
  return plm_architecture_rules(embed->run.inference->config.architecture)->chain_break;
}

/* ---- opening --------------------------------------------------------------------------------- */

static plm_status open_model(struct embed *embed, struct plm_ops *ops, struct plm_error *error)
{
  const struct plm_embed_request *request = embed->request;
  const struct plm_sequence_request *of = &request->of;
  struct plm_embed_journal *journal = &embed->run.journal;
  char path[PLM_PATH_SIZE];
  const bool logits = request->kind == PLM_EMBED_LOGITS;
  PLM_TRY((logits ? plm_inference_open_verified
                  : plm_inference_open_trunk)(of->checkpoint, of->weights, ops, of->batch_tokens,
                                              &embed->run.inference, &journal->checkpoint, error));
  if (embed->run.inference->head == PLM_HEAD_CLASSIFIER)
    plm_info("%s is a classifier: its hidden states are embedded, and its classifier is ignored",
             of->checkpoint);
  PLM_TRY(plm_inference_set_limit(embed->run.inference, of->max_length, error));
  if (request->separate_chains && chain_break_of(embed) == 0) {
    plm_error_set(error, PLM_USAGE, "--separate-chains: %s has no token for a break of chains",
                  of->checkpoint);
    return plm_error_hint(error, "ESM-C has one, which is written |");
  }
  if (request->kind == PLM_EMBED_CONTACTS)
    PLM_TRY(plm_contact_head_read(&embed->run.inference->folder, embed->run.inference->file,
                                  &embed->head, error));
  PLM_TRY(plm_path_join(path, of->checkpoint, "config.json", error));
  return plm_hash_file(path, &journal->config, NULL, NULL, error);
}

static plm_status read_inputs(struct embed *embed, struct plm_error *error)
{
  struct plm_intake_options options = {.keep_eos = embed->request->kind == PLM_EMBED_CONTACTS,
                                       .chain_break = chain_break_of(embed)};
  return plm_sequence_run_read(&embed->run, &options, error);
}

/* The number of floats for each token. */
static uint32_t columns_of(const struct embed *embed)
{
  const struct plm_model_config *model = &embed->run.inference->config;
  if (plm_embed_kind_is_map(embed->request->kind)) return 1;
  if (embed->request->kind == PLM_EMBED_LOGITS) return model->vocab_size;
  return embed->layers.count > 0 ? embed->layers.width : model->hidden_size;
}

static plm_status choose_output(struct embed *embed, struct plm_error *error)
{
  static const char *const kinds[] = {"pooled", "per token", "logits", "attention", "contacts"};
  const struct plm_embed_request *request = embed->request;
  const struct plm_model_config *model = &embed->run.inference->config;
  struct plm_embed_layout *layout = &embed->run.layout;
  struct plm_embed_journal *journal = &embed->run.journal;
  layout->kind = request->kind;
  layout->pooling = plm_pooling_name(&request->pooling, embed->pooling);
  if (request->layers != NULL) {
    PLM_TRY(plm_layer_choice_parse(request->layers, model, &embed->layers, error));
    layout->layers = embed->layers.name;
  }
  if (request->kind == PLM_EMBED_ATTENTION) {
    PLM_TRY(plm_map_choice_parse(request->attention, model, &embed->choice, error));
    layout->attention = request->attention;
    layout->maps = embed->choice.maps;
  }
  layout->width = columns_of(embed);
  if (request->kind == PLM_EMBED_POOLED) layout->width *= request->pooling.count;
  snprintf(journal->options, sizeof journal->options, "%s%s%s %s %s --batch-tokens %u%s%s%s%s%s",
           kinds[request->kind], embed->pooling[0] == '\0' ? "" : " ", embed->pooling,
           plm_ops_precision(embed->run.inference->ops),
           layout->format == PLM_EMBED_NPY ? "npy" : "safetensors", request->of.batch_tokens,
           layout->layers != NULL ? " --layers " : "", layout->layers != NULL ? layout->layers : "",
           layout->attention != NULL ? " --attention " : "",
           layout->attention != NULL ? layout->attention : "",
           request->separate_chains ? " --separate-chains" : "");
  return PLM_OK;
}

static plm_status open_maps(struct embed *embed, struct plm_error *error)
{
  const bool contacts = embed->request->kind == PLM_EMBED_CONTACTS;
  const struct plm_maps_request request = {.inference = embed->run.inference,
                                           .choice = contacts ? NULL : &embed->choice,
                                           .weights = embed->head.weights,
                                           .bias = embed->head.bias};
  embed->map_tokens = plm_alloc_zeroed(PLM_SPOOL_WINDOW_SEQUENCES, sizeof *embed->map_tokens);
  return plm_embed_maps_open(&request, &embed->maps, error);
}

static plm_status embed_allocate_buffers(struct embed *embed, struct plm_error *error)
{
  const struct plm_inference *inference = embed->run.inference;
  const struct plm_model_config *model = &inference->config;
  const size_t rows = (size_t)inference->max_chunks * model->max_length;
  const size_t columns = columns_of(embed);
  embed->values = calloc(rows * columns, sizeof *embed->values);
  embed->pooled = calloc(embed->run.layout.width, sizeof *embed->pooled);
  embed->scratch = calloc(2 * columns, sizeof *embed->scratch);
  if (embed->layers.count > 0) embed->room = calloc(rows * model->hidden_size, sizeof *embed->room);
  if (embed->values == NULL || embed->pooled == NULL || embed->scratch == NULL ||
      (embed->layers.count > 0 && embed->room == NULL))
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a batch of %zu tokens", rows);
  if (plm_embed_kind_is_map(embed->request->kind)) PLM_TRY(open_maps(embed, error));
  if (embed->request->separate_chains)
    plm_sequence_batch_split_at(embed->run.batch, chain_break_of(embed));
  return PLM_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Takes the name of the sequence whose number it is. */
struct wanted_name {
  uint64_t number;
  char name[200];
};

static plm_status copy_wanted_name(void *context, uint64_t number, const char *name, size_t size,
                                   struct plm_error *error)
{
  (void)error;
  struct wanted_name *wanted = context;
  if (number == wanted->number)
    snprintf(wanted->name, sizeof wanted->name, "%.*s", (int)(size < 199 ? size : 199), name);
  return PLM_OK;
}

/* Values of sequence i of the window. */
static plm_status check_values(struct embed *embed, uint32_t i, const float *values, size_t count,
                               struct plm_error *error)
{
  struct wanted_name wanted = {.number = embed->run.window.first + i};
  if (plm_first_not_finite(values, count) == count) return PLM_OK;
  PLM_TRY(plm_sequence_spool_each_name(embed->run.spool, copy_wanted_name, &wanted, error));
  return plm_finite_output(values, count, error, "sequence %s", wanted.name);
}

/* Writes the result of sequence i of the window. values (tokens, D or V) begin at its first token.
 */
static plm_status put_sequence(struct embed *embed, uint32_t i, const float *values,
                               struct plm_error *error)
{
  const uint32_t tokens = embed->run.window.lengths[i], columns = columns_of(embed);
  const uint64_t row = embed->run.row_of[i];
  PLM_TRY(check_values(embed, i, values, (size_t)tokens * columns, error));
  if (embed->request->kind != PLM_EMBED_POOLED)
    return plm_embed_output_put(embed->run.output, row, values, tokens, error);
  plm_pooling_run(&embed->request->pooling, values, plm_sequence_run_residues(&embed->run, i),
                  columns, embed->scratch, embed->pooled);
  return plm_embed_output_put(embed->run.output, row, embed->pooled, 1, error);
}

static plm_status put_map(void *context, uint32_t k, uint64_t at, const float *values,
                          uint64_t count, struct plm_error *error)
{
  struct embed *embed = context;
  const uint32_t i = embed->run.taken[k];
  PLM_TRY(check_values(embed, i, values, count, error));
  return plm_embed_output_put(embed->run.output, embed->run.row_of[i] + at, values, count, error);
}

static plm_status run_maps(struct embed *embed, struct plm_error *error)
{
  const uint32_t count = plm_sequence_batch_count(embed->run.batch);
  for (uint32_t k = 0; k < count; k++)
    embed->map_tokens[k] = embed->run.window.lengths[embed->run.taken[k]];
  return plm_embed_maps_run(embed->maps, embed->run.batch, embed->map_tokens, put_map, embed,
                            error);
}

static plm_status run_model(struct embed *embed, const struct plm_batch *chunks,
                            struct plm_error *error)
{
  const int32_t *inputs = plm_sequence_batch_inputs(embed->run.batch);
  const bool logits = embed->request->kind == PLM_EMBED_LOGITS;
  if (embed->layers.count > 0)
    return plm_layer_choice_run(&embed->layers, embed->run.inference, chunks, inputs, embed->room,
                                embed->values, error);
  return plm_inference_run(embed->run.inference, chunks, inputs, NULL, 0,
                           logits ? NULL : embed->values, logits ? embed->values : NULL, error);
}

static plm_status run_batch(void *context, struct plm_error *error)
{
  struct embed *embed = context;
  const size_t columns = columns_of(embed);
  const struct plm_batch *chunks = plm_sequence_batch_finish(embed->run.batch);
  const uint32_t count = plm_sequence_batch_count(embed->run.batch);
  PLM_TRY(embed->maps != NULL ? run_maps(embed, error) : run_model(embed, chunks, error));
  for (uint32_t k = 0; k < count && embed->maps == NULL; k++) {
    const size_t row = plm_sequence_batch_row(embed->run.batch, k);
    PLM_TRY(put_sequence(embed, embed->run.taken[k], embed->values + row * columns, error));
  }
  embed->positions += (uint64_t)chunks->chunks * chunks->max_length;
  return PLM_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static plm_status embed_run(struct embed *embed, struct plm_ops *ops, struct plm_error *error)
{
  const uint64_t started = plm_clock_ns();
  const struct plm_sequence_request *of = &embed->request->of;
  struct plm_sequence_run *run = &embed->run;
  PLM_TRY(plm_embed_format_of(of->output, embed->request->kind, &run->layout.format,
                              error)); /* before anything that takes long */
  PLM_TRY(plm_output_check_inputs("--output", of->output, of->inputs, of->input_count, error));
  PLM_TRY(open_model(embed, ops, error));
  PLM_TRY(read_inputs(embed, error));
  PLM_TRY(choose_output(embed, error));
  PLM_TRY(plm_sequence_run_begin(run, error));
  PLM_TRY(embed_allocate_buffers(embed, error));
  plm_status status = plm_sequence_run_all(run, "embed", run_batch, embed, error);
  if (status == PLM_OK) status = plm_embed_output_finish(run->output, run->spool, error);
  PLM_TRY(plm_sequence_run_end(run, status, error));
  return plm_embed_report_print(run, embed->positions, plm_clock_seconds_since(started), error);
}

plm_status plm_embed(const struct plm_embed_request *request, struct plm_ops *ops,
                     struct plm_error *error)
{
  struct embed embed = {.request = request, .run.request = &request->of};
  const plm_status status = embed_run(&embed, ops, error);
  plm_embed_maps_close(embed.maps);
  plm_contact_head_deinit(&embed.head);
  plm_sequence_run_close(&embed.run);
  plm_inference_close(embed.run.inference);
  free(embed.map_tokens);
  free(embed.values);
  free(embed.room);
  free(embed.pooled);
  free(embed.scratch);
  return status;
}
