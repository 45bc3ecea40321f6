/* Draws the documents of a split, hashes them, and packs them as a packer does. */
#include "tests/support/corpora/proven_split.h"

#include <stdlib.h>
#include <string.h>

#include "common/wire/data.h"
#include "common/wire/token_bits.h"
#include "tests/support/harness/must.h"

static uint64_t groups_of(uint64_t count)
{
  return (count + PLM_PROOF_GROUP - 1) / PLM_PROOF_GROUP;
}

static uint32_t in_group(uint64_t count, uint64_t group)
{
  const uint64_t left = count - group * PLM_PROOF_GROUP;
  return left < PLM_PROOF_GROUP ? (uint32_t)left : PLM_PROOF_GROUP;
}

static plm_status read_leaves(void *context, uint64_t group, uint32_t lengths[PLM_PROOF_GROUP],
                              struct plm_proof_digest digests[PLM_PROOF_GROUP],
                              struct plm_proof_digest *labels, struct plm_error *error)
{
  const struct proven_split *made = context;
  (void)error;
  memcpy(lengths, made->lengths + group * PLM_PROOF_GROUP,
         in_group(made->split.documents, group) * sizeof *lengths);
  memcpy(digests, made->digests + group * PLM_PROOF_GROUP,
         in_group(made->split.documents, group) * sizeof *digests);
  if (labels != NULL)
    memcpy(labels, made->label_digests + group * PLM_PROOF_GROUP,
           in_group(made->split.documents, group) * sizeof *labels);
  return PLM_OK;
}

static plm_status read_sizes(void *context, uint64_t group, const uint32_t **sizes,
                             struct plm_error *error)
{
  const struct proven_split *made = context;
  (void)error;
  *sizes = made->clusters + group * PLM_PROOF_GROUP;
  return PLM_OK;
}

static void hash_labels(struct proven_split *made)
{
  if (made->schema == NULL) return;
  made->label_digests = must(malloc(made->split.documents * sizeof *made->label_digests));
  for (uint64_t d = 0; d < made->split.documents; d++) {
    uint8_t *record = proven_split_record(made, d);
    made->label_digests[d] =
        plm_proof_label(record, plm_label_record_size(made->schema, made->lengths[d]));
    free(record);
  }
}

static struct plm_proof_tree *tree_of(enum plm_proof_kind kind, struct plm_proof_node *nodes,
                                      uint64_t count)
{
  struct plm_proof_tree *tree;
  PLM_ASSERT(plm_proof_tree_open(kind, nodes, count, &tree, NULL) == PLM_OK);
  free(nodes);
  return tree;
}

static void open_documents(struct proven_split *made)
{
  const uint64_t groups = groups_of(made->split.documents);
  struct plm_proof_node *nodes = must(malloc(groups * sizeof *nodes));
  made->digests = must(malloc(made->split.documents * sizeof *made->digests));
  for (uint64_t d = 0; d < made->split.documents; d++) {
    void *tokens = proven_split_tokens(made, d);
    made->digests[d] = plm_proof_sequence(made->tokenizer->token_bytes, tokens, made->lengths[d]);
    free(tokens);
  }
  hash_labels(made);
  for (uint64_t g = 0; g < groups; g++) {
    const uint64_t first = g * PLM_PROOF_GROUP;
    nodes[g] = plm_proof_group(made->lengths + first, made->digests + first,
                               made->schema != NULL ? made->label_digests + first : NULL,
                               in_group(made->split.documents, g));
  }
  made->input.groups = tree_of(PLM_PROOF_PLAIN, nodes, groups);
  memcpy(made->split.root, plm_proof_tree_root(made->input.groups)->hash, PLM_PROOF_HASH_BYTES);
}

