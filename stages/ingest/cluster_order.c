/* Collecting documents, and giving them back cluster by cluster. */
#include "stages/ingest/cluster_order.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/run/stop.h"
#include "stages/ingest/group_compressor.h"
#include "stages/ingest/temporary_index.h"

enum {
  WRITE_BYTES = 1 << 20, /* collected before they are written to the file */
  READ_AHEAD = 256,      /* documents that the kernel is asked to read ahead */
  TOGETHER = 1 << 18,    /* documents whose places in the index are looked for together */
};

/* The tables of the index. */
enum { TABLE_MEMBERS, TABLE_CLUSTERS, TABLE_ORDER, TABLES };

/* A record of TABLE_CLUSTERS has the hash of the representative, big-endian, as its key, and the
 * number of the cluster's first document as its value. Documents are numbered from 0 over all
 * splits.
 *
 * A record of TABLE_ORDER has as its key 17 bytes, whose order is that of the documents: the split,
 * the first document of the cluster and the document itself, big-endian. Its value is a place. */
enum { ORDER_KEY_BYTES = 17 };

/* Where a document is in the file: its name, directly followed by its residues. */
struct place {
  uint64_t offset;
  uint32_t name_size, size;
};

/* A document that is not in the index yet. */
struct waiting {
  struct plm_cluster_key key;
  uint64_t representative; /* hash of the name of the cluster's representative */
  uint64_t first;          /* document of the cluster */
  uint64_t number;
  struct place place;
  bool found; /* a line of the table names it */
};

struct plm_cluster_order {
  const struct plm_split_rule *splits;
  struct waiting *waiting; /* (TOGETHER) */
  size_t waiting_count;
  uint64_t without_member;
  struct plm_temporary_index *index;
  struct plm_cluster_table *table;
  char path[PLM_PATH_SIZE];
  int file;
  uint64_t documents;
  uint64_t file_bytes; /* with those in `pending` */
  struct plm_bytes pending;
};

