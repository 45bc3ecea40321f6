/* Reads or makes the sequences that `generate` works on. */
#include "evaluator/generate/generation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/run/stop.h"
#include "common/sequences/sequence_reader.h"

/* How a mask is written in byte text. For proteins, the reader recognises masks itself. */
static const char mask_text[] = "<mask>";
enum { MASK_TEXT_SIZE = sizeof mask_text - 1 };

struct plm_generation_queue {
  struct plm_generation_options options;
  struct plm_sequence_reader *reader; /* NULL if there is no IN */
  struct plm_generation record;       /* `count` copies of it are returned */
  uint64_t copies_left, number, inputs, masked_inputs, cut_inputs;
};

/* ---- one sequence -----------------------------------------------------------------------------*/

static void generation_deinit(struct plm_generation *generation)
{
  free(generation->name);
  free(generation->tokens);
  free(generation->text);
}

void plm_generation_free(struct plm_generation *generation)
{
  if (generation == NULL) return;
  generation_deinit(generation);
  free(generation);
}

uint32_t plm_generation_residues(const struct plm_generation *generation,
                                 const struct plm_tokenizer *tokenizer)
{
  const uint32_t last = generation->count - 1;
  return last - (generation->tokens[last] == tokenizer->eos);
}

void plm_generation_set(struct plm_generation *generation, const struct plm_tokenizer *tokenizer,
                        uint32_t t, int32_t token)
{
  if (t < generation->count && generation->tokens[t] == tokenizer->mask) generation->masks--;
  generation->tokens[t] = token;
  if (t == generation->count) generation->count++;
  if (token == tokenizer->eos) return;
  generation->text[t - 1] = tokenizer->kind == PLM_TOKENIZER_BYTE
                                ? (uint8_t)token
                                : (uint8_t)plm_token_text(tokenizer, (uint32_t)token)[0];
}

void plm_generation_mask(struct plm_generation *generation, const struct plm_tokenizer *tokenizer,
                         uint32_t t)
{
  generation->tokens[t] = tokenizer->mask;
  generation->text[t - 1] = PLM_SEQUENCE_MASK;
  generation->masks++;
}

/* ---- the record that is copied ----------------------------------------------------------------*/

/* Begins a record that holds only <cls>. It has room for max_length tokens. */
static void begin_record(struct plm_generation_queue *queue)
{
  queue->record.count = 1;
  queue->record.masks = 0;
  queue->record.tokens[0] = queue->options.tokenizer->cls;
}

static void add_residue(struct plm_generation *record, int32_t token, uint8_t letter)
{
  record->text[record->count - 1] = letter;
  record->tokens[record->count++] = token;
}

static void add_mask(struct plm_generation *record, const struct plm_tokenizer *tokenizer)
{
  add_residue(record, tokenizer->mask, PLM_SEQUENCE_MASK);
  record->masks++;
}

static plm_status finish_record(struct plm_generation_queue *queue, struct plm_error *error)
{
  const struct plm_generation_options *options = &queue->options;
  struct plm_generation *record = &queue->record;
  if (!options->causal) {
    const bool whole = record->count < options->max_length;
    if (whole) record->tokens[record->count++] = options->tokenizer->eos;
    queue->cut_inputs += !whole;
  } else if (record->masks > 0) {
    plm_error_set(error, PLM_FORMAT, "prompt \"%.80s\" has a mask", record->name);
    return plm_error_hint(error, "a causal model continues a prompt; it cannot fill masks");
  }
  record->end = options->max_length;
  if (options->max_tokens != 0 && options->max_tokens < options->max_length - record->count)
    record->end = record->count + options->max_tokens;
  queue->copies_left = options->count;
  queue->inputs++;
  queue->masked_inputs += record->masks > 0;
  return PLM_OK;
}

static plm_status too_long(const struct plm_generation_queue *queue, uint64_t residues,
                           struct plm_error *error)
{
  const uint32_t max_length = queue->options.max_length;
  plm_error_set(
      error, PLM_LIMIT, "\"%.80s\" has %" PRIu64 " residues; this model (max_length %u) %s %u",
      queue->record.name, residues, max_length,
      queue->options.causal ? "continues prompts of up to" : "takes up to", max_length - 2);
  return plm_error_hint(error, "shorten it, or use a model with a larger data.max_length");
}

/* Encodes a sequence of IN. It may have max_length - 2 residues, which leaves room for <cls>, and
 * for <eos> or the first generated token; or it is cut to max_length tokens. */
static plm_status generation_encode(struct plm_generation_queue *queue,
                                    const struct plm_sequence *sequence, struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = queue->options.tokenizer;
  const bool bytes = tokenizer->kind == PLM_TOKENIZER_BYTE;
  begin_record(queue);
  for (size_t i = 0; i < sequence->size; i++) {
    const uint8_t residue = sequence->residues[i];
    const bool mask = bytes ? sequence->size - i >= MASK_TEXT_SIZE &&
                                  memcmp(sequence->residues + i, mask_text, MASK_TEXT_SIZE) == 0
                            : residue == PLM_SEQUENCE_MASK;
    if (queue->record.count > queue->options.max_length - 2 && !queue->options.cut)
      return too_long(queue, sequence->length, error);
    if (queue->record.count == queue->options.max_length) break;
    if (mask)
      add_mask(&queue->record, tokenizer);
    else
      add_residue(&queue->record, plm_tokenizer_encode(tokenizer, residue), residue);
    if (mask && bytes) i += MASK_TEXT_SIZE - 1;
  }
  return PLM_OK;
}

