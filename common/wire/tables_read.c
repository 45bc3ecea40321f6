/* PROOF's payload as a consumer reads it: nothing is believed before a path proves it. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/tables.h"
#include "common/wire/wire_bytes.h"

enum { LEAF_BYTES = 4 + PLM_PROOF_SHORT_BYTES, SIZE_BYTES = 4, SUM_BYTES = 8 };

/* ---- memory ------------------------------------------------------------------------------- */

void plm_tables_deinit(struct plm_tables *tables)
{
  free(tables->begin);
  free(tables->numbers);
  free(tables->lengths);
  free(tables->digests);
  free(tables->labels);
  *tables = (struct plm_tables){0};
}

static uint32_t document_count(const struct plm_tables *tables)
{
  return tables->groups == 0 ? 0 : tables->begin[tables->groups];
}

/* Makes *array hold `count` elements. */
static bool tables_read_grow(void **array, size_t count, size_t size)
{
  void *grown = realloc(*array, count * size);
  if (grown != NULL) *array = grown;
  return grown != NULL;
}

static plm_status tables_read_reserve(struct plm_tables *tables, size_t groups,
                                      struct plm_error *error)
{
  const size_t documents = groups * PLM_GROUP_DOCUMENTS;
  if (groups > tables->group_capacity) {
    if (!tables_read_grow((void **)&tables->begin, groups + 1, sizeof *tables->begin))
      goto no_memory;
    tables->group_capacity = groups;
  }
  if (documents > tables->document_capacity) {
    if (!tables_read_grow((void **)&tables->numbers, documents, sizeof *tables->numbers) ||
        !tables_read_grow((void **)&tables->lengths, documents, sizeof *tables->lengths) ||
        !tables_read_grow((void **)&tables->digests, documents, sizeof *tables->digests) ||
        !tables_read_grow((void **)&tables->labels, documents, sizeof *tables->labels))
      goto no_memory;
    tables->document_capacity = documents;
  }
  return PLM_OK;
no_memory:
  return plm_error_set(error, PLM_NO_MEMORY, "no memory for the tables of %zu groups", groups);
}

plm_status plm_tables_group(const void *context, uint64_t epoch, uint32_t index, uint64_t group,
                            struct plm_plan_group *out, struct plm_error *error)
{
  const struct plm_tables *tables = context;
  const uint32_t begin = tables->begin[index];
  (void)epoch;
  (void)group;
  (void)error;
  PLM_ASSERT(index < tables->groups);
  out->count = tables->begin[index + 1] - begin;
  memcpy(out->numbers, tables->numbers + begin, out->count * sizeof *out->numbers);
  memcpy(out->lengths, tables->lengths + begin, out->count * sizeof *out->lengths);
  return PLM_OK;
}

/* ---- bytes -------------------------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *bytes)
{
  uint32_t value;
  memcpy(&value, bytes, sizeof value);
  return le32toh(value);
}

static uint64_t read_u64(const uint8_t *bytes)
{
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
  return le64toh(value);
}

static plm_status short_payload(struct plm_error *error)
{
  return plm_error_set(error, PLM_PROTOCOL, "PROOF ends early");
}

static plm_status read_path(struct wire_reader *in, enum plm_proof_kind kind,
                            const struct plm_proof_range *range, struct plm_proof_node *path,
                            size_t *size, struct plm_error *error)
{
  const size_t node = PLM_PROOF_HASH_BYTES + (kind == PLM_PROOF_SUMS ? SUM_BYTES : 0);
  *size = plm_proof_path_size(range);
  const uint8_t *bytes = wire_take(in, *size * node);
  if (bytes == NULL) return short_payload(error);
  for (size_t i = 0; i < *size; i++, bytes += node) {
    memcpy(path[i].hash, bytes, PLM_PROOF_HASH_BYTES);
    path[i].sum = kind == PLM_PROOF_SUMS ? read_u64(bytes + PLM_PROOF_HASH_BYTES) : 0;
  }
  return PLM_OK;
}

/* ---- a group of the plan ------------------------------------------------------------------- */

/* What is read of one group of the plan. */
struct group {
  uint32_t count; /* documents that are needed */
  uint64_t *numbers;
  uint32_t *lengths;
  struct plm_proof_digest *digests, *labels;
  bool labelled;
  uint32_t proven; /* of the needed documents, from the first */
  struct plm_known_groups *known;
  const uint8_t *whole; /* the leaves of the whole group of documents that was read last, or NULL */
};

