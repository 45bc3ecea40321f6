/* DATA's payload: windows with what proves them, and every damage of it. */
#include "common/wire/data.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire/message.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/corpora/proven_split.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/must.h"

/* ---- a window ----------------------------------------------------------------------------- */

/* A planned window, its payload, and what a consumer knows. */
struct scene {
  struct proven_split split;
  struct plm_plan *plan;
  struct plm_window window;
  struct plm_data_known known;
  uint64_t *offset;
  struct plm_proof_digest *digests, *labels; /* labels: NULL without a schema */
  uint8_t *payload;
  struct plm_data_scratch scratch;
};

static void scene_open_labelled(struct scene *scene, const struct plm_plan_parameters *p,
                                const uint32_t *lengths, uint64_t documents,
                                const struct plm_label_schema *schema)
{
  const struct known_split of = {.lengths = lengths, .documents = documents};
  *scene = (struct scene){0};
  proven_split_open_labelled(&scene->split, p->tokenizer, 3, &of, schema);
  scene->plan = known_split_plan(&of, p);
  assert_int_equal(known_split_window(&of, scene->plan, 0, 0, &scene->window, NULL), PLM_OK);
  scene->offset = must(malloc((scene->window.chunks + 1) * sizeof *scene->offset));
  plm_data_layout(scene->split.tokenizer, p->max_length, schema, &scene->window, scene->offset);
  scene->digests = proven_split_digests(&scene->split, &scene->window);
  scene->payload = proven_split_chunks(&scene->split, &scene->window, p->max_length, scene->offset);
  scene->known = (struct plm_data_known){.tokenizer = scene->split.tokenizer,
                                         .max_length = p->max_length,
                                         .window = &scene->window,
                                         .digests = scene->digests,
                                         .offset = scene->offset,
                                         .schema = schema};
  if (schema == NULL) return;
  scene->labels = must(malloc((scene->window.document_count + 1) * sizeof *scene->labels));
  for (uint32_t i = 0; i < scene->window.document_count; i++)
    scene->labels[i] = scene->split.label_digests[scene->window.documents[i].number];
  scene->known.labels = scene->labels;
}

static void scene_open(struct scene *scene, const struct plm_plan_parameters *p,
                       const uint32_t *lengths, uint64_t documents)
{
  scene_open_labelled(scene, p, lengths, documents, NULL);
}

static void scene_close(struct scene *scene)
{
  plm_data_scratch_deinit(&scene->scratch);
  free(scene->payload);
  free(scene->digests);
  free(scene->labels);
  free(scene->offset);
  plm_window_deinit(&scene->window);
  plm_plan_close(scene->plan);
  proven_split_close(&scene->split);
}

/* Checks a copy of chunks [first, first + count) that has exactly their bytes. */
static plm_status check(struct scene *scene, uint32_t first, uint32_t count,
                        struct plm_error *error)
{
  const size_t size = scene->offset[first + count] - scene->offset[first];
  uint8_t *exact = must(malloc(size + (size == 0)));
  memcpy(exact, scene->payload + scene->offset[first], size);
  const plm_status status =
      plm_data_check(&scene->known, first, count, exact, size, &scene->scratch, error);
  free(exact);
  return status;
}

static struct plm_plan_parameters parameters_of(enum plm_tokenizer_kind tokenizer,
                                                enum plm_truncate truncate, uint32_t max_length)
{
  return (struct plm_plan_parameters){.seed = 5,
                                      .max_length = max_length,
                                      .alignment = 4,
                                      .window_groups = 2,
                                      .packing = PLM_PACKING_BEST_FIT,
                                      .truncate = truncate,
                                      .tokenizer = tokenizer,
                                      .shuffle = true};
}

/* Whole documents, and pieces at the beginning, in the middle and at the end of longer ones, one of
 * them only <eos>. */
static const uint32_t few[] = {3, 20, 62, 63, 126, 127, 600, 1500, 0, 11};
enum { FEW = sizeof few / sizeof *few };

