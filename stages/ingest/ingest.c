/* The loop from records to documents, and what is said about it. */
#include "stages/ingest/ingest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/sequences/bad_record.h"
#include "common/sequences/sequence_reader.h"
#include "stages/ingest/cluster_table.h"
#include "stages/ingest/pair_table.h"

enum {
  RECORDS_BETWEEN_LOOKS = 64, /* at the clock */
  FEW_DOCUMENTS = 256,
  INPUT_LIMIT = 1 << 16, /* files: corpus.json names each */
};

struct ingest {
  const struct plm_ingest_options *options;
  struct plm_ingest_result *result;
  struct plm_corpus_writer *writer;
  struct plm_cluster_table *clusters;
  struct plm_pair_table *seen;
  struct plm_corpus_source *sources;
  struct plm_progress progress;
  uint64_t input_bytes, input_total; /* compressed, files before this one; all (0: unknown) */
};

static double cpu_seconds(void)
{
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* All files can be read, before anything is written. Sums their sizes for the progress bar. */
static plm_status check_inputs(struct ingest *ingest, struct plm_error *error)
{
  bool known = true;
  for (size_t i = 0; i < ingest->options->input_count; i++) {
    const char *path = ingest->options->inputs[i];
    struct plm_byte_stream *stream;
    if (strcmp(path, "-") == 0) {
      known = false;
      continue;
    }
    struct stat information;
    if (stat(path, &information) == 0 && S_ISFIFO(information.st_mode)) {
      known = false; /* opening it twice would lose its writer */
      continue;
    }
    PLM_TRY(plm_byte_stream_open(path, &stream, error));
    if (plm_byte_stream_total(stream) == 0) known = false;
    ingest->input_total += plm_byte_stream_total(stream);
    plm_byte_stream_close(stream);
  }
  if (!known) ingest->input_total = 0;
  return PLM_OK;
}

static enum plm_split choose_split(struct ingest *ingest, const struct plm_sequence *sequence,
                                   struct plm_hash hash)
{
  uint64_t chosen = hash.low;
  if (ingest->clusters != NULL &&
      !plm_cluster_table_find(ingest->clusters, sequence->name, sequence->name_size, &chosen))
    ingest->result->without_cluster++;
  return plm_split_rule_choose(&ingest->options->splits, chosen);
}

static void say_too_long(struct ingest *ingest, const struct plm_sequence *sequence,
                         const char *file)
{
  plm_progress_clear(&ingest->progress);
  plm_warning("%s:%llu: \"%.*s\" has %llu residues, more than --max-residues %llu: skipped, as are "
              "all such",
              file, (unsigned long long)sequence->line,
              (int)(sequence->name_size < 80 ? sequence->name_size : 80), sequence->name,
              (unsigned long long)sequence->length,
              (unsigned long long)ingest->options->max_residues);
}

/* A good record: dropped for its length or as a repeat, or added. */
static plm_status take_record(struct ingest *ingest, const struct plm_sequence *sequence,
                              struct plm_corpus_source *source, struct plm_error *error)
{
  struct plm_ingest_result *result = ingest->result;
  if (sequence->too_long) {
    if (result->too_long++ == 0) say_too_long(ingest, sequence, source->name);
    return PLM_OK;
  }
  if (sequence->length < ingest->options->min_length) {
    result->too_short++;
    return PLM_OK;
  }
  const struct plm_hash hash = plm_hash_bytes(sequence->residues, sequence->size);
  if (ingest->seen != NULL) {
    uint64_t second = hash.low;
    bool found;
    PLM_TRY(plm_pair_table_add(ingest->seen, hash.high, &second, &found, error));
    if (found) {
      result->duplicates++;
      return PLM_OK;
    }
  }
  source->documents++;
  return plm_corpus_writer_add(ingest->writer, choose_split(ingest, sequence, hash), sequence->name,
                               sequence->name_size, sequence->residues, sequence->size, error);
}

static void show_progress(struct ingest *ingest, const struct plm_byte_stream *stream)
{
  plm_progress_update(&ingest->progress, ingest->input_bytes + plm_byte_stream_consumed(stream),
                      ingest->input_total, ingest->result->bytes + plm_byte_stream_produced(stream),
                      ingest->result->records, "sequences");
}

static plm_status read_records(struct ingest *ingest, struct plm_sequence_reader *reader,
                               struct plm_corpus_source *source, uint64_t *good,
                               struct plm_error *error)
{
  for (;;) {
    struct plm_sequence sequence;
    struct plm_error local = {0}; /* error may be NULL, and a bad record is no failure yet */
    PLM_TRY(plm_ingest_stopped(ingest->options->stop, error));
    plm_status status = PLM_OK;
    switch (plm_sequence_reader_next(reader, &sequence, &local)) {
    case PLM_SEQUENCE_READ:
      (*good)++;
      status = take_record(ingest, &sequence, source, &local);
      break;
    case PLM_SEQUENCE_BAD:
      status =
          plm_bad_record(ingest->options->strict, &ingest->result->bad, &ingest->progress, &local);
      break;
    case PLM_SEQUENCE_FAILED: status = local.status; break;
    case PLM_SEQUENCE_AGAIN: continue;
    case PLM_SEQUENCE_END: return PLM_OK;
    }
    if (status != PLM_OK) {
      if (error != NULL) *error = local;
      return status;
    }
    if (++ingest->result->records % RECORDS_BETWEEN_LOOKS == 0)
      show_progress(ingest, plm_sequence_reader_stream(reader));
  }
}

static plm_status read_file(struct ingest *ingest, size_t index, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  const char *path = options->inputs[index];
  struct plm_corpus_source *source = &ingest->sources[index];
  struct plm_byte_stream *stream;
  struct plm_sequence_reader *reader;
  PLM_TRY(plm_byte_stream_open(path, &stream, error));
  PLM_TRY(plm_sequence_reader_open(stream, options->writer.tokenizer, options->max_residues,
                                   &reader, error));
  const uint64_t bad_before = ingest->result->bad;
  uint64_t good = 0;
  plm_status status = read_records(ingest, reader, source, &good, error);
  source->bytes = plm_byte_stream_produced(stream);
  ingest->result->bytes += source->bytes;
  ingest->input_bytes += plm_byte_stream_consumed(stream);
  if (status == PLM_OK && good == 0) {
    if (source->bytes == 0)
      status = plm_error_set(error, PLM_FORMAT, "%s is empty", source->name);
    else
      status = plm_error_set(error, PLM_FORMAT, "%s has no good record, %llu bad", source->name,
                             (unsigned long long)(ingest->result->bad - bad_before));
    plm_error_hint(error, "formats: .fasta .fa .faa .fas, .jsonl, .txt, each also .gz or .zst");
  }
  plm_sequence_reader_close(reader);
  return status;
}

static void show_verification(void *context, uint64_t done, uint64_t total)
{
  struct ingest *ingest = context;
  ingest->progress.label = "verify";
  plm_progress_update(&ingest->progress, done, total, done, ingest->result->records, "sequences");
}

/* Where a corpus deserves a second look. */
static void warn(const struct ingest *ingest)
{
  const struct plm_ingest_result *result = ingest->result;
  char count[32];
  for (int s = 0; s < PLM_SPLIT_COUNT; s++) {
    const uint64_t documents = result->info.splits[s].documents;
    const double share =
        ingest->options->splits.below[s] - (s == 0 ? 0.0 : ingest->options->splits.below[s - 1]);
    if (share > 0.0 && documents < FEW_DOCUMENTS)
      plm_warning("split %s has only %llu documents", plm_split_name((enum plm_split)s),
                  (unsigned long long)documents);
  }
  if (result->without_cluster != 0)
    plm_warning("%s sequences are in no cluster of %s: each stands for itself",
                plm_format_count(result->without_cluster, count), ingest->options->clusters);
}

static plm_status prepare(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  if (options->input_count > INPUT_LIMIT) {
    plm_error_set(error, PLM_LIMIT, "%zu files are more than %d", options->input_count,
                  INPUT_LIMIT);
    return plm_error_hint(error, "join them: cat FILES | plm-pipeline ingest - --corpus DIR");
  }
  ingest->sources = calloc(options->input_count, sizeof *ingest->sources);
  if (ingest->sources == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  for (size_t i = 0; i < options->input_count; i++)
    ingest->sources[i].name =
        (char *)(strcmp(options->inputs[i], "-") == 0 ? "stdin" : options->inputs[i]);
  if (options->deduplicate) {
    plm_info("--deduplicate holds 16 bytes a sequence in memory (at most 25 with free places)");
    ingest->seen = plm_pair_table_open(true);
    if (ingest->seen == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  PLM_TRY(check_inputs(ingest, error));
  if (options->clusters != NULL) {
    char count[32];
    PLM_TRY(plm_cluster_table_open(options->clusters, options->stop, &ingest->clusters, error));
    plm_info("%s: %s members of clusters", options->clusters,
             plm_format_count(plm_cluster_table_members(ingest->clusters), count));
  }
  return plm_corpus_writer_open(&options->writer, &ingest->writer, error);
}

static plm_status run(struct ingest *ingest, struct plm_error *error)
{
  const struct plm_ingest_options *options = ingest->options;
  struct plm_ingest_result *result = ingest->result;
  PLM_TRY(prepare(ingest, error));
  plm_progress_begin(&ingest->progress, "ingest");
  uint64_t documents = 0;
  for (size_t i = 0; i < options->input_count; i++) {
    PLM_TRY(read_file(ingest, i, error));
    documents += ingest->sources[i].documents;
  }
  if (documents == 0)
    return plm_error_set(error, PLM_FORMAT,
                         "no sequence is left: %llu shorter than --min-length, %llu longer than "
                         "--max-residues",
                         (unsigned long long)result->too_short,
                         (unsigned long long)result->too_long);
  PLM_TRY(plm_corpus_writer_finish(ingest->writer, ingest->sources, options->input_count,
                                   show_verification, ingest, options->stop, &result->info, error));
  warn(ingest);
  return PLM_OK;
}

plm_status plm_ingest(const struct plm_ingest_options *options, struct plm_ingest_result *result,
                      struct plm_error *error)
{
  *result = (struct plm_ingest_result){0};
  struct ingest ingest = {.options = options, .result = result};
  const uint64_t start_ns = plm_clock_ns();
  const double start_cpu = cpu_seconds();
  plm_status status = run(&ingest, error);
  /* whatever a signal interrupted: the signal is the reason */
  if (status != PLM_OK && options->stop != NULL && *options->stop != 0)
    status = plm_ingest_stopped(options->stop, error);
  plm_progress_clear(&ingest.progress);
  plm_corpus_writer_close(ingest.writer);
  plm_cluster_table_close(ingest.clusters);
  plm_pair_table_close(ingest.seen);
  free(ingest.sources);
  result->seconds = 1e-9 * (double)(plm_clock_ns() - start_ns);
  result->cpu_seconds = cpu_seconds() - start_cpu;
  return status;
}