static struct plm_proof_node root_of(const uint8_t hash[PLM_PROOF_HASH_BYTES], uint64_t sum)
{
  struct plm_proof_node root = {.sum = sum};
  memcpy(root.hash, hash, sizeof root.hash);
  return root;
}

/* Reads the sizes of a group of clusters, and draws its documents. */
static plm_status read_clusters(struct wire_reader *in, const struct plm_tables_window *of,
                                const struct plm_proof_split *split, uint64_t group,
                                struct group *out, struct plm_error *error)
{
  const struct plm_proof_range range = {group, group + 1, plm_corpus_group_count(split->clusters)};
  const struct plm_proof_node root = root_of(split->cluster_root, split->sum);
  struct plm_proof_node path[PLM_PROOF_PATH];
  uint32_t sizes[PLM_GROUP_DOCUMENTS];
  uint64_t before;
  size_t nodes;
  out->count = plm_corpus_group_documents(split->clusters, group);
  const uint8_t *bytes = wire_take(in, (size_t)out->count * SIZE_BYTES);
  if (bytes == NULL) return short_payload(error);
  for (uint32_t i = 0; i < out->count; i++) sizes[i] = read_u32(bytes + (size_t)i * SIZE_BYTES);
  PLM_TRY(read_path(in, PLM_PROOF_SUMS, &range, path, &nodes, error));
  const struct plm_proof_node node = plm_proof_clusters(sizes, out->count);
  bool valid = plm_proof_verify(PLM_PROOF_SUMS, &root, &range, &node, path, nodes, &before);
  for (uint32_t i = 0; i < out->count; i++) valid &= sizes[i] != 0;
  if (!valid)
    return plm_error_set(error, PLM_CORRUPT,
                         "the sizes of clusters %llu.. are not those that the corpus's fingerprint "
                         "proves",
                         (unsigned long long)(group * PLM_GROUP_DOCUMENTS));
  plm_plan_draw_members(of->plan, of->epoch, group, sizes, out->count, before, out->numbers);
  return PLM_OK;
}

/* The number of needed documents, from out->proven on, that are in a group of documents. */
static uint32_t needed_in(const struct group *out, uint64_t group)
{
  uint32_t end = out->proven;
  while (end < out->count && out->numbers[end] / PLM_GROUP_DOCUMENTS == group) end++;
  return end - out->proven;
}

size_t plm_tables_leaf_bytes(bool labelled)
{
  return LEAF_BYTES + (labelled ? PLM_PROOF_SHORT_BYTES : 0);
}

/* Reads a leaf, whose label record is empty in a corpus without labels. */
static const uint8_t *read_leaf(const uint8_t *bytes, bool labelled, uint32_t *length,
                                struct plm_proof_digest *sequence, struct plm_proof_digest *label)
{
  *length = read_u32(bytes);
  memcpy(sequence->bytes, bytes + 4, sizeof sequence->bytes);
  if (labelled) memcpy(label->bytes, bytes + LEAF_BYTES, sizeof label->bytes);
  return bytes + plm_tables_leaf_bytes(labelled);
}

/* Kind 1: reads the leaves of a whole group, and computes its root. */
static plm_status read_whole(struct wire_reader *in, uint64_t documents, uint64_t group,
                             struct group *out, struct plm_proof_node *root,
                             struct plm_error *error)
{
  const uint32_t count = plm_corpus_group_documents(documents, group),
                 needed = needed_in(out, group);
  uint32_t lengths[PLM_GROUP_DOCUMENTS];
  struct plm_proof_digest digests[PLM_PROOF_GROUP], labels[PLM_PROOF_GROUP];
  const size_t size = count * plm_tables_leaf_bytes(out->labelled);
  const uint8_t *bytes = out->whole = wire_take(in, size);
  if (bytes == NULL) return short_payload(error);
  for (uint32_t i = 0; i < count; i++)
    bytes = read_leaf(bytes, out->labelled, &lengths[i], &digests[i], &labels[i]);
  if (!plm_known_groups_find(out->known, group, out->whole, size, root))
    *root = plm_proof_group(lengths, digests, out->labelled ? labels : NULL, count);
  for (uint32_t i = out->proven; i < out->proven + needed; i++) {
    const uint64_t at = out->numbers[i] % PLM_GROUP_DOCUMENTS;
    out->lengths[i] = lengths[at];
    out->digests[i] = digests[at];
    if (out->labelled) out->labels[i] = labels[at];
  }
  out->proven += needed;
  return PLM_OK;
}