static void open_clusters(struct proven_split *made, const struct known_split *of)
{
  const uint64_t groups = groups_of(of->cluster_count);
  struct plm_proof_node *nodes = must(malloc(groups * sizeof *nodes));
  for (uint64_t g = 0; g < groups; g++)
    nodes[g] =
        plm_proof_clusters(of->clusters + g * PLM_PROOF_GROUP, in_group(of->cluster_count, g));
  struct plm_proof_tree *tree = tree_of(PLM_PROOF_SUMS, nodes, groups);
  made->input.clusters_tree = tree;
  made->split.clusters = of->cluster_count;
  made->split.sum = plm_proof_tree_root(tree)->sum;
  memcpy(made->split.cluster_root, plm_proof_tree_root(tree)->hash, PLM_PROOF_HASH_BYTES);
}

void proven_split_open(struct proven_split *made, enum plm_tokenizer_kind tokenizer, uint32_t seed,
                       const struct known_split *of)
{
  proven_split_open_labelled(made, tokenizer, seed, of, NULL);
}

void proven_split_open_labelled(struct proven_split *made, enum plm_tokenizer_kind tokenizer,
                                uint32_t seed, const struct known_split *of,
                                const struct plm_label_schema *schema)
{
  *made = (struct proven_split){.tokenizer = plm_tokenizer_of(tokenizer),
                                .seed = seed,
                                .split = {.documents = of->documents},
                                .lengths = of->lengths,
                                .clusters = of->clusters,
                                .schema = schema};
  made->input = (struct plm_tables_input){.documents = of->documents,
                                          .cluster_count = of->cluster_count,
                                          .labelled = schema != NULL,
                                          .read = read_leaves,
                                          .sizes = read_sizes,
                                          .context = made};
  open_documents(made);
  if (of->clusters != NULL) open_clusters(made, of);
}

void proven_split_close(struct proven_split *made)
{
  plm_proof_tree_close((struct plm_proof_tree *)made->input.groups);
  plm_proof_tree_close((struct plm_proof_tree *)made->input.clusters_tree);
  free(made->digests);
  free(made->label_digests);
}

void *proven_split_tokens(const struct proven_split *made, uint64_t document)
{
  const size_t count = made->lengths[document], bytes = made->tokenizer->token_bytes;
  uint8_t *tokens = must(malloc(count * bytes + 1));
  for (size_t i = 0; i < count; i++) {
    const uint32_t id = 4 + (made->seed + (uint32_t)document * 7 + (uint32_t)(i * i / 5)) % 20;
    memset(tokens + i * bytes, 0, bytes);
    tokens[i * bytes] = (uint8_t)id;
  }
  return tokens;
}

uint8_t *proven_split_record(const struct proven_split *made, uint64_t document)
{
  const uint32_t residues = made->lengths[document];
  const uint64_t draw = document * 7 + made->seed;
  uint8_t *record = must(malloc(plm_label_record_size(made->schema, residues)));
  plm_label_record_clear(made->schema, residues, record);
  if (draw % 5 == 0) return record; /* all labels are missing */
  uint8_t *at[5];
  for (uint32_t i = 0; i < 5; i++)
    at[i] = record + plm_label_record_offset(made->schema, i, residues);
  plm_label_put_number(at[0], (double)draw / 3);
  plm_label_put_class(at[1], (int32_t)(draw % 3));
  for (uint32_t i = 0; i < residues; i++)
    plm_label_put_residue(at[2], i, (int32_t)((draw + i) % 4) - 1);
  plm_label_put_one_of(at[3], (int32_t)(draw % 9));
  plm_label_put_class(at[4], (int32_t)(draw % 2));
  return record;
}

static void put_token(const struct plm_tokenizer *tokenizer, uint8_t *tokens, uint64_t at,
                      uint16_t id)
{
  const uint8_t bytes[2] = {(uint8_t)id, (uint8_t)(id >> 8)};
  memcpy(tokens + at * tokenizer->token_bytes, bytes, tokenizer->token_bytes);
}

