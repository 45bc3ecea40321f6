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
};

/* The tables of the index. */
enum { TABLE_MEMBERS, TABLE_CLUSTERS, TABLE_ORDER, TABLES };

/* A record of TABLE_CLUSTERS has the hash of the representative as its key, and the number of the
 * cluster's first document as its value. Documents are numbered from 0 over all splits.
 *
 * A record of TABLE_ORDER has as its key 17 bytes, whose order is that of the documents: the split,
 * the first document of the cluster and the document itself, big-endian. Its value is a place. */
enum { ORDER_KEY_BYTES = 17 };

/* Where a document is in the file: its name, directly followed by its residues. */
struct place {
  uint64_t offset;
  uint32_t name_size, size;
};

struct plm_cluster_order {
  struct plm_temporary_index *index;
  struct plm_cluster_table *table;
  char path[PLM_PATH_SIZE];
  int file;
  uint64_t documents;
  uint64_t file_bytes; /* with those in `pending` */
  struct plm_bytes pending;
};

plm_status plm_cluster_order_open(const char *directory, const char *path, bool strict,
                                  struct plm_cluster_order **order, struct plm_error *error)
{
  *order = NULL;
  struct plm_cluster_order *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  opened->file = -1;
  plm_status status = plm_temporary_index_open(directory, TABLES, &opened->index, error);
  if (status == PLM_OK)
    status =
        plm_cluster_table_open(path, strict, opened->index, TABLE_MEMBERS, &opened->table, error);
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
  plm_cluster_table_close(order->table);
  plm_temporary_index_close(order->index);
  free(order);
}

const struct plm_cluster_counts *plm_cluster_order_counts(const struct plm_cluster_order *order)
{
  return plm_cluster_table_counts(order->table);
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

/* The number of the first document of the cluster, which is this one if the cluster is new. */
static plm_status first_of_cluster(struct plm_cluster_order *order, uint64_t representative,
                                   uint64_t *first, struct plm_error *error)
{
  bool found;
  PLM_TRY(plm_temporary_index_get(order->index, TABLE_CLUSTERS, &representative,
                                  sizeof representative, first, sizeof *first, &found, error));
  if (found) return PLM_OK;
  *first = order->documents;
  return plm_temporary_index_put(order->index, TABLE_CLUSTERS, &representative,
                                 sizeof representative, first, sizeof *first, error);
}

plm_status plm_cluster_order_add(struct plm_cluster_order *order,
                                 const struct plm_split_rule *splits, const char *name,
                                 size_t name_size, const uint8_t *residues, size_t size,
                                 struct plm_error *error)
{
  const struct place place = {order->file_bytes, (uint32_t)name_size, (uint32_t)size};
  uint64_t representative, first;
  uint8_t key[ORDER_KEY_BYTES];
  PLM_TRY(plm_cluster_table_find(order->table, name, name_size, &representative, error));
  PLM_TRY(first_of_cluster(order, representative, &first, error));
  const uint64_t words[2] = {htobe64(first), htobe64(order->documents)};
  key[0] = (uint8_t)plm_split_rule_choose(splits, representative);
  memcpy(key + 1, words, sizeof words);
  PLM_TRY(plm_temporary_index_put(order->index, TABLE_ORDER, key, sizeof key, &place, sizeof place,
                                  error));
  order->documents++;
  PLM_TRY(append(order, name, name_size, error));
  PLM_TRY(append(order, residues, size, error));
  return order->pending.size >= WRITE_BYTES ? flush(order, error) : PLM_OK;
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
