/* The loop that turns records into documents, and the reports about it. */
#include "stages/ingest/ingest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/run/stop.h"
#include "common/sequences/sequence_files.h"
#include "stages/ingest/cluster_order.h"
#include "stages/ingest/pair_table.h"

enum {
  FEW_DOCUMENTS = 256,
  INPUT_LIMIT = 1 << 16, /* files; corpus.json names each */
};

struct ingest {
  const struct plm_ingest_options *options;
  struct plm_ingest_result *result;
  struct plm_corpus_writer *writer;
  struct plm_cluster_order *order; /* with --clusters */
  char scratch[PLM_PATH_SIZE];     /* its folder */
  struct plm_pair_table *seen;
  struct plm_label_table *labels; /* with --labels or --split-column */
  struct plm_ingested_file *ingested;
  struct plm_cluster_counts counts;
  char unmatched[300]; /* the first names that the table of clusters lacks */
  struct plm_progress progress;
  uint64_t input_total; /* bytes of all files on disk; 0 if unknown */
};

static double cpu_seconds(void)
{
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void say_too_long(struct ingest *ingest, const struct plm_sequence *sequence,
                         const char *file)
{
  plm_progress_clear(&ingest->progress);
  plm_warning("%s:%llu: \"%.*s\" has %llu residues, more than --max-residues %llu; all such "
              "sequences are skipped",
              file, (unsigned long long)sequence->line,
              (int)(sequence->name_size < 80 ? sequence->name_size : 80), sequence->name,
              (unsigned long long)sequence->length,
              (unsigned long long)ingest->options->max_residues);
}

/* A good record is dropped for its length or as a repeat, or becomes a document. */
static plm_status ingest_on_record(void *context, size_t file, const struct plm_sequence *sequence,
                                   struct plm_error *error)
{
  struct ingest *ingest = context;
  struct plm_ingested_file *source = &ingest->ingested[file];
  struct plm_ingest_result *result = ingest->result;
  if (sequence->too_long) {
    if (result->too_long++ == 0) say_too_long(ingest, sequence, source->name);
    return PLM_OK;
  }
  if (sequence->length < ingest->options->min_length) {
    result->too_short++;
    return PLM_OK;
  }
  struct plm_label_row row = {0};
  if (ingest->labels != NULL && !plm_label_table_includes(ingest->labels, sequence, &row))
    return PLM_OK;
  const struct plm_hash hash = plm_hash_bytes(sequence->residues, sequence->size);
  if (ingest->seen != NULL) {
    bool found;
    PLM_TRY(plm_pair_table_add(ingest->seen, hash.high, hash.low, &found, error));
    if (found) {
      result->duplicates++;
      return PLM_OK;
    }
  }
  const struct plm_split_rule *splits = &ingest->options->splits;
  if (ingest->labels != NULL) PLM_TRY(plm_label_table_find(ingest->labels, sequence, &row, error));
  source->documents++;
  if (ingest->order != NULL)
    return plm_cluster_order_add(ingest->order, sequence->name, sequence->name_size,
                                 sequence->residues, sequence->size, row.record, row.record_size,
                                 error);
  if (row.record != NULL) plm_corpus_writer_labels(ingest->writer, row.record);
  const enum plm_split split = row.has_split ? row.split : plm_split_rule_choose(splits, hash.low);
  return plm_corpus_writer_add(ingest->writer, split, sequence->name, sequence->name_size,
                               sequence->residues, sequence->size, error);
}

/* Reads all files. Afterwards, the sizes that corpus.json states are known. */
static plm_status ingest_read_files(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  struct plm_ingest_result *result = ingest->result;
  const struct plm_sequence_files files = {.paths = options->inputs,
                                           .path_count = options->input_count,
                                           .tokenizer = options->writer.tokenizer,
                                           .max_residues = options->max_residues,
                                           .strict = options->strict,
                                           .choices = options->choices,
                                           .jobs = options->jobs,
                                           .progress = &ingest->progress,
                                           .total_bytes = ingest->input_total,
                                           .stop_consequence = "",
                                           .context = ingest,
                                           .on_record = ingest_on_record};
  struct plm_sequence_file_counts counts;
  uint64_t *bytes = plm_alloc_zeroed(options->input_count, sizeof *bytes);
  const plm_status status = plm_sequence_files_read(&files, &counts, bytes, error);
  for (size_t i = 0; i < options->input_count; i++) ingest->ingested[i].bytes = bytes[i];
  free(bytes);
  result->records = counts.records;
  result->bad = counts.bad;
  result->bytes = counts.bytes;
  return status;
}

static void show_verification(void *context, uint64_t done, uint64_t total)
{
  struct ingest *ingest = context;
  ingest->progress.label = "verify";
  plm_progress_update(&ingest->progress, done, total, done, ingest->result->records, "sequence");
}

static void show_ordering(void *context, uint64_t done, uint64_t total)
{
  struct ingest *ingest = context;
  ingest->progress.label = "order";
  plm_progress_update(&ingest->progress, done, total, done, done, "sequence");
}

/* Adds the documents that were collected to the corpus, cluster by cluster, and removes the
 * temporary files. */
static plm_status write_clusters(struct ingest *ingest, struct plm_error *error)
{
  if (ingest->order == NULL) return PLM_OK;
  PLM_TRY(plm_cluster_order_write(ingest->order, ingest->writer, show_ordering, ingest, error));
  ingest->counts = plm_cluster_order_counts(ingest->order);
  snprintf(ingest->unmatched, sizeof ingest->unmatched, "%s",
           plm_cluster_order_unmatched(ingest->order));
  plm_info("%s: %s", ingest->options->clusters,
           plm_member_rule_text(plm_cluster_order_rule(ingest->order)));
  plm_cluster_order_close(ingest->order);
  ingest->order = NULL;
  return plm_path_remove(ingest->scratch, error);
}

/* Says what was unusual about the clusters. */
static void warn_of_clusters(const struct ingest *ingest)
{
  const char *path = ingest->options->clusters;
  const struct plm_cluster_counts *counts = &ingest->counts;
  const uint64_t missing = counts->members - counts->members_found;
  char count[32];
  if (counts->without_member != 0)
    plm_warning("sequences in no cluster of %s: %s; each counts as its own cluster: %s%s", path,
                plm_format_count(counts->without_member, count), ingest->unmatched,
                counts->without_member > 3 ? ", ..." : "");
  if (counts->in_several != 0)
    plm_warning("lines of %s whose member is already in another cluster: %s, the first is line "
                "%llu; a member stays in its first cluster",
                path, plm_format_count(counts->in_several, count),
                (unsigned long long)counts->in_several_line);
  if (counts->repeated_lines != 0)
    plm_info("lines of %s that repeat an earlier one: %s; they are ignored", path,
             plm_format_count(counts->repeated_lines, count));
  if (missing != 0)
    plm_info("members in %s without a sequence: %s; they are ignored", path,
             plm_format_count(missing, count));
  if (counts->repeated_names != 0)
    plm_info("sequences that have the name of an earlier member: %s; they are in its cluster",
             plm_format_count(counts->repeated_names, count));
}

/* Warns about things that may be mistakes. */
static void ingest_warn(const struct ingest *ingest)
{
  const struct plm_ingest_result *result = ingest->result;
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t documents = result->info.splits[s].documents;
    const double share =
        ingest->options->splits.below[s] - (s == 0 ? 0.0 : ingest->options->splits.below[s - 1]);
    if (share > 0.0 && documents < FEW_DOCUMENTS && ingest->options->labels.split_column == NULL)
      plm_warning("split %s has only %llu documents; --split sets the shares",
                  plm_split_name((enum plm_split)s), (unsigned long long)documents);
  }
  if (ingest->options->clusters != NULL) warn_of_clusters(ingest);
}

