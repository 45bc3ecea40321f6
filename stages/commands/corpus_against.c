/* Opens both corpora, compares them and prints the result. */
#include "stages/commands/corpus_against.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/config/config.h"
#include "stages/overlap/kmer_sketch.h"
#include "stages/overlap/overlap.h"

enum { EXAMPLES = 10 };

struct sides {
  struct plm_overlap_request request;
  char against[PLM_PATH_SIZE];
  bool same; /* both are one corpus, which is open once */
};

/* --against is a corpus folder, or the name of one of evaluator.sets. */
static plm_status find_held_out(const struct plm_command_context *context, struct sides *sides,
                                struct plm_error *error)
{
  const char *name = plm_arguments_get(context->arguments, "against");
  const char *split = plm_arguments_get(context->arguments, "against-split");
  sides->request.held_out_split = PLM_SPLIT_VALID;
  snprintf(sides->against, sizeof sides->against, "%s", name);
  if (!plm_file_exists(name) && plm_config_is_set_name(name)) {
    struct plm_config config;
    bool found = false;
    PLM_TRY(plm_arguments_load_config(context->arguments, NULL, false, &config, error));
    for (uint32_t i = 0; i < config.evaluator.set_count && !found; i++) {
      const struct plm_config_set *set = &config.evaluator.sets[i];
      found = strcmp(set->name, name) == 0;
      if (!found) continue;
      snprintf(sides->against, sizeof sides->against, "%s", set->corpus);
      sides->request.held_out_split = set->split;
    }
    plm_config_deinit(&config);
    if (!found) {
      plm_error_set(error, PLM_NOT_FOUND,
                    "--against %s: no such folder, and evaluator.sets has no set of this name",
                    name);
      return plm_error_hint(error, "name a corpus folder, or give the configuration with -c");
    }
  }
  return split != NULL ? plm_split_parse(split, &sides->request.held_out_split, error) : PLM_OK;
}

/* The same folder by two paths is one corpus. */
static bool is_same(const char *a, const char *b)
{
  char *first = realpath(a, NULL), *second = realpath(b, NULL);
  const bool same = first != NULL && second != NULL && strcmp(first, second) == 0;
  free(first);
  free(second);
  return same;
}

static plm_status against_parse_options(const struct plm_command_context *context,
                                        const char *directory, struct sides *sides,
                                        struct plm_error *error)
{
  const char *split = plm_arguments_get(context->arguments, "split");
  const char *sequence_identity = plm_arguments_get(context->arguments, "identity");
  sides->request.training_split = PLM_SPLIT_TRAIN;
  sides->request.sequence_identity = 0.9;
  sides->request.block = PLM_OVERLAP_BLOCK;
  if (split != NULL) PLM_TRY(plm_split_parse(split, &sides->request.training_split, error));
  PLM_TRY(find_held_out(context, sides, error));
  if (sequence_identity != NULL) {
    char *end;
    sides->request.sequence_identity = strtod(sequence_identity, &end);
    if (end == sequence_identity || *end != '\0' ||
        !(sides->request.sequence_identity >= 0.5 && sides->request.sequence_identity <= 1))
      return plm_error_set(error, PLM_USAGE, "--identity must be from 0.5 to 1, not \"%.80s\"",
                           sequence_identity);
  }
  sides->same = is_same(directory, sides->against);
  if (!sides->same || sides->request.training_split != sides->request.held_out_split) return PLM_OK;
  plm_error_set(error, PLM_USAGE, "a split is not compared with itself");
  return plm_error_hint(error, "name two splits with --split and --against-split");
}

static plm_status open_sides(const char *directory, const struct plm_corpus_options *reading,
                             struct sides *sides, struct plm_error *error)
{
  struct plm_overlap_request *request = &sides->request;
  PLM_TRY(plm_corpus_open(directory, reading, &request->training, error));
  if (sides->same) {
    request->held_out = request->training;
    return PLM_OK;
  }
  PLM_TRY(plm_corpus_open(sides->against, reading, &request->held_out, error));
  if (plm_corpus_info(request->training)->tokenizer ==
      plm_corpus_info(request->held_out)->tokenizer)
    return PLM_OK;
  return plm_error_set(error, PLM_CONFIG,
                       "the two corpora have different tokenizers, so they share no sequences");
}

/* ---- printing ---- */

/* The held-out documents with the most similar training documents, at most EXAMPLES. Returns their
 * number. */
static uint32_t choose_examples(const struct plm_overlap *overlap, uint64_t examples[EXAMPLES])
{
  uint32_t count = 0;
  for (uint64_t i = 0; i < overlap->held_out_documents; i++) {
    const float sequence_identity = overlap->matches[i].sequence_identity;
    if (sequence_identity <= 0) continue;
    uint32_t place = count < EXAMPLES ? count++ : EXAMPLES;
    while (place > 0 &&
           overlap->matches[examples[place - 1]].sequence_identity < sequence_identity) {
      if (place < EXAMPLES) examples[place] = examples[place - 1];
      place--;
    }
    if (place < EXAMPLES) examples[place] = i;
  }
  return count;
}

/* The name of a document. The caller frees it. */
static plm_status corpus_against_name_of(struct plm_corpus *corpus, enum plm_split split,
                                         uint64_t number, char **name, struct plm_error *error)
{
  struct plm_corpus_cursor *cursor;
  const char *text;
  PLM_TRY(plm_corpus_cursor_open(corpus, &cursor, error));
  const plm_status status = plm_corpus_name(cursor, split, number, &text, error);
  if (status == PLM_OK) *name = plm_strdup(text);
  plm_corpus_cursor_close(cursor);
  return status;
}