static void each_range_of_chunks_is_checked(void **state)
{
  (void)state;
  for (int way = 0; way < 2 * 3; way++) {
    const struct plm_plan_parameters p =
        parameters_of((enum plm_tokenizer_kind)(way % 2), (enum plm_truncate)(way / 2), 64);
    struct scene scene;
    struct plm_error error = {0};
    scene_open(&scene, &p, few, FEW);
    const uint32_t chunks = scene.window.chunks;
    for (uint32_t first = 0; first < chunks; first++)
      for (uint32_t count = 1; count <= chunks - first; count++)
        if (check(&scene, first, count, &error) != PLM_OK)
          fail_msg("way %d, %u chunks from %u: %s", way, count, first, error.what);
    scene_close(&scene);
  }
}

/* Any chunk of a document with 255 blocks, so that paths are long. */
static void long_documents_are_checked(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {255 * 512 - 7, 2, 1400};
  for (int way = 0; way < 2 * 3; way++) {
    const struct plm_plan_parameters p =
        parameters_of((enum plm_tokenizer_kind)(way % 2), (enum plm_truncate)(way / 2), 8192);
    struct scene scene;
    struct plm_error error = {0};
    scene_open(&scene, &p, lengths, 3);
    for (uint32_t c = 0; c < scene.window.chunks; c++) {
      if (check(&scene, c, 1, &error) != PLM_OK) fail_msg("way %d: %s", way, error.what);
      assert_true(scene.offset[c + 1] - scene.offset[c] <= plm_data_chunk_most(&p));
    }
    scene_close(&scene);
  }
}

/* The bits of a token in the payload. */
static size_t bits_of(const struct scene *scene)
{
  return scene->known.tokenizer->token_bytes == 1 ? 5 : 16;
}

enum { PADDING = -1, AFTER = -2 };

/* The document, padding, or zeros after the tokens that a bit of a chunk belongs to. */
static int64_t owner_of(const struct scene *scene, uint32_t chunk, size_t bit)
{
  const struct plm_window *window = &scene->window;
  const uint64_t all = plm_data_extent(scene->known.max_length, window, chunk).tokens;
  const size_t token = bit / bits_of(scene);
  uint64_t evidence = scene->known.max_length;
  size_t path = (all * bits_of(scene) + 7) / 8;
  for (uint32_t i = window->chunk_begin[chunk]; i < window->chunk_begin[chunk + 1]; i++) {
    const struct plm_chunk_document *document = &window->documents[i];
    struct plm_data_piece piece;
    plm_data_piece(document, &piece);
    if (token >= document->start && token < document->start + document->tokens)
      return (int64_t)document->number;
    if (token >= evidence && token < evidence + piece.before + piece.after)
      return (int64_t)document->number;
    if (bit / 8 >= path && bit / 8 < path + 32 * piece.path) return (int64_t)document->number;
    evidence += piece.before + piece.after;
    path += 32 * piece.path;
  }
  return token < scene->known.max_length ? PADDING : AFTER;
}

/* Records of residues and of classes may have an odd size. */
static void labels_are_checked(void **state)
{
  (void)state;
  struct plm_label_schema schema;
  label_schema_make(&schema);
  for (int way = 0; way < 2 * 3; way++) {
    const struct plm_plan_parameters p =
        parameters_of((enum plm_tokenizer_kind)(way % 2), (enum plm_truncate)(way / 2), 64);
    struct scene scene;
    struct plm_error error = {0};
    scene_open_labelled(&scene, &p, few, FEW, &schema);
    const uint32_t chunks = scene.window.chunks;
    if (check(&scene, 0, chunks, &error) != PLM_OK) fail_msg("way %d: %s", way, error.what);
    for (uint32_t c = 0; c < chunks; c++) {
      uint64_t at =
          scene.offset[c] + plm_data_labels_at(scene.split.tokenizer, 64, &scene.window, c);
      for (; at < scene.offset[c + 1]; at++) {
        scene.payload[at] ^= 1;
        assert_int_equal(check(&scene, c, 1, &error), PLM_CORRUPT);
        scene.payload[at] ^= 1;
        assert_non_null(strstr(error.what, "the labels of document"));
      }
    }
    scene_close(&scene);
  }
  plm_label_schema_deinit(&schema);
}