plm_status plm_cluster_order_open(const char *directory, const char *path, bool strict,
                                  const struct plm_split_rule *splits,
                                  struct plm_cluster_order **order, struct plm_error *error)
{
  *order = NULL;
  struct plm_cluster_order *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  opened->file = -1;
  opened->splits = splits;
  plm_status status = plm_temporary_index_open(directory, TABLES, &opened->index, error);
  if (status == PLM_OK)
    status =
        plm_cluster_table_open(path, strict, opened->index, TABLE_MEMBERS, &opened->table, error);
  if (status == PLM_OK) {
    opened->waiting = malloc(TOGETHER * sizeof *opened->waiting);
    if (opened->waiting == NULL) status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  if (status == PLM_OK) status = plm_path_join(opened->path, directory, "documents", error);
  if (status == PLM_OK) {
    opened->file = open(opened->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (opened->file < 0) status = plm_error_errno(error, "cannot create %s", opened->path);
  }
  if (status != PLM_OK)
    plm_cluster_order_close(opened);
  else
    *order = opened;
  return status;
}

void plm_cluster_order_close(struct plm_cluster_order *order)
{
  if (order == NULL) return;
  if (order->file >= 0) close(order->file);
  free(order->pending.data);
  free(order->waiting);
  plm_cluster_table_close(order->table);
  plm_temporary_index_close(order->index);
  free(order);
}

struct plm_cluster_counts plm_cluster_order_counts(const struct plm_cluster_order *order)
{
  struct plm_cluster_counts counts = *plm_cluster_table_counts(order->table);
  counts.without_member = order->without_member;
  return counts;
}

/* ---- collecting ------------------------------------------------------------------------------ */

static plm_status flush(struct plm_cluster_order *order, struct plm_error *error)
{
  const plm_status status =
      plm_file_write_all(order->file, order->pending.data, order->pending.size, order->path, error);
  order->pending.size = 0;
  if (status == PLM_NO_SPACE)
    plm_error_hint(error, "with --clusters, ingest also needs the size of the sequences as text");
  return status;
}

static plm_status append(struct plm_cluster_order *order, const void *bytes, size_t size,
                         struct plm_error *error)
{
  if (size == 0) return PLM_OK;
  PLM_TRY(plm_bytes_reserve(&order->pending, size, error));
  memcpy(order->pending.data + order->pending.size, bytes, size);
  order->pending.size += size;
  order->file_bytes += size;
  return PLM_OK;
}

static int compare(uint64_t a, uint64_t b)
{
  return a < b ? -1 : a > b;
}

static int by_name(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  return compare(a->key.name, b->key.name);
}

static int by_accession(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  return compare(a->key.accession, b->key.accession);
}

static int by_representative(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  const int order = compare(a->representative, b->representative);
  return order != 0 ? order : compare(a->number, b->number);
}

static int by_cluster(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  const int order = compare(a->first, b->first);
  return order != 0 ? order : compare(a->number, b->number);
}

static void sort(struct plm_cluster_order *order, int (*by)(const void *, const void *))
{
  qsort(order->waiting, order->waiting_count, sizeof *order->waiting, by);
}

/* Finds the representatives, by the names and then by the accessions. */
static plm_status find_representatives(struct plm_cluster_order *order, struct plm_error *error)
{
  sort(order, by_name);
  for (size_t i = 0; i < order->waiting_count; i++) {
    struct waiting *next = &order->waiting[i];
    PLM_TRY(plm_cluster_table_find(order->table, next->key.name, &next->representative,
                                   &next->found, error));
  }
  sort(order, by_accession);
  for (size_t i = 0; i < order->waiting_count; i++) {
    struct waiting *next = &order->waiting[i];
    if (next->found) continue;
    if (next->key.accession != next->key.name)
      PLM_TRY(plm_cluster_table_find(order->table, next->key.accession, &next->representative,
                                     &next->found, error));
    if (next->found) continue;
    next->representative = next->key.accession;
    order->without_member++;
  }
  return PLM_OK;
}

/* Finds the first document of each cluster, which is here if the cluster is new. */
static plm_status find_first(struct plm_cluster_order *order, struct plm_error *error)
{
  sort(order, by_representative);
  for (size_t i = 0; i < order->waiting_count; i++) {
    struct waiting *next = &order->waiting[i];
    const uint64_t key = htobe64(next->representative);
    bool found;
    if (i != 0 && next[-1].representative == next->representative) {
      next->first = next[-1].first;
      continue;
    }
    PLM_TRY(plm_temporary_index_get(order->index, TABLE_CLUSTERS, &key, sizeof key, &next->first,
                                    sizeof next->first, &found, error));
    if (found) continue;
    next->first = next->number;
    PLM_TRY(plm_temporary_index_put(order->index, TABLE_CLUSTERS, &key, sizeof key, &next->first,
                                    sizeof next->first, error));
  }
  return PLM_OK;
}

/* Puts the waiting documents into the index. They are sorted before each use of one of its tables,
 * because that is several times as fast as going to random places of a large table. */
static plm_status place_waiting(struct plm_cluster_order *order, struct plm_error *error)
{
  PLM_TRY(find_representatives(order, error));
  PLM_TRY(find_first(order, error));
  sort(order, by_cluster);
  for (size_t i = 0; i < order->waiting_count; i++) {
    const struct waiting *next = &order->waiting[i];
    const uint64_t words[2] = {htobe64(next->first), htobe64(next->number)};
    uint8_t key[ORDER_KEY_BYTES];
    key[0] = (uint8_t)plm_split_rule_choose(order->splits, next->representative);
    memcpy(key + 1, words, sizeof words);
    PLM_TRY(plm_temporary_index_put(order->index, TABLE_ORDER, key, sizeof key, &next->place,
                                    sizeof next->place, error));
  }
  order->waiting_count = 0;
  return PLM_OK;
}

plm_status plm_cluster_order_add(struct plm_cluster_order *order, const char *name,
                                 size_t name_size, const uint8_t *residues, size_t size,
                                 struct plm_error *error)
{
  order->waiting[order->waiting_count++] =
      (struct waiting){.key = plm_cluster_key_of(name, name_size),
                       .number = order->documents++,
                       .place = {order->file_bytes, (uint32_t)name_size, (uint32_t)size}};
  PLM_TRY(append(order, name, name_size, error));
  PLM_TRY(append(order, residues, size, error));
  if (order->pending.size >= WRITE_BYTES) PLM_TRY(flush(order, error));
  return order->waiting_count == TOGETHER ? place_waiting(order, error) : PLM_OK;
}

/* ---- giving back ----------------------------------------------------------------------------- */

struct ordered {
  uint8_t key[ORDER_KEY_BYTES];
  struct place place;
};

struct walk {
  struct plm_cluster_order *order;
  struct plm_corpus_writer *writer;
  void (*progress)(void *context, uint64_t done, uint64_t total);
  void *context;
  uint64_t done;
  struct plm_bytes document;
  uint8_t cluster[9]; /* the first bytes of the last key: split and cluster */
  uint32_t count;     /* of ahead */
  struct ordered ahead[READ_AHEAD];
};

static plm_status read_document(struct walk *walk, const struct place *place,
                                struct plm_error *error)
{
  const size_t size = (size_t)place->name_size + place->size;
  walk->document.size = 0;
  PLM_TRY(plm_bytes_reserve(&walk->document, size, error));
  while (walk->document.size < size) {
    const ssize_t got =
        pread(walk->order->file, walk->document.data + walk->document.size,
              size - walk->document.size, (off_t)(place->offset + walk->document.size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return plm_error_errno(error, "cannot read %s", walk->order->path);
    if (got == 0)
      return plm_error_set(error, PLM_IO, "%s became shorter while it was read", walk->order->path);
    walk->document.size += (size_t)got;
  }
  return PLM_OK;
}

/* Adds the documents of `ahead` to the writer. The kernel is first asked for all of them, so that a
 * disk can serve many requests at once. */
static plm_status write_ahead(struct walk *walk, struct plm_error *error)
{
  PLM_TRY(plm_stop_check("", error));
  for (uint32_t i = 0; i < walk->count; i++) {
    const struct place *place = &walk->ahead[i].place;
    (void)posix_fadvise(walk->order->file, (off_t)place->offset,
                        (off_t)place->name_size + place->size, POSIX_FADV_WILLNEED);
  }
  for (uint32_t i = 0; i < walk->count; i++) {
    const struct ordered *next = &walk->ahead[i];
    const enum plm_split split = (enum plm_split)next->key[0];
    PLM_TRY(read_document(walk, &next->place, error));
    if (walk->done == 0 || memcmp(walk->cluster, next->key, sizeof walk->cluster) != 0)
      PLM_TRY(plm_corpus_writer_begin_cluster(walk->writer, split, error));
    memcpy(walk->cluster, next->key, sizeof walk->cluster);
    PLM_TRY(plm_corpus_writer_add(
        walk->writer, split, (const char *)walk->document.data, next->place.name_size,
        walk->document.data + next->place.name_size, next->place.size, error));
    walk->done++;
  }
  walk->count = 0;
  if (walk->progress != NULL) walk->progress(walk->context, walk->done, walk->order->documents);
  return PLM_OK;
}

static plm_status take_ordered(void *context, const void *key, const void *value,
                               struct plm_error *error)
{
  struct walk *walk = context;
  struct ordered *next = &walk->ahead[walk->count++];
  memcpy(next->key, key, sizeof next->key);
  memcpy(&next->place, value, sizeof next->place);
  return walk->count == READ_AHEAD ? write_ahead(walk, error) : PLM_OK;
}

plm_status plm_cluster_order_write(struct plm_cluster_order *order,
                                   struct plm_corpus_writer *writer,
                                   void (*progress)(void *context, uint64_t done, uint64_t total),
                                   void *context, struct plm_error *error)
{
  PLM_TRY(flush(order, error));
  PLM_TRY(place_waiting(order, error));
  struct walk *walk = calloc(1, sizeof *walk);
  if (walk == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  *walk = (struct walk){.order = order, .writer = writer, .progress = progress, .context = context};
  plm_status status =
      plm_temporary_index_walk(order->index, TABLE_ORDER, take_ordered, walk, error);
  if (status == PLM_OK) status = write_ahead(walk, error);
  free(walk->document.data);
  free(walk);
  return status;
}
