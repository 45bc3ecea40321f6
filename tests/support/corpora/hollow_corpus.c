/* Writes the tables of a large corpus, and the few groups that somebody asks for. */
#include "tests/support/corpora/hollow_corpus.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_handle.h"
#include "stages/ingest/corpus_store.h"
#include "stages/ingest/group_compressor.h"

enum { SHORTEST = 50, LENGTHS = 400, CLUSTER = 2, BLOCK_MOST = 65536 };

struct hollow {
  struct plm_corpus_description description;
  struct plm_corpus_store *store;
  uint64_t *groups; /* (group_count) those with sequences, ascending */
  size_t group_count;
  struct plm_group_check *checks;         /* (group_count) */
  uint8_t (*roots)[PLM_PROOF_HASH_BYTES]; /* (group_count) */
  struct plm_proof_digest (*digests)[PLM_GROUP_DOCUMENTS];
};

static void must(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("hollow corpus", error);
  exit(1);
}

static uint32_t length_of(uint64_t document)
{
  return SHORTEST + (uint32_t)((document * 0x9e3779b97f4a7c15u) >> 32) % LENGTHS;
}

/* ---- the groups that have sequences -------------------------------------------------------- */

static int compare_groups(const void *a, const void *b)
{
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void find_groups(struct hollow *hollow, const struct plm_plan_parameters *parameters,
                        const struct hollow_windows *windows, uint32_t count)
{
  const struct plm_corpus_split *split = &hollow->description.info.splits[PLM_SPLIT_TRAIN];
  struct plm_plan *plan;
  struct plm_error error;
  uint64_t *found = plm_alloc(parameters->window_groups * sizeof *found);
  const uint64_t wide = parameters->sampling == PLM_SAMPLING_CLUSTERS ? CLUSTER : 1;
  const uint64_t all = plm_corpus_group_count(split->documents);
  size_t used = 0;
  must(plm_plan_open(parameters, split->documents, split->clusters, &plan, &error), &error);
  for (uint32_t i = 0; i < count; i++)
    for (uint64_t w = 0; w < windows[i].count; w++) {
      if (windows[i].first + w >= plm_plan_windows(plan)) break;
      const uint32_t groups =
          plm_plan_window_groups(plan, windows[i].epoch, windows[i].first + w, found);
      hollow->groups = plm_realloc(hollow->groups, (used + groups * wide) * sizeof *hollow->groups);
      for (uint32_t g = 0; g < groups; g++)
        for (uint64_t k = 0; k < wide; k++)
          if (found[g] * wide + k < all) hollow->groups[used++] = found[g] * wide + k;
    }
  plm_plan_close(plan);
  free(found);
  qsort(hollow->groups, used, sizeof *hollow->groups, compare_groups);
  for (size_t i = 0; i < used; i++)
    if (i == 0 || hollow->groups[i] != hollow->groups[i - 1])
      hollow->groups[hollow->group_count++] = hollow->groups[i];
  hollow->checks = plm_alloc_zeroed(hollow->group_count, sizeof *hollow->checks);
  hollow->roots = plm_alloc_zeroed(hollow->group_count, sizeof *hollow->roots);
  hollow->digests = plm_alloc_zeroed(hollow->group_count, sizeof *hollow->digests);
}

static void fill_job(struct plm_group_job *job, uint64_t group, uint64_t documents)
{
  static const char letters[] = "ACDEFGHIKLMNPQRSTVWY";
  struct plm_error error;
  job->documents = plm_corpus_group_documents(documents, group);
  for (uint32_t d = 0; d < job->documents; d++) {
    const uint64_t number = group * PLM_GROUP_DOCUMENTS + d;
    const uint32_t length = job->lengths[d] = length_of(number);
    must(plm_bytes_reserve(&job->residues, length, &error), &error);
    must(plm_bytes_reserve(&job->names, 1, &error), &error);
    for (uint32_t i = 0; i < length; i++)
      job->residues.data[job->residues.size++] =
          (uint8_t)letters[((number + 1) * (i + 7) * 0x9e3779b1u >> 16) % 20];
    if (d > 0) job->names.data[job->names.size++] = '\n';
  }
}

static void write_groups(struct hollow *hollow)
{
  struct plm_corpus_split *split = &hollow->description.info.splits[PLM_SPLIT_TRAIN];
  struct plm_group_compressor *compressor;
  struct plm_error error;
  struct plm_group_job open = {0};
  must(plm_group_compressor_open(PLM_TOKENIZER_ESM, 1, &compressor, &error), &error);
  for (size_t i = 0; i < hollow->group_count; i++) {
    fill_job(&open, hollow->groups[i], split->documents);
    plm_group_compressor_submit(compressor, &open);
    const struct plm_group_job *job = plm_group_compressor_pop(compressor);
    must(job->status, &job->error);
    must(plm_corpus_store_put(hollow->store, PLM_SPLIT_TRAIN, PLM_RECORD_GROUPS, hollow->groups[i],
                              job->group_frame.data, job->group_frame.size, &error),
         &error);
    must(plm_corpus_store_put(hollow->store, PLM_SPLIT_TRAIN, PLM_RECORD_NAMES, hollow->groups[i],
                              job->names_frame.data, job->names_frame.size, &error),
         &error);
    hollow->checks[i] = job->check;
    memcpy(hollow->roots[i], job->root.hash, sizeof hollow->roots[i]);
    memcpy(hollow->digests[i], job->digests, sizeof hollow->digests[i]);
    for (int id = 0; id < 512; id++) split->composition[id] += job->composition[id];
    plm_group_compressor_release(compressor);
  }
  plm_group_job_deinit(&open);
  plm_group_compressor_close(compressor);
}

/* ---- the tables ---------------------------------------------------------------------------- */

static void put_block(struct hollow *hollow, enum plm_record_kind kind, uint64_t begin,
                      const void *entries, uint64_t count)
{
  const struct plm_corpus_table *table = &plm_corpus_tables[kind];
  struct plm_error error;
  PLM_ASSERT(table->block != 0);
  must(plm_corpus_store_put(hollow->store, PLM_SPLIT_TRAIN, kind, begin / table->block, entries,
                            count * table->entry_bytes, &error),
       &error);
}

static uint64_t block_end(enum plm_record_kind kind, uint64_t begin, uint64_t count)
{
  const uint32_t block = plm_corpus_tables[kind].block;
  return count - begin < block ? count : begin + block;
}

static void write_lengths(struct hollow *hollow)
{
  struct plm_corpus_split *split = &hollow->description.info.splits[PLM_SPLIT_TRAIN];
  uint32_t *entries = plm_alloc(BLOCK_MOST * sizeof *entries);
  for (uint64_t begin = 0, end; begin < split->documents; begin = end) {
    end = block_end(PLM_RECORD_LENGTHS, begin, split->documents);
    for (uint64_t d = begin; d < end; d++) {
      entries[d - begin] = length_of(d);
      split->residues += entries[d - begin];
      split->histogram[31 - __builtin_clz(entries[d - begin])]++;
    }
    put_block(hollow, PLM_RECORD_LENGTHS, begin, entries, end - begin);
  }
  split->length_min = SHORTEST;
  split->length_max = SHORTEST + LENGTHS - 1;
  free(entries);
}

static void write_clusters(struct hollow *hollow)
{
  struct plm_corpus_split *split = &hollow->description.info.splits[PLM_SPLIT_TRAIN];
  uint32_t *entries = plm_alloc(BLOCK_MOST * sizeof *entries);
  struct plm_proof_builder builder;
  plm_proof_begin(&builder, PLM_PROOF_SUMS);
  for (uint64_t begin = 0, end; begin < split->clusters; begin = end) {
    end = block_end(PLM_RECORD_CLUSTERS, begin, split->clusters);
    for (uint64_t c = begin; c < end; c++) entries[c - begin] = CLUSTER;
    put_block(hollow, PLM_RECORD_CLUSTERS, begin, entries, end - begin);
    plm_corpus_add_clusters(&builder, entries, end - begin);
  }
  (void)plm_corpus_root(&builder, split->cluster_root);
  free(entries);
}

/* The checks and roots of all groups: zeros, and the number of the group, where there are no
 * sequences. */
static void write_group_tables(struct hollow *hollow)
{
  struct plm_corpus_split *split = &hollow->description.info.splits[PLM_SPLIT_TRAIN];
  const uint64_t groups = plm_corpus_group_count(split->documents);
  struct plm_group_check *checks = plm_alloc(PLM_CHECKS_BLOCK * sizeof *checks);
  uint8_t(*roots)[PLM_PROOF_HASH_BYTES] = plm_alloc(PLM_ROOTS_BLOCK * sizeof *roots);
  struct plm_proof_builder builder;
  size_t next = 0;
  plm_proof_begin(&builder, PLM_PROOF_PLAIN);
  _Static_assert((int)PLM_CHECKS_BLOCK == (int)PLM_ROOTS_BLOCK, "both are of the same groups");
  for (uint64_t begin = 0, end; begin < groups; begin = end) {
    end = block_end(PLM_RECORD_ROOTS, begin, groups);
    for (uint64_t g = begin; g < end; g++) {
      struct plm_proof_node node = {.sum = 0};
      const bool full = next < hollow->group_count && hollow->groups[next] == g;
      memcpy(node.hash, full ? (const void *)hollow->roots[next] : &g, full ? sizeof node.hash : 8);
      checks[g - begin] = full ? hollow->checks[next] : (struct plm_group_check){0};
      memcpy(roots[g - begin], node.hash, sizeof *roots);
      plm_proof_add(&builder, &node);
      next += full;
    }
    put_block(hollow, PLM_RECORD_CHECKS, begin, checks, end - begin);
    put_block(hollow, PLM_RECORD_ROOTS, begin, roots, end - begin);
  }
  (void)plm_corpus_root(&builder, split->root);
  free(checks);
  free(roots);
}

static void write_digests(struct hollow *hollow)
{
  const uint64_t documents = hollow->description.info.splits[PLM_SPLIT_TRAIN].documents;
  struct plm_proof_digest *entries = plm_alloc_zeroed(PLM_DIGESTS_BLOCK, sizeof *entries);
  for (size_t i = 0; i < hollow->group_count;) {
    const uint64_t begin =
        hollow->groups[i] * PLM_GROUP_DOCUMENTS / PLM_DIGESTS_BLOCK * PLM_DIGESTS_BLOCK;
    const uint64_t end = block_end(PLM_RECORD_DIGESTS, begin, documents);
    for (; i < hollow->group_count && hollow->groups[i] * PLM_GROUP_DOCUMENTS < end; i++)
      memcpy(entries + hollow->groups[i] * PLM_GROUP_DOCUMENTS - begin, hollow->digests[i],
             plm_corpus_group_documents(documents, hollow->groups[i]) * sizeof *entries);
    put_block(hollow, PLM_RECORD_DIGESTS, begin, entries, end - begin);
  }
  free(entries);
}

/* ---- the files ----------------------------------------------------------------------------- */

static void write_description(struct hollow *hollow, const char *directory)
{
  struct plm_corpus_files *files = &hollow->description.files;
  char path[PLM_PATH_SIZE];
  struct plm_text text = {0};
  struct plm_error error;
  must(plm_path_join(path, directory, PLM_CORPUS_DATA, &error), &error);
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  PLM_ASSERT(descriptor >= 0);
  must(plm_corpus_edges(descriptor, path, files, &error), &error);
  close(descriptor);
  plm_corpus_description_print(&hollow->description, true, &text);
  must(plm_path_join(path, directory, PLM_CORPUS_DESCRIPTION, &error), &error);
  must(plm_file_write(path, text.data, text.length, 0666, &error), &error);
  plm_text_deinit(&text);
}

void hollow_corpus_write(const char *directory, uint64_t documents,
                         const struct plm_plan_parameters *parameters,
                         const struct hollow_windows *windows, uint32_t count)
{
  const bool clusters = parameters->sampling == PLM_SAMPLING_CLUSTERS;
  struct hollow hollow = {0};
  struct plm_corpus_info *info = &hollow.description.info;
  struct plm_corpus_files *files = &hollow.description.files;
  struct plm_text meta = {0};
  struct plm_error error;
  PLM_ASSERT(!clusters || documents % CLUSTER == 0);
  info->format = PLM_CORPUS_FORMAT;
  info->tokenizer = PLM_TOKENIZER_ESM;
  info->clustered = clusters;
  info->splits[PLM_SPLIT_TRAIN].documents = documents;
  info->splits[PLM_SPLIT_TRAIN].clusters = clusters ? documents / CLUSTER : 0;
  must(plm_directory_make(directory, &error), &error);
  must(plm_corpus_store_open(directory, PLM_CORPUS_FORMAT, &hollow.store, &error), &error);
  find_groups(&hollow, parameters, windows, count);
  write_groups(&hollow);
  write_lengths(&hollow);
  if (clusters) write_clusters(&hollow);
  write_group_tables(&hollow);
  write_digests(&hollow);
  info->fingerprint = plm_corpus_fingerprint(info);
  plm_corpus_info_finish(info);
  plm_corpus_description_print(&hollow.description, false, &meta);
  must(plm_corpus_store_put_meta(hollow.store, meta.data, meta.length, &error), &error);
  plm_text_deinit(&meta);
  must(plm_corpus_store_hash(hollow.store, PLM_RECORD_LENGTHS, &files->lengths, &error), &error);
  must(plm_corpus_store_hash(hollow.store, PLM_RECORD_CHECKS, &files->checks, &error), &error);
  plm_corpus_store_close(hollow.store);
  write_description(&hollow, directory);
  free(hollow.groups);
  free(hollow.checks);
  free(hollow.roots);
  free(hollow.digests);
}