static void print_example(const char *held_out, const char *training,
                          const struct plm_overlap_match *match)
{
  printf("  ");
  plm_print_data(stdout, held_out);
  printf(match->exact ? "  is  " : "  is like  ");
  plm_print_data(stdout, training);
  if (match->exact)
    printf("\n");
  else
    printf("  (identity about %.2f)\n", (double)match->sequence_identity);
}

/* Prints the examples, or with `array` adds them to it. */
static plm_status show_examples(const struct sides *sides, const struct plm_overlap *overlap,
                                cJSON *array, struct plm_error *error)
{
  const struct plm_overlap_request *request = &sides->request;
  uint64_t examples[EXAMPLES];
  const uint32_t count = choose_examples(overlap, examples);
  for (uint32_t i = 0; i < count; i++) {
    const struct plm_overlap_match *match = &overlap->matches[examples[i]];
    char *held_out = NULL, *training = NULL;
    plm_status status = corpus_against_name_of(request->held_out, request->held_out_split,
                                               examples[i], &held_out, error);
    if (status == PLM_OK)
      status = corpus_against_name_of(request->training, request->training_split, match->training,
                                      &training, error);
    if (status == PLM_OK && array == NULL) {
      print_example(held_out, training, match);
    } else if (status == PLM_OK) {
      cJSON *object = cJSON_CreateObject();
      cJSON_AddStringToObject(object, "held_out", held_out);
      cJSON_AddStringToObject(object, "training", training);
      cJSON_AddBoolToObject(object, "exact", match->exact);
      cJSON_AddNumberToObject(object, "identity", (double)match->sequence_identity);
      plm_json_append(array, object);
    }
    free(held_out);
    free(training);
    if (status != PLM_OK) return status;
  }
  return PLM_OK;
}

static void add_side(cJSON *json, const char *name, const char *corpus, enum plm_split split,
                     const uint64_t counts[3])
{
  cJSON *side = cJSON_AddObjectToObject(json, name);
  cJSON_AddStringToObject(side, "corpus", corpus);
  cJSON_AddStringToObject(side, "split", plm_split_name(split));
  cJSON_AddNumberToObject(side, "documents", (double)counts[0]);
  cJSON_AddNumberToObject(side, "exact", (double)counts[1]);
  cJSON_AddNumberToObject(side, "near", (double)counts[2]);
}

static plm_status corpus_against_print_json(const struct sides *sides, const char *directory,
                                            const struct plm_overlap *overlap,
                                            struct plm_error *error)
{
  const struct plm_overlap_request *request = &sides->request;
  const uint64_t training[] = {overlap->training_documents, overlap->training_exact,
                               overlap->training_near};
  const uint64_t held_out[] = {overlap->held_out_documents, overlap->held_out_exact,
                               overlap->held_out_near};
  cJSON *json = cJSON_CreateObject();
  add_side(json, "training", directory, request->training_split, training);
  add_side(json, "held_out", sides->against, request->held_out_split, held_out);
  cJSON_AddNumberToObject(json, "identity", request->sequence_identity);
  cJSON_AddNumberToObject(json, "kmer", PLM_SKETCH_KMER);
  cJSON_AddNumberToObject(json, "sketch", PLM_SKETCH_SIZE);
  const plm_status status =
      show_examples(sides, overlap, cJSON_AddArrayToObject(json, "most_similar"), error);
  if (status == PLM_OK) return plm_json_print(json, error);
  cJSON_Delete(json);
  return status;
}

static void print_side(const char *what, uint64_t count, uint64_t documents)
{
  char counted[32];
  printf("  %-16s %12s  %6.2f %%\n", what, plm_format_count(count, counted),
         100 * (double)count / (double)documents);
}

static plm_status print_text(const struct sides *sides, const char *directory,
                             const struct plm_overlap *overlap, struct plm_error *error)
{
  const struct plm_overlap_request *request = &sides->request;
  char documents[64];
  printf("held out: %s of %s in split %s\n",
         plm_format_quantity(overlap->held_out_documents, "document", documents), sides->against,
         plm_split_name(request->held_out_split));
  print_side("exact duplicates", overlap->held_out_exact, overlap->held_out_documents);
  print_side("near-duplicates", overlap->held_out_near, overlap->held_out_documents);
  printf("training: %s of %s in split %s\n",
         plm_format_quantity(overlap->training_documents, "document", documents), directory,
         plm_split_name(request->training_split));
  print_side("exact duplicates", overlap->training_exact, overlap->training_documents);
  print_side("near-duplicates", overlap->training_near, overlap->training_documents);
  printf("Near-duplicates have an identity of at least about %g, estimated from words of %d "
         "residues.\n",
         request->sequence_identity, PLM_SKETCH_KMER);
  if (overlap->held_out_exact + overlap->held_out_near > 0) printf("most similar:\n");
  return show_examples(sides, overlap, NULL, error);
}

plm_status plm_corpus_against(const struct plm_command_context *context, const char *directory,
                              const struct plm_corpus_options *reading, struct plm_error *error)
{
  struct sides sides = {0};
  struct plm_overlap overlap = {0};
  PLM_TRY(against_parse_options(context, directory, &sides, error));
  plm_status status = open_sides(directory, reading, &sides, error);
  if (status == PLM_OK) status = plm_overlap_find(&sides.request, &overlap, error);
  if (status == PLM_OK)
    status = context->json ? corpus_against_print_json(&sides, directory, &overlap, error)
                           : print_text(&sides, directory, &overlap, error);
  plm_overlap_deinit(&overlap);
  if (!sides.same && sides.request.held_out != NULL) plm_corpus_close(sides.request.held_out);
  if (sides.request.training != NULL) plm_corpus_close(sides.request.training);
  return status;
}