/* A label that the fingerprint proves, but that says nothing, is the corpus's fault. */
static void labels_have_a_valid_form(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {9, 10, 11};
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_ESM, PLM_TRUNCATE_HEAD, 64);
  enum { NUMBER = 8 }; /* bytes of the first label; then comes 0, or one of three classes */
  struct plm_label_schema schema;
  struct scene scene;
  char expected[64];
  label_schema_make(&schema);
  scene_open_labelled(&scene, &p, lengths, 3, &schema);
  const struct plm_chunk_document *document = &scene.window.documents[0];
  uint8_t *record = scene.payload + plm_data_labels_at(scene.split.tokenizer, 64, &scene.window, 0);
  for (uint8_t stored = 3; stored < 5; stored++) {
    struct plm_error error = {0};
    record[NUMBER] = stored;
    record[NUMBER + 1] = 0;
    scene.labels[0] = plm_proof_label(record, plm_label_record_size(&schema, document->residues));
    assert_int_equal(check(&scene, 0, 1, &error), stored < 4 ? PLM_OK : PLM_FORMAT);
    if (stored < 4) continue;
    assert_string_equal(error.what, "the label of column family has no valid form");
    snprintf(expected, sizeof expected, "document %llu of the corpus",
             (unsigned long long)document->number);
    assert_string_equal(error.where, expected);
    assert_string_equal(error.hint, "ingest the table again");
  }
  scene_close(&scene);
  plm_label_schema_deinit(&schema);
}

static void say_false(char text[200], uint32_t chunk, int64_t owner)
{
  if (owner >= 0)
    snprintf(text, 200,
             "the tokens of document %lld are not those that the corpus's fingerprint proves",
             (long long)owner);
  else
    snprintf(text, 200, "chunk %u of window 0 has something other than %s", chunk,
             owner == PADDING ? "<pad> between documents" : "0 after its tokens");
}

/* Also those after the last token, if the evidence of pieces leaves any. */
static void every_flipped_bit_is_found(void **state)
{
  (void)state;
  uint32_t after = 0;
  for (int way = 0; way < 2 * 3; way++) {
    const struct plm_plan_parameters p =
        parameters_of((enum plm_tokenizer_kind)(way % 2), (enum plm_truncate)(way / 2), 64);
    struct scene scene;
    scene_open(&scene, &p, few, FEW);
    for (uint32_t c = 0; c < scene.window.chunks; c++) {
      const size_t bits = 8 * (scene.offset[c + 1] - scene.offset[c]);
      for (size_t bit = (size_t)way; bit < bits; bit += bits - bit < 9 ? 1 : 7) {
        const int64_t owner = owner_of(&scene, c, bit);
        struct plm_error error = {0};
        char expected[200];
        scene.payload[scene.offset[c] + bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (check(&scene, c, 1, &error) != PLM_CORRUPT)
          fail_msg("way %d, bit %zu of chunk %u is not checked", way, bit, c);
        scene.payload[scene.offset[c] + bit / 8] ^= (uint8_t)(1u << bit % 8);
        say_false(expected, c, owner);
        assert_string_equal(error.what, expected);
        after += owner == AFTER;
      }
    }
    scene_close(&scene);
  }
  assert_true(after > 0);
}

/* A window of several thousand tokens, whose chunks are not all unpacked at once: each is checked.
 */
static void each_of_many_chunks_is_checked(void **state)
{
  (void)state;
  static uint32_t lengths[256];
  for (int way = 0; way < 2; way++) {
    const struct plm_plan_parameters p =
        parameters_of((enum plm_tokenizer_kind)way, PLM_TRUNCATE_SPLIT, 1024);
    struct scene scene;
    struct plm_error error = {0};
    for (uint32_t i = 0; i < 256; i++) lengths[i] = 200 + 97 * i % 2500;
    scene_open(&scene, &p, lengths, 256);
    const uint32_t chunks = scene.window.chunks;
    assert_true(chunks > 200);
    if (check(&scene, 0, chunks, &error) != PLM_OK) fail_msg("way %d: %s", way, error.what);
    for (uint32_t c = 0; c < chunks; c += 5) {
      char expected[200];
      const size_t last = scene.offset[c + 1] - scene.offset[c] - 1;
      scene.payload[scene.offset[c] + last] ^= 0x10;
      assert_int_equal(check(&scene, 0, chunks, &error), PLM_CORRUPT);
      scene.payload[scene.offset[c] + last] ^= 0x10;
      say_false(expected, c, owner_of(&scene, c, 8 * last + 4));
      assert_string_equal(error.what, expected);
    }
    scene_close(&scene);
  }
}

/* Of several false documents, the first is named, and false padding only if all documents are
 * true. */
static void the_first_false_document_is_named(void **state)
{
  (void)state;
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_ESM, PLM_TRUNCATE_HEAD, 64);
  static const uint32_t lengths[] = {9, 10, 11};
  struct scene scene;
  struct plm_error error = {0};
  char expected[200];
  scene_open(&scene, &p, lengths, 3);
  assert_int_equal(scene.window.chunks, 1);
  const struct plm_chunk_document *second = &scene.window.documents[1];
  const size_t tokens[] = {63 /* padding */, second->start, scene.window.documents[2].start};
  for (int i = 0; i < 3; i++) scene.payload[5 * tokens[i] / 8] ^= (uint8_t)(1 << 5 * tokens[i] % 8);
  assert_int_equal(check(&scene, 0, 1, &error), PLM_CORRUPT);
  snprintf(expected, sizeof expected, "the tokens of document %llu are not those that the corpus's",
           (unsigned long long)second->number);
  assert_memory_equal(error.what, expected, strlen(expected));
  scene_close(&scene);
}