static plm_status open_writer(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  struct plm_corpus_writer_options writer = options->writer;
  if (plm_label_options_any(&options->labels)) {
    PLM_TRY(plm_label_table_open(&options->labels, options->inputs[0], writer.tokenizer,
                                 &ingest->labels, error));
    writer.labels = plm_label_table_schema(ingest->labels);
  }
  return plm_corpus_writer_open(&writer, &ingest->writer, error);
}

static plm_status ingest_prepare(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  if (options->input_count > INPUT_LIMIT) {
    plm_error_set(error, PLM_LIMIT, "%zu files are too many; %d is the limit", options->input_count,
                  INPUT_LIMIT);
    return plm_error_hint(error, "join them: cat FILES... | plm-pipeline ingest - --corpus DIR");
  }
  ingest->ingested = plm_alloc_zeroed(options->input_count, sizeof *ingest->ingested);
  for (size_t i = 0; i < options->input_count; i++)
    ingest->ingested[i].name = (char *)plm_byte_stream_label(options->inputs[i]);
  if (options->deduplicate) {
    plm_info("--deduplicate takes 16 to 25 bytes of memory for each sequence");
    ingest->seen = plm_pair_table_open();
    if (ingest->seen == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  PLM_TRY(
      plm_sequence_files_check(options->inputs, options->input_count, &ingest->input_total, error));
  PLM_TRY(open_writer(ingest, error));
  if (options->clusters == NULL) return PLM_OK;
  char count[32];
  PLM_TRY(plm_corpus_writer_scratch(ingest->writer, ingest->scratch, error));
  PLM_TRY(plm_cluster_order_open(ingest->scratch, options->clusters, options->strict,
                                 options->unclustered, &options->splits, &ingest->order, error));
  plm_info("%s: %s sequences in clusters", options->clusters,
           plm_format_count(plm_cluster_order_counts(ingest->order).members, count));
  return PLM_OK;
}

static plm_status report_labels(const struct ingest *ingest, struct plm_error *error)
{
  if (ingest->labels == NULL) return PLM_OK;
  return plm_label_table_report(ingest->labels, plm_corpus_writer_schema(ingest->writer), error);
}

static plm_status ingest_run(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  struct plm_ingest_result *result = ingest->result;
  PLM_TRY(ingest_prepare(ingest, error));
  plm_progress_begin(&ingest->progress, "ingest");
  uint64_t documents = 0;
  PLM_TRY(ingest_read_files(ingest, error));
  for (size_t i = 0; i < options->input_count; i++) documents += ingest->ingested[i].documents;
  if (documents == 0)
    return plm_error_set(error, PLM_FORMAT,
                         "no sequence is left: %llu shorter than --min-length, %llu longer than "
                         "--max-residues",
                         (unsigned long long)result->too_short,
                         (unsigned long long)result->too_long);
  PLM_TRY(write_clusters(ingest, error));
  PLM_TRY(report_labels(ingest, error));
  PLM_TRY(plm_corpus_writer_finish(ingest->writer, ingest->ingested, options->input_count,
                                   show_verification, ingest, &result->info, error));
  ingest_warn(ingest);
  return PLM_OK;
}

plm_status plm_ingest(const struct plm_ingest_options *options, struct plm_ingest_result *result,
                      struct plm_error *error)
{
  *result = (struct plm_ingest_result){0};
  struct ingest ingest = {.options = options, .result = result};
  const uint64_t start_ns = plm_clock_ns();
  const double start_cpu = cpu_seconds();
  plm_status status = ingest_run(&ingest, error);
  /* After a signal, any failure is attributed to the signal. */
  if (status != PLM_OK && plm_stop_requested != 0)
    status = plm_stop_check("; no corpus was written", error);
  plm_progress_clear(&ingest.progress);
  plm_cluster_order_close(ingest.order);
  plm_corpus_writer_close(ingest.writer);
  plm_pair_table_close(ingest.seen);
  plm_label_table_close(ingest.labels);
  free(ingest.ingested);
  result->seconds = plm_clock_seconds_since(start_ns);
  result->cpu_seconds = cpu_seconds() - start_cpu;
  return status;
}