/* Kind 2: reads the needed leaves of a group, each with a path. All must give the same root. */
static plm_status read_leaves(struct wire_reader *in, uint64_t documents, uint64_t group,
                              struct group *out, struct plm_proof_node *root,
                              struct plm_error *error)
{
  const uint32_t count = plm_corpus_group_documents(documents, group),
                 end = out->proven + needed_in(out, group);
  struct plm_proof_digest label = plm_proof_label(NULL, 0);
  if (end == out->proven)
    return plm_error_set(error, PLM_PROTOCOL, "PROOF has leaves of group %llu, which has none",
                         (unsigned long long)group);
  for (uint32_t i = out->proven; i < end; i++) {
    const uint64_t at = out->numbers[i] % PLM_GROUP_DOCUMENTS;
    const struct plm_proof_range range = {at, at + 1, count};
    struct plm_proof_node path[PLM_PROOF_PATH];
    size_t nodes;
    const uint8_t *bytes = wire_take(in, plm_tables_leaf_bytes(out->labelled));
    if (bytes == NULL) return short_payload(error);
    (void)read_leaf(bytes, out->labelled, &out->lengths[i], &out->digests[i], &label);
    if (out->labelled) out->labels[i] = label;
    PLM_TRY(read_path(in, PLM_PROOF_PLAIN, &range, path, &nodes, error));
    const struct plm_proof_digest leaf = plm_proof_leaf(out->lengths[i], &out->digests[i], &label);
    const struct plm_proof_node node = plm_proof_leaf_node(&leaf);
    struct plm_proof_node above;
    const bool valid = plm_proof_root(PLM_PROOF_PLAIN, &range, &node, path, nodes, &above, NULL);
    PLM_ASSERT(valid); /* it has no sums, and the path was read for this range */
    if (i > out->proven && memcmp(above.hash, root->hash, sizeof above.hash) != 0)
      return plm_error_set(error, PLM_CORRUPT,
                           "document %llu is not what the corpus's fingerprint proves",
                           (unsigned long long)out->numbers[i]);
    *root = above;
  }
  out->proven = end;
  return PLM_OK;
}

static plm_status read_group(struct wire_reader *in, uint64_t documents, uint64_t group,
                             struct group *out, struct plm_proof_node *root,
                             struct plm_error *error)
{
  const uint8_t *kind = wire_take(in, 1);
  if (kind == NULL) return short_payload(error);
  if (*kind == (out->labelled ? PLM_TABLES_LABELLED_WHOLE : PLM_TABLES_WHOLE))
    return read_whole(in, documents, group, out, root, error);
  if (*kind == (out->labelled ? PLM_TABLES_LABELLED_LEAVES : PLM_TABLES_LEAVES))
    return read_leaves(in, documents, group, out, root, error);
  if (*kind != PLM_TABLES_ROOT || needed_in(out, group) > 0)
    return plm_error_set(error, PLM_PROTOCOL, "PROOF has kind %u for group %llu", *kind,
                         (unsigned long long)group);
  const uint8_t *hash = wire_take(in, PLM_PROOF_HASH_BYTES);
  if (hash == NULL) return short_payload(error);
  *root = root_of(hash, 0);
  return PLM_OK;
}