/* A token that the fingerprint proves, but that is outside the vocabulary, is the corpus's fault.
 * For esm, 5 bits have no such token. */
static void tokens_lie_in_the_vocabulary(void **state)
{
  (void)state;
  static const uint32_t lengths[] = {9, 10, 11};
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_BYTE, PLM_TRUNCATE_HEAD, 64);
  struct scene scene;
  scene_open(&scene, &p, lengths, 3);
  assert_true(plm_tokenizer_of(PLM_TOKENIZER_ESM)->vocab_size > 31);
  const struct plm_chunk_document *second = &scene.window.documents[1];
  const uint32_t bytes = scene.known.tokenizer->token_bytes, size = second->residues;
  const uint16_t last = htole16((uint16_t)(scene.known.tokenizer->vocab_size - 1));
  for (uint32_t x = 0; x < size; x++)
    for (uint16_t more = 0; more < 2; more++) {
      struct plm_error error = {0};
      char expected[200], kept[2];
      uint8_t *residues = scene.payload + (second->start + 1) * bytes;
      const uint16_t token = htole16((uint16_t)(le16toh(last) + more));
      memcpy(kept, residues + x * bytes, bytes);
      memcpy(residues + x * bytes, &token, bytes);
      scene.digests[1] = plm_proof_sequence(bytes, residues, size);
      snprintf(expected, sizeof expected,
               "document %llu of the corpus has token %u, outside the vocabulary of %u",
               (unsigned long long)second->number, le16toh(token),
               scene.known.tokenizer->vocab_size);
      assert_int_equal(check(&scene, 0, 1, &error), more == 0 ? PLM_OK : PLM_FORMAT);
      if (more != 0) assert_string_equal(error.what, expected);
      memcpy(residues + x * bytes, kept, bytes);
    }
  scene_close(&scene);
}

/* Nothing is read of a payload of another size. */
static void every_other_size_is_refused(void **state)
{
  (void)state;
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_ESM, PLM_TRUNCATE_SPLIT, 64);
  struct scene scene;
  struct plm_error error = {0};
  scene_open(&scene, &p, few, FEW);
  const size_t size = scene.offset[2] - scene.offset[1];
  for (size_t other = 0; other < size + 70; other++)
    if (other != size)
      assert_int_equal(plm_data_check(&scene.known, 1, 1, NULL, other, &scene.scratch, &error),
                       PLM_PROTOCOL);
  assert_int_equal(check(&scene, 1, 1, &error), PLM_OK);
  scene_close(&scene);
}

