/* Prints the description of a corpus. */
#include "stages/views/corpus_summary.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/corpus/tokenizer.h"

enum { BAR_WIDTH = 40, FEW_DOCUMENTS = 256 };

static const struct plm_hash none;

static void print_bar(double share_of_largest)
{
  const int cells = (int)(share_of_largest * BAR_WIDTH + 0.5);
  for (int i = 0; i < cells; i++) putchar('#');
  putchar('\n');
}

static void print_splits(const struct plm_corpus_info *info)
{
  char documents[32], residues[32], shortest[32], longest[32];
  printf("\n%-7s %13s %17s %9s %9s %11s\n", "split", "documents", "residues", "shortest", "mean",
         "longest");
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *split = &info->splits[s];
    printf("%-7s %13s %17s %9s %9.1f %11s%s\n", plm_split_name((enum plm_split)s),
           plm_format_count(split->documents, documents),
           plm_format_count(split->residues, residues),
           plm_format_count(split->length_min, shortest),
           split->documents == 0 ? 0.0 : (double)split->residues / (double)split->documents,
           plm_format_count(split->length_max, longest),
           split->documents < FEW_DOCUMENTS ? "  (fewer than 256 documents)" : "");
  }
}

static void print_labels(const struct plm_label_schema *schema)
{
  char count[32], train[32], valid[32], test[32];
  if (schema->count == 0) return;
  printf("\n%-20s %-9s %9s %13s %11s %11s\n", "labels", "kind", "classes", "train", "valid",
         "test");
  for (uint32_t i = 0; i < schema->count; i++) {
    const struct plm_label_column *column = &schema->columns[i];
    const bool number = column->kind == PLM_LABEL_NUMBER;
    plm_print(stdout, "%-20s %-9s %9s %13s %11s %11s", column->name,
              plm_label_kind_name(column->kind),
              number ? "" : plm_format_count(column->class_count, count),
              plm_format_count(column->labels[PLM_SPLIT_TRAIN], train),
              plm_format_count(column->labels[PLM_SPLIT_VALID], valid),
              plm_format_count(column->labels[PLM_SPLIT_TEST], test));
    if (number) printf("  %.6g +- %.6g", column->mean, column->deviation);
    putchar('\n');
  }
}

static void print_lengths(const struct plm_corpus_info *info)
{
  uint64_t counts[PLM_HISTOGRAM_BINS] = {0}, largest = 0;
  int first = PLM_HISTOGRAM_BINS, last = -1;
  for (int bin = 0; bin < PLM_HISTOGRAM_BINS; bin++) {
    for (int s = 0; s < PLM_SPLIT_COUNT; s++) counts[bin] += info->splits[s].histogram[bin];
    if (counts[bin] > largest) largest = counts[bin];
    if (counts[bin] == 0) continue;
    if (bin < first) first = bin;
    last = bin;
  }
  printf("\nlengths\n");
  for (int bin = first; bin <= last; bin++) {
    char from[32], to[32], count[32];
    printf("%11s - %-11s %13s  ", plm_format_count(1ull << bin, from),
           plm_format_count((2ull << bin) - 1, to), plm_format_count(counts[bin], count));
    print_bar((double)counts[bin] / (double)largest);
  }
}

static void print_composition(const struct plm_corpus_info *info)
{
  enum { MOST = 32 };
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(info->tokenizer);
  uint64_t counts[512] = {0}, total = 0, largest = 1;
  for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
    for (int s = 0; s < PLM_SPLIT_COUNT; s++) counts[id] += info->splits[s].composition[id];
    total += counts[id];
    if (counts[id] > largest) largest = counts[id];
  }
  printf("\ncomposition (entropy %.4f nats)\n", info->entropy);
  for (int row = 0; row < MOST; row++) { /* the most frequent first */
    uint32_t best = 0;
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++)
      if (counts[id] > counts[best]) best = id;
    if (counts[best] == 0) break;
    printf("%7s %8.4f %%  ", plm_token_text(tokenizer, best),
           100.0 * (double)counts[best] / (double)total);
    print_bar((double)counts[best] / (double)largest);
    counts[best] = 0;
  }
}

void plm_corpus_summary_print(const char *directory,
                              const struct plm_corpus_description *description)
{
  const struct plm_corpus_info *info = &description->info;
  char hex[PLM_HASH_HEX_SIZE], size[32], documents[32];
  plm_hash_to_hex(info->fingerprint, hex);
  uint64_t residues = 0;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) residues += info->splits[s].residues;
  plm_print(stdout, "%s\n", directory);
  printf("fingerprint  %s\n", hex);
  if (!plm_hash_equal(info->upgraded_from, none)) {
    plm_hash_to_hex(info->upgraded_from, hex);
    printf("             %s before the upgrade\n", hex);
  }
  printf("tokenizer    %s\n", info->tokenizer == PLM_TOKENIZER_ESM ? "esm" : "byte");
  printf("split        %s\n", plm_corpus_split_words(info->clustered));
  if (plm_corpus_keeps_clusters(info)) {
    printf("clusters    ");
    for (int s = 0; s < PLM_SPLIT_COUNT; s++)
      printf(" %s %s%s", plm_format_count(info->splits[s].clusters, documents),
             plm_split_name((enum plm_split)s), s + 1 < PLM_SPLIT_COUNT ? "," : "\n");
  }
  printf("size         %s bytes, %.2f bits per residue\n",
         plm_format_count(description->files.size_bytes, size),
         8.0 * (double)description->files.size_bytes / (double)residues);
  for (size_t i = 0; i < description->ingested_count; i++)
    plm_print(stdout, "%-12s %s (%s documents)\n", i == 0 ? "sources" : "",
              description->ingested[i].name,
              plm_format_count(description->ingested[i].documents, documents));
  print_splits(info);
  print_labels(&description->labels);
  print_lengths(info);
  print_composition(info);
}