/* Reads a span of groups of documents, and proves it. */
static plm_status read_span(struct wire_reader *in, const struct plm_proof_split *split,
                            struct group *out, struct plm_error *error)
{
  const uint64_t groups = plm_corpus_group_count(split->documents);
  const struct plm_proof_node root = root_of(split->root, 0);
  const uint32_t proven = out->proven;
  struct plm_proof_node path[PLM_PROOF_PATH];
  size_t nodes;
  const uint8_t *head = wire_take(in, 12);
  if (head == NULL) return short_payload(error);
  const uint64_t first = read_u64(head);
  const uint32_t count = read_u32(head + 8);
  /* It begins with a needed group, so that there are no more spans than documents. */
  if (count == 0 || first >= groups || count > groups - first ||
      first != out->numbers[proven] / PLM_GROUP_DOCUMENTS || count > in->left)
    return plm_error_set(error, PLM_PROTOCOL, "PROOF has a span of %u groups from %llu", count,
                         (unsigned long long)first);
  struct plm_proof_node *roots = malloc(count * sizeof *roots);
  if (roots == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a span of %u groups", count);
  const struct plm_proof_range range = {first, first + count, groups};
  plm_status status = PLM_OK;
  out->whole = NULL;
  for (uint32_t i = 0; i < count && status == PLM_OK; i++)
    status = read_group(in, split->documents, first + i, out, &roots[i], error);
  if (status == PLM_OK) status = read_path(in, PLM_PROOF_PLAIN, &range, path, &nodes, error);
  if (status == PLM_OK &&
      !plm_proof_verify(PLM_PROOF_PLAIN, &root, &range, roots, path, nodes, NULL))
    status = plm_error_set(error, PLM_CORRUPT,
                           "documents %llu.. are not what the corpus's fingerprint proves",
                           (unsigned long long)out->numbers[proven]);
  if (status == PLM_OK && count == 1 && out->whole != NULL)
    plm_known_groups_add(out->known, first, out->whole,
                         plm_corpus_group_documents(split->documents, first) *
                             plm_tables_leaf_bytes(out->labelled),
                         &roots[0]);
  free(roots);
  return status;
}

static plm_status read_plan_group(struct wire_reader *in, const struct plm_tables_window *of,
                                  const struct plm_proof_split *split, uint64_t group,
                                  struct group *out, struct plm_error *error)
{
  if (plm_plan_parameters(of->plan)->sampling == PLM_SAMPLING_CLUSTERS) {
    PLM_TRY(read_clusters(in, of, split, group, out, error));
  } else {
    out->count = plm_corpus_group_documents(split->documents, group);
    for (uint32_t i = 0; i < out->count; i++) out->numbers[i] = group * PLM_GROUP_DOCUMENTS + i;
  }
  out->proven = 0;
  while (out->proven < out->count) PLM_TRY(read_span(in, split, out, error));
  return PLM_OK;
}

/* The least bytes that the tables of these groups can have: one leaf for each document that is
 * needed. */
static size_t least_bytes(const struct plm_tables_window *of, const struct plm_proof_split *split,
                          const uint64_t *groups, uint32_t count)
{
  const bool clusters = plm_plan_parameters(of->plan)->sampling == PLM_SAMPLING_CLUSTERS;
  size_t needed = 0;
  for (uint32_t i = 0; i < count; i++)
    needed += plm_corpus_group_documents(clusters ? split->clusters : split->documents, groups[i]);
  return needed * plm_tables_leaf_bytes(of->labelled);
}

static plm_status read_groups(const struct plm_tables_window *of,
                              const struct plm_proof_split *split, const uint64_t *groups,
                              uint32_t count, struct wire_reader *in, struct plm_tables *tables,
                              struct plm_error *error)
{
  uint32_t begin = document_count(tables);
  if (in->left < least_bytes(of, split, groups, count)) return short_payload(error);
  PLM_TRY(tables_read_reserve(tables, (size_t)tables->groups + count, error));
  tables->begin[tables->groups] = begin;
  for (uint32_t i = 0; i < count; i++) {
    struct group out = {.numbers = tables->numbers + begin,
                        .lengths = tables->lengths + begin,
                        .digests = tables->digests + begin,
                        .labels = tables->labels + begin,
                        .labelled = of->labelled,
                        .known = tables->known};
    PLM_TRY(read_plan_group(in, of, split, groups[i], &out, error));
    begin += out.count;
    tables->begin[tables->groups + i + 1] = begin;
  }
  if (in->left != 0)
    return plm_error_set(error, PLM_PROTOCOL, "PROOF has %zu bytes too many", in->left);
  tables->groups += count;
  return PLM_OK;
}

plm_status plm_tables_read(const struct plm_tables_window *of, const struct plm_proof_split *split,
                           uint32_t count, const void *payload, size_t size,
                           struct plm_tables *tables, struct plm_error *error)
{
  struct wire_reader in = {payload, size, false};
  uint64_t *groups = plm_alloc(plm_plan_parameters(of->plan)->window_groups * sizeof *groups);
  const uint32_t all = plm_plan_window_groups(of->plan, of->epoch, of->window, groups);
  PLM_ASSERT(tables->groups <= all && count <= all - tables->groups);
  const plm_status status =
      read_groups(of, split, groups + tables->groups, count, &in, tables, error);
  free(groups);
  return status;
}
