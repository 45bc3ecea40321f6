/* Collecting documents, and giving them back cluster by cluster. */
#include "stages/ingest/cluster_order.h"

#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/numbers/hash.h"
#include "common/base/text/text.h"
#include "common/run/stop.h"
#include "stages/ingest/group_compressor.h"
#include "stages/ingest/temporary_file.h"
#include "stages/ingest/temporary_index.h"

enum {
  READ_AHEAD = 256,   /* documents that the kernel is asked to read ahead */
  TOGETHER = 1 << 18, /* documents whose places in the index are looked for together */
  UNMATCHED_SHOWN = 3,
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

/* Where a document is in the file: its name, directly followed by its residues, and these by its
 * label record, if it has one. */
struct place {
  uint64_t offset;
  uint32_t name_size, size;
  uint64_t label_size;
};

/* What is known of a document before it is placed: a record of the file of keys, which has them in
 * the order of ingest. */
struct arrival {
  uint64_t names[PLM_MEMBER_RULES]; /* hashes of its name by each rule */
  struct place place;
};

/* A document that is not in the index yet. */
struct waiting {
  struct arrival arrival;
  uint64_t representative; /* hash of the name of the cluster's representative */
  uint64_t first;          /* document of the cluster */
  uint64_t number;
  bool found; /* a line of the table names it */
};

struct plm_cluster_order {
  const struct plm_split_rule *splits;
  struct waiting *waiting; /* (TOGETHER) */
  size_t waiting_count;
  uint64_t without_member;
  double unmatched_limit;
  uint64_t matched[PLM_MEMBER_RULES]; /* documents that the table names by each rule */
  enum plm_member_rule rule;          /* the one that holds */
  struct plm_text unmatched;          /* the first names that the table lacks */
  int unmatched_shown;
  struct plm_temporary_index *index;
  struct plm_cluster_table *table;
  const char *table_path;               /* borrowed */
  struct plm_temporary_file file, keys; /* documents, and their arrivals */
  uint64_t documents;
};

plm_status plm_cluster_order_open(const char *directory, const char *path, bool strict,
                                  double unmatched_limit, const struct plm_split_rule *splits,
                                  struct plm_cluster_order **order, struct plm_error *error)
{
  *order = NULL;
  struct plm_cluster_order *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->file.descriptor = opened->keys.descriptor = -1;
  opened->table_path = path;
  opened->unmatched_limit = unmatched_limit;
  opened->splits = splits;
  plm_status status = plm_temporary_index_open(directory, TABLES, &opened->index, error);
  if (status == PLM_OK)
    status =
        plm_cluster_table_open(path, strict, opened->index, TABLE_MEMBERS, &opened->table, error);
  if (status == PLM_OK) {
    opened->waiting = malloc(TOGETHER * sizeof *opened->waiting);
    if (opened->waiting == NULL) status = plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  }
  if (status == PLM_OK)
    status = plm_temporary_file_open(directory, "documents", &opened->file, error);
  if (status == PLM_OK) status = plm_temporary_file_open(directory, "keys", &opened->keys, error);
  if (status != PLM_OK)
    plm_cluster_order_close(opened);
  else
    *order = opened;
  return status;
}

void plm_cluster_order_close(struct plm_cluster_order *order)
{
  if (order == NULL) return;
  plm_temporary_file_close(&order->file);
  plm_temporary_file_close(&order->keys);
  plm_text_deinit(&order->unmatched);
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

enum plm_member_rule plm_cluster_order_rule(const struct plm_cluster_order *order)
{
  return order->rule;
}

const char *plm_cluster_order_unmatched(const struct plm_cluster_order *order)
{
  return order->unmatched.data == NULL ? "" : order->unmatched.data;
}

/* ---- collecting ------------------------------------------------------------------------------ */

static int cluster_order_compare(uint64_t a, uint64_t b)
{
  return a < b ? -1 : a > b;
}

static int by_key(const void *left, const void *right, void *rule)
{
  const struct waiting *a = left, *b = right;
  const int r = *(const int *)rule;
  return cluster_order_compare(a->arrival.names[r], b->arrival.names[r]);
}

static int by_number(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  return cluster_order_compare(a->number, b->number);
}

static int by_representative(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  const int order = cluster_order_compare(a->representative, b->representative);
  return order != 0 ? order : cluster_order_compare(a->number, b->number);
}

static int by_cluster(const void *left, const void *right)
{
  const struct waiting *a = left, *b = right;
  const int order = cluster_order_compare(a->first, b->first);
  return order != 0 ? order : cluster_order_compare(a->number, b->number);
}

static void sort(struct plm_cluster_order *order, int (*by)(const void *, const void *))
{
  qsort(order->waiting, order->waiting_count, sizeof *order->waiting, by);
}

static void sort_by_key(struct plm_cluster_order *order, int rule)
{
  qsort_r(order->waiting, order->waiting_count, sizeof *order->waiting, by_key, &rule);
}

/* Counts the waiting documents that the table names by a rule. */
static plm_status count_matches(struct plm_cluster_order *order, int rule, uint64_t *count,
                                struct plm_error *error)
{
  sort_by_key(order, rule);
  *count = 0;
  for (size_t i = 0; i < order->waiting_count; i++) {
    bool found;
    PLM_TRY(
        plm_cluster_table_has(order->table, order->waiting[i].arrival.names[rule], &found, error));
    *count += found;
  }
  return PLM_OK;
}

/* Whether the rule gives one of the waiting documents another name than the rule before it. */
static bool differs(const struct plm_cluster_order *order, int rule)
{
  for (size_t i = 0; i < order->waiting_count; i++) {
    const uint64_t *names = order->waiting[i].arrival.names;
    if (names[rule] != names[rule - 1]) return true;
  }
  return false;
}

/* Writes the waiting documents to the file of keys, and counts those that the table names by each
 * rule. */
static plm_status put_aside(struct plm_cluster_order *order, struct plm_error *error)
{
  uint64_t count = 0;
  for (size_t i = 0; i < order->waiting_count; i++)
    PLM_TRY(plm_temporary_file_append(&order->keys, &order->waiting[i].arrival,
                                      sizeof(struct arrival), error));
  PLM_TRY(plm_temporary_file_flush(&order->keys, error));
  for (int rule = 0; rule < PLM_MEMBER_RULES; rule++) {
    if (rule == 0 || differs(order, rule)) PLM_TRY(count_matches(order, rule, &count, error));
    order->matched[rule] += count;
  }
  order->waiting_count = 0;
  return PLM_OK;
}

/* ---- placing ------------------------------------------------------------------------------------
 */

/* Keeps the names of the first documents that the table lacks. */
static plm_status name_unmatched(struct plm_cluster_order *order, struct plm_error *error)
{
  sort(order, by_number);
  for (size_t i = 0; i < order->waiting_count && order->unmatched_shown < UNMATCHED_SHOWN; i++) {
    const struct place *place = &order->waiting[i].arrival.place;
    char name[80];
    const size_t size = place->name_size < sizeof name ? place->name_size : sizeof name;
    if (order->waiting[i].found) continue;
    PLM_TRY(plm_temporary_file_read(&order->file, name, size, place->offset, error));
    plm_text_printf(&order->unmatched, "%s\"%.*s\"", order->unmatched_shown++ == 0 ? "" : ", ",
                    (int)size, name);
  }
  return PLM_OK;
}

/* Finds the representatives of the waiting documents. */
static plm_status find_representatives(struct plm_cluster_order *order, struct plm_error *error)
{
  const uint64_t before = order->without_member;
  sort_by_key(order, order->rule);
  for (size_t i = 0; i < order->waiting_count; i++) {
    struct waiting *next = &order->waiting[i];
    PLM_TRY(plm_cluster_table_find(order->table, next->arrival.names[order->rule],
                                   &next->representative, &next->found, error));
    if (next->found) continue;
    next->representative = next->arrival.names[PLM_MEMBER_WHOLE];
    order->without_member++;
  }
  if (order->without_member == before) return PLM_OK;
  return name_unmatched(order, error);
}

/* Finds the first document of each cluster, which is here if the cluster is new. */
static plm_status cluster_order_find_first(struct plm_cluster_order *order, struct plm_error *error)
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
  PLM_TRY(cluster_order_find_first(order, error));
  sort(order, by_cluster);
  for (size_t i = 0; i < order->waiting_count; i++) {
    const struct waiting *next = &order->waiting[i];
    const uint64_t words[2] = {htobe64(next->first), htobe64(next->number)};
    uint8_t key[ORDER_KEY_BYTES];
    key[0] = (uint8_t)plm_split_rule_choose(order->splits, next->representative);
    memcpy(key + 1, words, sizeof words);
    PLM_TRY(plm_temporary_index_put(order->index, TABLE_ORDER, key, sizeof key,
                                    &next->arrival.place, sizeof next->arrival.place, error));
  }
  order->waiting_count = 0;
  return PLM_OK;
}

/* Chooses the rule by which the table names most documents, and of equal ones the first. */
static void choose_rule(struct plm_cluster_order *order)
{
  for (int rule = 1; rule < PLM_MEMBER_RULES; rule++)
    if (order->matched[rule] > order->matched[order->rule])
      order->rule = (enum plm_member_rule)rule;
}

static plm_status check_unmatched(const struct plm_cluster_order *order, struct plm_error *error)
{
  const double share = (double)order->without_member / (double)order->documents;
  if (order->without_member == 0 || share <= order->unmatched_limit) return PLM_OK;
  plm_error_set(error, PLM_FORMAT, "%s does not name %llu of %llu sequences: %.250s%s",
                order->table_path, (unsigned long long)order->without_member,
                (unsigned long long)order->documents, plm_cluster_order_unmatched(order),
                order->without_member > UNMATCHED_SHOWN ? ", ..." : "");
  return plm_error_hint(
      error,
      "the table must come from the same sequences, with the names of their "
      "headers; --unclustered SHARE allows more than %g, and each is then a cluster "
      "of its own",
      order->unmatched_limit);
}

/* Reads the next waiting documents, from `number` on, from the file of keys. */
static plm_status read_arrivals(struct plm_cluster_order *order, uint64_t number,
                                struct plm_error *error)
{
  const size_t size = order->waiting_count * sizeof(struct arrival);
  struct arrival *arrivals = malloc(size);
  if (arrivals == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const plm_status status =
      plm_temporary_file_read(&order->keys, arrivals, size, number * sizeof(struct arrival), error);
  for (size_t i = 0; status == PLM_OK && i < order->waiting_count; i++)
    order->waiting[i] = (struct waiting){.arrival = arrivals[i], .number = number + i};
  free(arrivals);
  return status;
}

/* Places the documents of the file of keys. */
static plm_status place_all(struct plm_cluster_order *order, struct plm_error *error)
{
  choose_rule(order);
  for (uint64_t number = 0; number < order->documents;) {
    PLM_TRY(plm_stop_check("", error));
    const uint64_t left = order->documents - number;
    order->waiting_count = left < TOGETHER ? (size_t)left : TOGETHER;
    PLM_TRY(read_arrivals(order, number, error));
    number += order->waiting_count;
    PLM_TRY(place_waiting(order, error));
  }
  return check_unmatched(order, error);
}

plm_status plm_cluster_order_add(struct plm_cluster_order *order, const char *name,
                                 size_t name_size, const uint8_t *residues, size_t size,
                                 const uint8_t *labels, size_t label_size, struct plm_error *error)
{
  struct waiting *next = &order->waiting[order->waiting_count++];
  *next = (struct waiting){.arrival.place = {order->file.size, (uint32_t)name_size, (uint32_t)size,
                                             labels != NULL ? label_size : 0}};
  for (int rule = 0; rule < PLM_MEMBER_RULES; rule++) {
    size_t part_size;
    const char *part = plm_member_name((enum plm_member_rule)rule, name, name_size, &part_size);
    next->arrival.names[rule] = plm_hash64_bytes(part, part_size);
  }
  order->documents++;
  PLM_TRY(plm_temporary_file_append(&order->file, name, name_size, error));
  PLM_TRY(plm_temporary_file_append(&order->file, residues, size, error));
  if (labels != NULL) PLM_TRY(plm_temporary_file_append(&order->file, labels, label_size, error));
  return order->waiting_count == TOGETHER ? put_aside(order, error) : PLM_OK;
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
  const size_t size = (size_t)place->name_size + place->size + place->label_size;
  walk->document.size = 0;
  PLM_TRY(plm_bytes_reserve(&walk->document, size, error));
  PLM_TRY(
      plm_temporary_file_read(&walk->order->file, walk->document.data, size, place->offset, error));
  walk->document.size = size;
  return PLM_OK;
}

/* Adds the documents of `ahead` to the writer. The kernel is first asked for all of them, so that a
 * disk can serve many requests at once. */
static plm_status write_ahead(struct walk *walk, struct plm_error *error)
{
  PLM_TRY(plm_stop_check("", error));
  for (uint32_t i = 0; i < walk->count; i++) {
    const struct place *place = &walk->ahead[i].place;
    (void)posix_fadvise(walk->order->file.descriptor, (off_t)place->offset,
                        (off_t)place->name_size + place->size, POSIX_FADV_WILLNEED);
  }
  for (uint32_t i = 0; i < walk->count; i++) {
    const struct ordered *next = &walk->ahead[i];
    const enum plm_split split = (enum plm_split)next->key[0];
    PLM_TRY(read_document(walk, &next->place, error));
    if (walk->done == 0 || memcmp(walk->cluster, next->key, sizeof walk->cluster) != 0)
      PLM_TRY(plm_corpus_writer_begin_cluster(walk->writer, split, error));
    memcpy(walk->cluster, next->key, sizeof walk->cluster);
    if (next->place.label_size > 0)
      plm_corpus_writer_labels(walk->writer,
                               walk->document.data + next->place.name_size + next->place.size);
    PLM_TRY(plm_corpus_writer_add(
        walk->writer, split, (const char *)walk->document.data, next->place.name_size,
        walk->document.data + next->place.name_size, next->place.size, error));
    walk->done++;
  }
  walk->count = 0;
  if (walk->progress != NULL) walk->progress(walk->context, walk->done, walk->order->documents);
  return PLM_OK;
}

static plm_status on_ordered(void *context, const void *key, const void *value,
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
  PLM_TRY(plm_temporary_file_flush(&order->file, error));
  PLM_TRY(put_aside(order, error));
  PLM_TRY(place_all(order, error));
  struct walk *walk = plm_alloc_zeroed(1, sizeof *walk);
  *walk = (struct walk){.order = order, .writer = writer, .progress = progress, .context = context};
  plm_status status = plm_temporary_index_walk(order->index, TABLE_ORDER, on_ordered, walk, error);
  if (status == PLM_OK) status = write_ahead(walk, error);
  free(walk->document.data);
  free(walk);
  return status;
}