static void add_counts(cJSON *object, const char *key, const uint64_t *counts, size_t count)
{
  cJSON *array = cJSON_AddArrayToObject(object, key);
  for (size_t i = 0; i < count; i++) plm_json_append(array, cJSON_CreateNumber((double)counts[i]));
}

static void add_splits(cJSON *root, const struct plm_corpus_info *info)
{
  const struct plm_tokenizer *tokenizer = plm_tokenizer_of(info->tokenizer);
  cJSON *splits = cJSON_AddObjectToObject(root, "splits");
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const struct plm_corpus_split *split = &info->splits[s];
    cJSON *object = cJSON_AddObjectToObject(splits, plm_split_name((enum plm_split)s));
    cJSON_AddNumberToObject(object, "documents", (double)split->documents);
    if (plm_corpus_keeps_clusters(info))
      cJSON_AddNumberToObject(object, "clusters", (double)split->clusters);
    cJSON_AddNumberToObject(object, "residues", (double)split->residues);
    cJSON_AddNumberToObject(object, "length_min", (double)split->length_min);
    cJSON_AddNumberToObject(object, "length_max", (double)split->length_max);
    add_counts(object, "histogram", split->histogram, PLM_HISTOGRAM_BINS);
    cJSON *composition = cJSON_AddObjectToObject(object, "composition");
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++)
      if (split->composition[id] != 0)
        cJSON_AddNumberToObject(composition, plm_token_text(tokenizer, id),
                                (double)split->composition[id]);
  }
}

static void add_labels(cJSON *root, const struct plm_label_schema *schema)
{
  if (schema->count == 0) return;
  cJSON *columns = cJSON_AddArrayToObject(root, "labels");
  for (uint32_t i = 0; i < schema->count; i++) {
    const struct plm_label_column *column = &schema->columns[i];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", column->name);
    cJSON_AddStringToObject(object, "kind", plm_label_kind_name(column->kind));
    cJSON *labels = cJSON_AddObjectToObject(object, "labels");
    for (int s = 0; s < PLM_SPLIT_COUNT; s++)
      cJSON_AddNumberToObject(labels, plm_split_name((enum plm_split)s), (double)column->labels[s]);
    if (column->kind == PLM_LABEL_NUMBER) {
      cJSON_AddNumberToObject(object, "mean", column->mean);
      cJSON_AddNumberToObject(object, "deviation", column->deviation);
    } else {
      cJSON *counts = cJSON_AddObjectToObject(object, "classes");
      for (uint32_t c = 0; c < column->class_count; c++)
        cJSON_AddNumberToObject(counts, column->classes[c], (double)column->counts[c]);
    }
    plm_json_append(columns, object);
  }
}

plm_status plm_corpus_summary_json(const struct plm_corpus_description *description,
                                   struct plm_error *error)
{
  const struct plm_corpus_info *info = &description->info;
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(info->fingerprint, hex);
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "fingerprint", hex);
  if (!plm_hash_equal(info->upgraded_from, none)) {
    plm_hash_to_hex(info->upgraded_from, hex);
    cJSON_AddStringToObject(root, "upgraded_from", hex);
  }
  cJSON_AddStringToObject(root, "tokenizer", info->tokenizer == PLM_TOKENIZER_ESM ? "esm" : "byte");
  cJSON_AddNumberToObject(root, "format", info->format);
  cJSON_AddBoolToObject(root, "clustered", info->clustered);
  cJSON_AddNumberToObject(root, "entropy", info->entropy);
  add_splits(root, info);
  add_labels(root, &description->labels);
  cJSON *ingested = cJSON_AddArrayToObject(root, "sources");
  for (size_t i = 0; i < description->ingested_count; i++) {
    cJSON *source = cJSON_CreateObject();
    cJSON_AddStringToObject(source, "name", description->ingested[i].name);
    cJSON_AddNumberToObject(source, "bytes", (double)description->ingested[i].bytes);
    cJSON_AddNumberToObject(source, "documents", (double)description->ingested[i].documents);
    plm_json_append(ingested, source);
  }
  cJSON_AddNumberToObject(root, "size", (double)description->files.size_bytes);
  return plm_json_print(root, error);
}
