/* Compares each training document with those of a block of held-out documents, of which it finds
 * the ones that share a hash with it by an index. */
#include "stages/overlap/overlap.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log/progress.h"
#include "stages/overlap/kmer_sketch.h"

enum { BUCKET_BITS = 18 };

struct entry {
  uint32_t hash, document; /* of the block */
};

struct exact_entry {
  struct plm_hash hash;
  uint32_t document;
};

struct search {
  const struct plm_overlap_request *request;
  struct plm_overlap *overlap;
  struct plm_corpus_cursor *training, *held_out;
  uint8_t *seen;  /* (training documents) bit 0: exact, bit 1: near; four documents in a byte */
  double jaccard; /* the least of near-duplicates */
  /* the block */
  uint64_t first; /* held-out document */
  uint32_t count;
  struct plm_kmer_sketch *sketches; /* (block) */
  struct exact_entry *exact;        /* (block) ascending */
  struct entry *entries;            /* (block * PLM_SKETCH_SIZE) ascending */
  uint32_t *buckets;                /* (2^BUCKET_BITS + 1) the first entry of each */
  uint16_t *shared;                 /* (block) hashes in common with a training document */
  uint32_t *touched;                /* (block) documents with any */
  struct plm_progress progress;
  uint64_t done, total; /* training documents that were compared, over all blocks */
};

void plm_overlap_deinit(struct plm_overlap *overlap)
{
  free(overlap->matches);
  *overlap = (struct plm_overlap){0};
}

/* ---- a block ---- */

/* Of equal hashes, any order of documents will do. */
static int by_hash(const void *left, const void *right)
{
  const struct entry *a = left, *b = right;
  return (a->hash > b->hash) - (a->hash < b->hash);
}

/* Any order will do. */
static int compare_hashes(struct plm_hash a, struct plm_hash b)
{
  return memcmp(&a, &b, sizeof a);
}

static int by_exact_hash(const void *left, const void *right)
{
  const struct exact_entry *a = left, *b = right;
  return compare_hashes(a->hash, b->hash);
}

static uint32_t bucket_of(uint32_t hash)
{
  return hash >> (32 - BUCKET_BITS);
}

static plm_status load_block(struct search *search, struct plm_error *error)
{
  const enum plm_split split = search->request->held_out_split;
  uint32_t entries = 0;
  for (uint32_t i = 0; i < search->count; i++) {
    const uint64_t number = search->first + i;
    const uint32_t *lengths;
    const uint8_t *residues;
    size_t size;
    struct plm_kmer_sketch *sketch = &search->sketches[i];
    if (i == 0 || number % PLM_GROUP_DOCUMENTS == 0)
      PLM_TRY(plm_corpus_proven_lengths(search->held_out, split, number / PLM_GROUP_DOCUMENTS,
                                        &lengths, error));
    PLM_TRY(plm_corpus_document(search->held_out, split, number, &residues, &size, error));
    plm_kmer_sketch(residues, size, sketch);
    search->exact[i] = (struct exact_entry){plm_hash_bytes(residues, size), i};
    for (uint32_t h = 0; h < sketch->count; h++)
      search->entries[entries++] = (struct entry){sketch->hashes[h], i};
  }
  qsort(search->exact, search->count, sizeof *search->exact, by_exact_hash);
  qsort(search->entries, entries, sizeof *search->entries, by_hash);
  uint32_t e = 0;
  for (uint32_t b = 0; b <= 1u << BUCKET_BITS; b++) {
    while (e < entries && bucket_of(search->entries[e].hash) < b) e++;
    search->buckets[b] = e;
  }
  return PLM_OK;
}

/* ---- a training document ---- */

static void mark(struct search *search, uint64_t training, uint8_t bit)
{
  search->seen[training / 4] |= (uint8_t)(bit << (2 * (training % 4)));
}

/* Of equal ones, the first match stays. */
static void record_match(struct search *search, uint32_t document, uint64_t training,
                         float sequence_identity, bool exact)
{
  struct plm_overlap_match *match = &search->overlap->matches[search->first + document];
  if (match->exact || (!exact && sequence_identity <= match->sequence_identity)) return;
  *match = (struct plm_overlap_match){training, sequence_identity, exact};
}

static void find_exact(struct search *search, uint64_t training, struct plm_hash hash)
{
  uint32_t low = 0, high = search->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (compare_hashes(search->exact[middle].hash, hash) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < search->count && compare_hashes(search->exact[low].hash, hash) == 0; low++) {
    record_match(search, search->exact[low].document, training, 1, true);
    mark(search, training, 1);
  }
}

/* Counts the hashes that each document of the block has in common with the sketch. Returns the
 * number of documents in `touched`. */
static uint32_t count_shared(struct search *search, const struct plm_kmer_sketch *sketch)
{
  uint32_t touched = 0;
  for (uint32_t h = 0; h < sketch->count; h++) {
    const uint32_t hash = sketch->hashes[h], bucket = bucket_of(hash);
    for (uint32_t e = search->buckets[bucket]; e < search->buckets[bucket + 1]; e++) {
      if (search->entries[e].hash != hash) continue;
      const uint32_t document = search->entries[e].document;
      if (search->shared[document]++ == 0) search->touched[touched++] = document;
    }
  }
  return touched;
}