/* Chunks of another corpus, which are consistent in themselves. */
static void another_corpus_is_refused(void **state)
{
  (void)state;
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_ESM, PLM_TRUNCATE_SPLIT, 64);
  const struct known_split of = {.lengths = few, .documents = FEW};
  struct scene scene;
  struct proven_split other;
  struct plm_error error = {0};
  scene_open(&scene, &p, few, FEW);
  proven_split_open(&other, PLM_TOKENIZER_ESM, 4, &of);
  uint8_t *theirs = proven_split_chunks(&other, &scene.window, 64, scene.offset);
  uint8_t *ours = scene.payload;
  for (uint32_t c = 0; c < scene.window.chunks; c++) {
    const struct plm_chunk_document *only = &scene.window.documents[scene.window.chunk_begin[c]];
    struct plm_data_piece piece;
    plm_data_piece(only, &piece);
    if (piece.begin == piece.end) continue; /* it may have nothing of the corpus */
    scene.payload = theirs;
    assert_int_equal(check(&scene, c, 1, &error), PLM_CORRUPT);
    scene.payload = ours;
    assert_int_equal(check(&scene, c, 1, &error), PLM_OK);
  }
  free(theirs);
  proven_split_close(&other);
  scene_close(&scene);
}

/* With the shortest last pieces there can be; and no message is larger than the limit. */
static void no_chunk_is_larger_than_the_most(void **state)
{
  (void)state;
  static uint32_t lengths[256];
  for (int tokenizer = 0; tokenizer < 2; tokenizer++)
    for (uint32_t alignment = 1; alignment <= 16; alignment *= 4) {
      struct plm_plan_parameters p =
          parameters_of((enum plm_tokenizer_kind)tokenizer, PLM_TRUNCATE_SPLIT, 64);
      struct scene scene;
      p.alignment = alignment;
      for (int i = 0; i < 256; i++) lengths[i] = 64 * 7; /* the last piece: a residue and <eos> */
      scene_open(&scene, &p, lengths, 256);
      for (uint32_t c = 0; c < scene.window.chunks; c++)
        assert_true(scene.offset[c + 1] - scene.offset[c] <= plm_data_chunk_most(&p));
      scene_close(&scene);
    }
  struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_BYTE, PLM_TRUNCATE_HEAD, 1 << 20);
  assert_in_range(plm_data_chunk_most(&p), 2 << 20, (2 << 20) + 8192);
  p.tokenizer = PLM_TOKENIZER_ESM;
  assert_in_range(plm_data_chunk_most(&p), 5 << 17, (5 << 17) + 8192);
  p.tokenizer = PLM_TOKENIZER_BYTE;
  p.truncate = PLM_TRUNCATE_SPLIT;
  assert_int_equal(plm_data_chunk_most(&p), PLM_WIRE_DATA_LIMIT);
}

static plm_status check_anew(void *context, struct plm_error *error)
{
  const struct scene *scene = context;
  const uint32_t chunks = scene->window.chunks;
  struct plm_data_scratch scratch = {0};
  const plm_status status = plm_data_check(&scene->known, 0, chunks, scene->payload,
                                           scene->offset[chunks], &scratch, error);
  plm_data_scratch_deinit(&scratch);
  return status;
}

static void a_lack_of_memory_is_said(void **state)
{
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  const struct plm_plan_parameters p = parameters_of(PLM_TOKENIZER_ESM, PLM_TRUNCATE_SPLIT, 64);
  struct scene scene;
  scene_open(&scene, &p, few, FEW);
  failing_memory_try(check_anew, &scene, 4);
  scene_close(&scene);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_range_of_chunks_is_checked),
      cmocka_unit_test(long_documents_are_checked),
      cmocka_unit_test(labels_are_checked),
      cmocka_unit_test(labels_have_a_valid_form),
      cmocka_unit_test(every_flipped_bit_is_found),
      cmocka_unit_test(each_of_many_chunks_is_checked),
      cmocka_unit_test(the_first_false_document_is_named),
      cmocka_unit_test(tokens_lie_in_the_vocabulary),
      cmocka_unit_test(every_other_size_is_refused),
      cmocka_unit_test(another_corpus_is_refused),
      cmocka_unit_test(no_chunk_is_larger_than_the_most),
      cmocka_unit_test(a_lack_of_memory_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
