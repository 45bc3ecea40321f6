/* The hash tree of a corpus: what ingest, readers and verification compute alike. */
#include <stdlib.h>
#include <string.h>

#include "common/corpus/corpus_format.h"
#include "common/corpus/corpus_handle.h"

enum {
  PART = 4096, /* residues of a long sequence that are translated at once; whole blocks */
  BATCH_RESIDUES = 16 * 1024, /* residues of sequences that are hashed at once */
};
_Static_assert(PART % PLM_PROOF_BLOCK == 0, "parts are whole blocks");
_Static_assert((int)PLM_GROUP_DOCUMENTS == (int)PLM_PROOF_GROUP, "groups are those of the tree");
_Static_assert(PLM_CLUSTERS_BLOCK % PLM_PROOF_GROUP == 0, "records hold whole groups of sizes");
_Static_assert(PLM_DIGESTS_BLOCK % PLM_GROUP_DOCUMENTS == 0, "records hold whole groups");
_Static_assert((int)PLM_SPLIT_COUNT == (int)PLM_PROOF_SPLITS, "splits are those of the tree");

bool plm_corpus_keeps_clusters(const struct plm_corpus_info *info)
{
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    if (info->splits[s].clusters != 0) return true;
  return false;
}

bool plm_corpus_is(const struct plm_corpus_info *info, struct plm_hash fingerprint)
{
  return plm_hash_equal(info->fingerprint, fingerprint) ||
         (plm_hash_known(info->upgraded_from) && plm_hash_equal(info->upgraded_from, fingerprint));
}

bool plm_corpus_has_labels(const struct plm_corpus_info *info)
{
  return info->format == PLM_CORPUS_FORMAT_LABELS;
}

bool plm_corpus_has_proof(const struct plm_corpus_info *info)
{
  return info->format == PLM_CORPUS_FORMAT || plm_corpus_has_labels(info);
}

struct plm_proof_split plm_corpus_proof_split(const struct plm_corpus_info *info,
                                              enum plm_split split)
{
  const struct plm_corpus_split *of = &info->splits[split];
  struct plm_proof_split proof = {.documents = of->documents,
                                  .clusters = of->clusters,
                                  .sum = of->clusters == 0 ? 0 : of->documents};
  memcpy(proof.root, of->root, sizeof proof.root);
  memcpy(proof.cluster_root, of->cluster_root, sizeof proof.cluster_root);
  return proof;
}

struct plm_hash plm_corpus_fingerprint(const struct plm_corpus_info *info)
{
  struct plm_proof_split splits[PLM_SPLIT_COUNT];
  for (int s = 0; s < PLM_SPLIT_COUNT; s++)
    splits[s] = plm_corpus_proof_split(info, (enum plm_split)s);
  return plm_proof_corpus(info->tokenizer == PLM_TOKENIZER_BYTE, splits,
                          plm_corpus_has_labels(info) ? &info->schema : NULL);
}

/* The hash of a sequence that is too long for a batch. */
static struct plm_proof_digest hash_long(const struct plm_translator *translator,
                                         const uint8_t *residues, size_t count)
{
  uint8_t tokens[2 * PART];
  struct plm_proof_stream stream;
  plm_proof_stream_begin(&stream, translator->tokenizer->token_bytes);
  while (count != 0) {
    const size_t part = count < PART ? count : PART;
    translator->residues(translator, residues, part, tokens);
    plm_proof_stream_add(&stream, tokens, part);
    residues += part;
    count -= part;
  }
  return plm_proof_stream_end(&stream);
}

/* Hashes the first sequences, as many as fit into a batch, at once. Returns their number, and in
 * *used their residues. */
static uint32_t hash_batch(const struct plm_translator *translator, const uint32_t *lengths,
                           uint32_t documents, const uint8_t *residues,
                           struct plm_proof_digest *digests, size_t *used)
{
  const uint32_t token_bytes = translator->tokenizer->token_bytes;
  uint8_t tokens[2 * BATCH_RESIDUES];
  struct plm_proof_part parts[PLM_GROUP_DOCUMENTS];
  uint32_t count = 0;
  *used = 0;
  for (; count < documents && lengths[count] <= BATCH_RESIDUES - *used; count++) {
    parts[count] = plm_proof_whole(tokens + *used * token_bytes, lengths[count]);
    *used += lengths[count];
  }
  if (count == 0) return 0;
  translator->residues(translator, residues, *used, tokens);
  plm_proof_parts(token_bytes, count, parts, digests);
  return count;
}

void plm_corpus_hash_sequences(const struct plm_translator *translator, const uint32_t *lengths,
                               uint32_t documents, const uint8_t *residues,
                               struct plm_proof_digest digests[PLM_GROUP_DOCUMENTS])
{
  PLM_ASSERT(documents <= PLM_GROUP_DOCUMENTS);
  for (uint32_t d = 0; d < documents;) {
    size_t used;
    uint32_t count =
        hash_batch(translator, lengths + d, documents - d, residues, digests + d, &used);
    if (count == 0) {
      digests[d] = hash_long(translator, residues, lengths[d]);
      used = lengths[d];
      count = 1;
    }
    residues += used;
    d += count;
  }
}

void plm_corpus_add_clusters(struct plm_proof_builder *builder, const uint32_t *sizes,
                             uint64_t count)
{
  for (uint64_t begin = 0; begin < count; begin += PLM_PROOF_GROUP) {
    const uint64_t left = count - begin;
    const struct plm_proof_node node = plm_proof_clusters(
        sizes + begin, left < PLM_PROOF_GROUP ? (uint32_t)left : PLM_PROOF_GROUP);
    plm_proof_add(builder, &node);
  }
}

bool plm_corpus_root(struct plm_proof_builder *builder, uint8_t root[PLM_PROOF_HASH_BYTES])
{
  struct plm_proof_node node = {.sum = 0};
  if (builder->count != 0 && !plm_proof_end(builder, &node)) return false;
  memcpy(root, node.hash, PLM_PROOF_HASH_BYTES);
  return true;
}