static void find_near(struct search *search, uint64_t training, const uint8_t *residues,
                      size_t size)
{
  struct plm_kmer_sketch sketch;
  plm_kmer_sketch(residues, size, &sketch);
  const uint32_t touched = count_shared(search, &sketch);
  for (uint32_t i = 0; i < touched; i++) {
    const uint32_t document = search->touched[i], shared = search->shared[document];
    const struct plm_kmer_sketch *other = &search->sketches[document];
    search->shared[document] = 0;
    const uint32_t least = sketch.count > other->count ? sketch.count : other->count;
    if (shared < search->jaccard * least) continue; /* the estimate cannot reach it */
    const double jaccard = plm_kmer_jaccard(&sketch, other);
    if (jaccard < search->jaccard) continue;
    record_match(search, document, training, (float)plm_kmer_sequence_identity(jaccard), false);
    mark(search, training, 2);
  }
}

static plm_status compare_training(struct search *search, struct plm_error *error)
{
  const struct plm_overlap_request *request = search->request;
  const enum plm_split split = request->training_split;
  const uint64_t documents = search->overlap->training_documents;
  for (uint64_t d = 0; d < documents;) {
    const uint8_t *residues;
    const uint32_t *lengths = NULL;
    size_t size;
    const uint64_t group = d / PLM_GROUP_DOCUMENTS;
    plm_corpus_prefetch(request->training, split, group + 1, 1);
    PLM_TRY(plm_corpus_proven_lengths(search->training, split, group, &lengths, error));
    PLM_TRY(plm_corpus_group(search->training, split, group, &residues, &size, error));
    do {
      const uint32_t length = lengths[d % PLM_GROUP_DOCUMENTS];
      find_exact(search, d, plm_hash_bytes(residues, length));
      find_near(search, d, residues, length);
      residues += length;
      d++;
      search->done++;
    } while (d < documents && d % PLM_GROUP_DOCUMENTS != 0);
    plm_progress_update(&search->progress, search->done, search->total, search->done,
                        search->overlap->held_out_documents, "held-out document");
  }
  return PLM_OK;
}

/* ---- all ---- */

static plm_status open_search(struct search *search, struct plm_error *error)
{
  const struct plm_overlap_request *request = search->request;
  const size_t block = request->block;
  PLM_TRY(plm_corpus_cursor_open(request->training, &search->training, error));
  PLM_TRY(plm_corpus_cursor_open(request->held_out, &search->held_out, error));
  search->overlap->matches =
      calloc(search->overlap->held_out_documents, sizeof *search->overlap->matches);
  search->seen = calloc(search->overlap->training_documents / 4 + 1, 1);
  search->sketches = calloc(block, sizeof *search->sketches);
  search->exact = calloc(block, sizeof *search->exact);
  search->entries = calloc(block, PLM_SKETCH_SIZE * sizeof *search->entries);
  search->buckets = calloc((1u << BUCKET_BITS) + 1, sizeof *search->buckets);
  search->shared = calloc(block, sizeof *search->shared);
  search->touched = calloc(block, sizeof *search->touched);
  if (search->overlap->matches == NULL || search->seen == NULL || search->sketches == NULL ||
      search->exact == NULL || search->entries == NULL || search->buckets == NULL ||
      search->shared == NULL || search->touched == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for %zu documents", block);
  return PLM_OK;
}

static void close_search(struct search *search)
{
  plm_progress_clear(&search->progress);
  plm_corpus_cursor_close(search->training);
  plm_corpus_cursor_close(search->held_out);
  free(search->seen);
  free(search->sketches);
  free(search->exact);
  free(search->entries);
  free(search->buckets);
  free(search->shared);
  free(search->touched);
}

static void count_all(struct search *search)
{
  struct plm_overlap *overlap = search->overlap;
  for (uint64_t i = 0; i < overlap->held_out_documents; i++) {
    overlap->held_out_exact += overlap->matches[i].exact;
    overlap->held_out_near +=
        !overlap->matches[i].exact && overlap->matches[i].sequence_identity > 0;
  }
  for (uint64_t i = 0; i < overlap->training_documents; i++) {
    const unsigned bits = search->seen[i / 4] >> (2 * (i % 4)) & 3;
    overlap->training_exact += (bits & 1) != 0;
    overlap->training_near += bits == 2;
  }
}

static plm_status search_all(struct search *search, struct plm_error *error)
{
  const uint64_t documents = search->overlap->held_out_documents;
  const uint32_t block = search->request->block;
  PLM_TRY(open_search(search, error));
  search->total = (documents + block - 1) / block * search->overlap->training_documents;
  for (; search->first < documents; search->first += search->count) {
    const uint64_t left = documents - search->first;
    search->count = left < block ? (uint32_t)left : block;
    PLM_TRY(load_block(search, error));
    PLM_TRY(compare_training(search, error));
  }
  count_all(search);
  return PLM_OK;
}

static plm_status documents_of(const struct plm_corpus *corpus, enum plm_split split,
                               uint64_t *documents, struct plm_error *error)
{
  *documents = plm_corpus_info(corpus)->splits[split].documents;
  if (*documents > 0) return PLM_OK;
  return plm_error_set(error, PLM_CONFIG, "split %s of %.400s is empty", plm_split_name(split),
                       plm_corpus_path(corpus));
}

plm_status plm_overlap_find(const struct plm_overlap_request *request, struct plm_overlap *overlap,
                            struct plm_error *error)
{
  struct search search = {.request = request, .overlap = overlap};
  *overlap = (struct plm_overlap){0};
  PLM_TRY(documents_of(request->training, request->training_split, &overlap->training_documents,
                       error));
  PLM_TRY(documents_of(request->held_out, request->held_out_split, &overlap->held_out_documents,
                       error));
  search.jaccard = plm_kmer_jaccard_at(request->sequence_identity) - 1e-12;
  plm_progress_begin(&search.progress, "compare");
  search.progress.rate_unit = "documents";
  const plm_status status = search_all(&search, error);
  close_search(&search);
  if (status != PLM_OK) plm_overlap_deinit(overlap);
  return status;
}