static struct plm_proof_tree *blocks_of(const struct plm_tokenizer *tokenizer, const void *tokens,
                                        uint64_t count)
{
  const uint64_t blocks = plm_proof_block_count(count);
  struct plm_proof_node *nodes = must(malloc(blocks * sizeof *nodes));
  plm_proof_block_nodes(tokenizer->token_bytes, &(struct plm_proof_run){tokens, count, nodes}, 1);
  return tree_of(PLM_PROOF_PLAIN, nodes, blocks);
}

/* Writes a document into a chunk's tokens, and its evidence. */
static void put_document(const struct proven_split *made, const struct plm_chunk_document *document,
                         uint8_t *chunk, struct plm_data_evidence *evidence)
{
  const struct plm_tokenizer *tokenizer = made->tokenizer;
  const size_t bytes = tokenizer->token_bytes;
  struct plm_data_piece piece;
  uint8_t *tokens = proven_split_tokens(made, document->number);
  uint64_t at = document->start;
  plm_data_piece(document, &piece);
  if (piece.has_cls) put_token(tokenizer, chunk, at++, tokenizer->cls);
  memcpy(chunk + at * bytes, tokens + piece.begin * bytes, (piece.end - piece.begin) * bytes);
  if (piece.has_eos) put_token(tokenizer, chunk, at + piece.end - piece.begin, tokenizer->eos);
  if (!piece.whole) {
    struct plm_proof_tree *tree = blocks_of(tokenizer, tokens, document->residues);
    plm_data_write_evidence(tokenizer, document, tokens, tree, evidence);
    plm_proof_tree_close(tree);
  }
  free(tokens);
}

/* Writes the label records of a chunk. Returns the end. */
static uint8_t *put_labels(const struct proven_split *made, const struct plm_window *window,
                           uint32_t chunk, uint8_t *at)
{
  for (uint32_t i = window->chunk_begin[chunk]; i < window->chunk_begin[chunk + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    const size_t size = plm_label_record_size(made->schema, document->residues);
    uint8_t *record = proven_split_record(made, document->number);
    memcpy(at, record, size);
    at += size;
    free(record);
  }
  return at;
}

uint8_t *proven_split_chunks(const struct proven_split *made, const struct plm_window *window,
                             uint32_t max_length, const uint64_t *offset)
{
  const struct plm_tokenizer *tokenizer = made->tokenizer;
  uint8_t *payload = must(malloc(offset[window->chunks] + 1));
  for (uint32_t c = 0; c < window->chunks; c++) {
    const uint64_t count = plm_data_extent(max_length, window, c).tokens;
    uint8_t *tokens = must(malloc((size_t)max_length * tokenizer->token_bytes));
    struct plm_data_evidence evidence = {.chunk = payload + offset[c],
                                         .at = max_length,
                                         .path = payload + offset[c] +
                                                 plm_token_bits_size(tokenizer, count)};
    plm_token_bits_begin(tokenizer, count, payload + offset[c]);
    for (uint32_t i = 0; i < max_length; i++) put_token(tokenizer, tokens, i, tokenizer->pad);
    for (uint32_t i = window->chunk_begin[c]; i < window->chunk_begin[c + 1]; i++)
      put_document(made, &window->documents[i], tokens, &evidence);
    PLM_ASSERT(evidence.at == count);
    plm_token_bits_pack(tokenizer, tokens, 0, max_length, payload + offset[c]);
    uint8_t *end =
        made->schema == NULL ? evidence.path : put_labels(made, window, c, evidence.path);
    PLM_ASSERT(end == payload + offset[c + 1]);
    free(tokens);
  }
  return payload;
}

struct plm_proof_digest *proven_split_digests(const struct proven_split *made,
                                              const struct plm_window *window)
{
  struct plm_proof_digest *digests = must(malloc((window->document_count + 1) * sizeof *digests));
  for (uint32_t i = 0; i < window->document_count; i++)
    digests[i] = made->digests[window->documents[i].number];
  return digests;
}