/* Reads the next sequence of IN into the record; *more is false at the end. */
static plm_status read_record(struct plm_generation_queue *queue, bool *more,
                              struct plm_error *error)
{
  struct plm_sequence sequence;
  *more = false;
  const enum plm_sequence_result result =
      plm_sequence_reader_next_unless_stopped(queue->reader, "", &sequence, error);
  if (result == PLM_SEQUENCE_END) return PLM_OK;
  if (result != PLM_SEQUENCE_READ) return error->status;
  free(queue->record.name);
  queue->record.name = plm_strndup(sequence.name, sequence.name_size);
  if (sequence.too_long && !queue->options.cut)
    PLM_TRY(too_long(queue, sequence.length, error));
  else
    PLM_TRY(generation_encode(queue, &sequence, error));
  *more = true;
  return finish_record(queue, error);
}

/* Without IN there is one record: only <cls>, or nothing but masks. */
static plm_status make_record(struct plm_generation_queue *queue, bool *more,
                              struct plm_error *error)
{
  *more = queue->inputs == 0;
  if (!*more) return PLM_OK;
  begin_record(queue);
  for (uint32_t i = 0; !queue->options.causal && i < queue->options.length; i++)
    add_mask(&queue->record, queue->options.tokenizer);
  return finish_record(queue, error);
}

/* ---- the queue --------------------------------------------------------------------------------*/

static plm_status generation_open_input(struct plm_generation_queue *queue, struct plm_error *error)
{
  const struct plm_generation_options *options = &queue->options;
  const bool bytes = options->tokenizer->kind == PLM_TOKENIZER_BYTE;
  const uint64_t residues = options->cut ? options->max_length : options->max_length - 2;
  struct plm_byte_stream *stream;
  PLM_TRY(plm_byte_stream_open(options->input, &stream, error));
  queue->reader = plm_sequence_reader_open(stream, options->tokenizer->kind,
                                           bytes ? residues * MASK_TEXT_SIZE : residues);
  if (options->cut) plm_sequence_reader_keep_heads(queue->reader);
  plm_sequence_reader_accept_masks(queue->reader);
  plm_sequence_reader_choose(queue->reader, &options->choices);
  return PLM_OK;
}

plm_status plm_generation_queue_open(const struct plm_generation_options *options,
                                     struct plm_generation_queue **queue, struct plm_error *error)
{
  PLM_ASSERT(options->max_length > 2 && options->count > 0);
  PLM_ASSERT(options->length <= options->max_length - 2);
  struct plm_generation_queue *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->options = *options;
  opened->record.tokens = plm_alloc_zeroed(options->max_length, sizeof *opened->record.tokens);
  opened->record.text = plm_alloc_zeroed(options->max_length, 1);
  const plm_status status = options->input != NULL ? generation_open_input(opened, error) : PLM_OK;
  if (status != PLM_OK) {
    plm_generation_queue_close(opened);
    return status;
  }
  *queue = opened;
  return PLM_OK;
}

void plm_generation_queue_close(struct plm_generation_queue *queue)
{
  if (queue == NULL) return;
  plm_sequence_reader_close(queue->reader);
  generation_deinit(&queue->record);
  free(queue);
}

static struct plm_generation *copy_record(struct plm_generation_queue *queue)
{
  const struct plm_generation_options *options = &queue->options;
  const struct plm_generation *record = &queue->record;
  const size_t room = options->causal ? record->end : record->count;
  const unsigned long long which = options->count - queue->copies_left + 1;
  struct plm_generation *copy = plm_alloc_zeroed(1, sizeof *copy);
  *copy = *record;
  copy->number = queue->number;
  copy->tokens = plm_alloc_zeroed(room, sizeof *copy->tokens);
  copy->text = plm_alloc_zeroed(room, 1);
  const bool numbered = queue->reader == NULL || options->causal || options->count > 1;
  const char *name = queue->reader == NULL ? "sample" : record->name;
  copy->name = numbered ? plm_format("%s_%llu", name, which) : plm_strdup(name);
  memcpy(copy->tokens, record->tokens, record->count * sizeof *copy->tokens);
  memcpy(copy->text, record->text, record->count - 1);
  queue->copies_left--;
  queue->number++;
  return copy;
}

plm_status plm_generation_next(struct plm_generation_queue *queue,
                               struct plm_generation **generation, struct plm_error *error)
{
  *generation = NULL;
  PLM_TRY(plm_stop_check("", error)); /* there may be many copies */
  if (queue->copies_left == 0) {
    bool more;
    if (queue->reader != NULL)
      PLM_TRY(read_record(queue, &more, error));
    else
      PLM_TRY(make_record(queue, &more, error));
    if (!more) return PLM_OK;
  }
  *generation = copy_record(queue);
  return PLM_OK;
}

uint64_t plm_generation_inputs(const struct plm_generation_queue *queue)
{
  return queue->inputs;
}

uint64_t plm_generation_cut_inputs(const struct plm_generation_queue *queue)
{
  return queue->cut_inputs;
}

uint64_t plm_generation_masked_inputs(const struct plm_generation_queue *queue)
{
  return queue->masked_inputs;
}
