/* The wire's parsers on hostile bytes: the first byte chooses one. What a parser accepts must
 * survive being encoded again, or be what the roots of a corpus prove. */
#include <stdlib.h>
#include <string.h>

#include "common/corpus/tokenizer.h"
#include "common/wire/data.h"
#include "common/wire/message.h"
#include "common/wire/tables.h"
#include "common/wire/token_bits.h"
#include "tests/support/cases/label_schemas.h"
#include "tests/support/corpora/proven_split.h"
#include "tests/support/harness/fuzz_seed.h"
#include "tests/support/harness/must.h"

/* This seed's hash is wrong; header() below corrects it. */
static const uint8_t header_seed[1 + PLM_HEADER_BYTES] = {0, 'P', 'L', 'M', 'F', PLM_WIRE_VERSION,
                                                          0, 8};
static const uint8_t welcome_seed[64] = {2, 1, 0, 0, 0,  0, 0, 0, 0, 0, 2, 0, 0,
                                         1, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 1};
static const uint8_t part_seed[] = {6, 0, 0, 1, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0,
                                    0, 0, 0, 1, 0, 9, 1, 0, 0, 0, 0, 7, 7};
/* Valid greetings, chunks and tables are in tests/fuzz/corpus/wire. */
static const struct fuzz_seed fuzz_seeds[] = {
    {header_seed, sizeof header_seed}, {welcome_seed, sizeof welcome_seed},
    {part_seed, sizeof part_seed},     FUZZ_TEXT("\005\1\0\0\0text"),
    FUZZ_TEXT("\005\1\0\0\0\1\0\0\0"), {0}};

/* ---- control messages --------------------------------------------------------------------- */

static void header(const uint8_t *bytes, size_t size)
{
  struct plm_header decoded;
  struct plm_error error;
  uint8_t repaired[PLM_HEADER_BYTES], again[PLM_HEADER_BYTES];
  (void)plm_header_decode(bytes, size, &decoded, &error);
  if (size != PLM_HEADER_BYTES) return;
  /* again with the correct hash, which a hostile peer could compute as well */
  memcpy(repaired, bytes, sizeof repaired);
  const uint64_t hash = plm_hash64_bytes(repaired, PLM_HEADER_BYTES - 8);
  for (int i = 0; i < 8; i++) repaired[PLM_HEADER_BYTES - 8 + i] = (uint8_t)(hash >> (8 * i));
  if (plm_header_decode(repaired, sizeof repaired, &decoded, &error) != PLM_OK) return;
  plm_header_encode(&decoded, again);
  PLM_ASSERT(memcmp(repaired, again, sizeof again) == 0);
}

static void hello(const uint8_t *bytes, size_t size)
{
  static struct plm_hello decoded;
  static uint8_t right[PLM_WIRE_CONTROL_LIMIT], again[PLM_WIRE_CONTROL_LIMIT];
  enum { HOST = 18, AFTER_HOST = 2 }; /* bytes before the host, and between it and the hash */
  struct plm_error error;
  (void)plm_hello_decode(bytes, size, &decoded, &error);
  if (size > sizeof right) return;
  /* again with the fingerprint of its splits, which a hostile peer could compute as well */
  const size_t at = HOST + strlen(decoded.host) + AFTER_HOST;
  if (size < at + 16) return;
  struct plm_proof_digest schema;
  const bool labelled = decoded.schema != NULL;
  if (labelled) schema = plm_proof_schema(decoded.schema, decoded.schema_bytes);
  const struct plm_hash hash =
      plm_proof_corpus(decoded.tokenizer, decoded.splits, labelled ? &schema : NULL);
  memcpy(right, bytes, size);
  for (int i = 0; i < 8; i++) {
    right[at + (size_t)i] = (uint8_t)(hash.low >> (8 * i));
    right[at + 8 + (size_t)i] = (uint8_t)(hash.high >> (8 * i));
  }
  if (plm_hello_decode(right, size, &decoded, &error) != PLM_OK) return;
  PLM_ASSERT(plm_hello_encode(&decoded, again) == size && memcmp(right, again, size) == 0);
}

static void welcome(const uint8_t *bytes, size_t size)
{
  struct plm_welcome decoded;
  static uint8_t again[PLM_WIRE_CONTROL_LIMIT];
  struct plm_error error;
  if (plm_welcome_decode(bytes, size, &decoded, &error) != PLM_OK) return;
  PLM_ASSERT(plm_welcome_encode(&decoded, again) == size && memcmp(bytes, again, size) == 0);
}

static void small(const uint8_t *bytes, size_t size)
{
  struct plm_packer_counters counters;
  struct plm_get get;
  struct plm_prove prove;
  enum plm_nack_reason reason;
  struct plm_error error;
  char text[PLM_WIRE_TEXT + 1];
  (void)plm_counters_decode(bytes, size, &counters, &error);
  (void)plm_get_decode(bytes, size, &get, &error);
  (void)plm_prove_decode(bytes, size, &prove, &error);
  if (plm_nack_decode(bytes, size, &reason, text, &error) == PLM_OK) {
    PLM_ASSERT(reason < PLM_NACK_COUNT && strlen(text) <= PLM_WIRE_TEXT);
  }
}

static void fetch(const uint8_t *bytes, size_t size)
{
  struct plm_fetch_request request;
  struct plm_file_part part;
  struct plm_error error;
  uint8_t again[PLM_FILE_PART_HEAD];
  if (plm_fetch_decode(bytes, size, &request, &error) == PLM_OK)
    PLM_ASSERT(plm_fetch_encode(&request, again) == size && memcmp(bytes, again, size) == 0);
  if (plm_file_part_decode(bytes, size, &part, &error) != PLM_OK) return;
  plm_file_part_encode(&part, again);
  PLM_ASSERT(memcmp(bytes, again, sizeof again) == 0);
  PLM_ASSERT(part.of.bytes + sizeof again == size && part.of.source < part.sources);
}

/* ---- what is proven ----------------------------------------------------------------------- */

/* Corpora of which a window's chunks, or its tables, are asked for: whole documents and all kinds
 * of pieces; documents; clusters, of which each form of the tables has some. The last two have
 * labels. */
enum {
  CHUNKS_BYTE,
  CHUNKS_ESM,
  TABLES_DOCUMENTS,
  TABLES_CLUSTERS,
  CHUNKS_LABELS,
  TABLES_LABELS,
  SCENES
};
struct scene {
  struct proven_split split;
  struct plm_plan *plan;
  struct plm_window window;
  uint64_t *offset;
  uint8_t *chunks;                           /* the only payload that is right */
  struct plm_proof_digest *digests, *labels; /* labels: NULL if the corpus has none */
};

static void scene_open(struct scene *scene, int which)
{
  static const uint32_t few[] = {3, 20, 62, 63, 126, 600};
  static const uint32_t sizes[] = {1, 700, 2, 300, 1, 1};
  static uint32_t lengths[1005];
  static struct plm_label_schema schema;
  const bool clusters = which == TABLES_CLUSTERS || which == TABLES_LABELS;
  const bool labelled = which == CHUNKS_LABELS || which == TABLES_LABELS;
  const struct known_split of = {.lengths = clusters ? lengths : few,
                                 .documents = clusters ? 1005 : 6,
                                 .clusters = clusters ? sizes : NULL,
                                 .cluster_count = clusters ? 6 : 0};
  const struct plm_plan_parameters p = {
      .seed = 1,
      .max_length = 64,
      .alignment = 1,
      .window_groups = 1,
      .truncate = PLM_TRUNCATE_SPLIT,
      .tokenizer = which == CHUNKS_BYTE ? PLM_TOKENIZER_BYTE : PLM_TOKENIZER_ESM,
      .sampling = clusters ? PLM_SAMPLING_CLUSTERS : PLM_SAMPLING_DOCUMENTS,
      .shuffle = true};
  for (uint32_t i = 0; i < 1005; i++) lengths[i] = 1 + i % 9;
  if (labelled && schema.count == 0) label_schema_make(&schema);
  proven_split_open_labelled(&scene->split, p.tokenizer, 2, &of, labelled ? &schema : NULL);
  scene->plan = known_split_plan(&of, &p);
  PLM_ASSERT(known_split_window(&of, scene->plan, 0, 0, &scene->window, NULL) == PLM_OK);
  scene->offset = must(malloc((scene->window.chunks + 1) * sizeof *scene->offset));
  plm_data_layout(scene->split.tokenizer, p.max_length, scene->split.schema, &scene->window,
                  scene->offset);
  scene->chunks = proven_split_chunks(&scene->split, &scene->window, p.max_length, scene->offset);
  scene->digests = proven_split_digests(&scene->split, &scene->window);
  if (!labelled) return;
  scene->labels = must(malloc(scene->window.document_count * sizeof *scene->labels));
  for (uint32_t i = 0; i < scene->window.document_count; i++)
    scene->labels[i] = scene->split.label_digests[scene->window.documents[i].number];
}

/* They are made once, and then only read. */
static const struct scene *scene_of(int which)
{
  static struct scene scenes[SCENES];
  if (scenes[which].plan == NULL) scene_open(&scenes[which], which);
  return &scenes[which];
}

/* The first byte says which chunk comes first; all up to the last are asked for. */
static plm_status check_data(const uint8_t *bytes, size_t size, int which)
{
  const struct scene *scene = scene_of(which);
  const struct plm_window *window = &scene->window;
  const struct plm_data_known known = {.tokenizer = scene->split.tokenizer,
                                       .max_length = 64,
                                       .window = window,
                                       .digests = scene->digests,
                                       .schema = scene->split.schema,
                                       .labels = scene->labels,
                                       .offset = scene->offset};
  struct plm_data_scratch scratch = {0};
  struct plm_error error;
  const uint32_t first = bytes[0] % window->chunks;
  const plm_status status =
      plm_data_check(&known, first, window->chunks - first, bytes + 1, size - 1, &scratch, &error);
  plm_data_scratch_deinit(&scratch);
  PLM_ASSERT(status == PLM_OK || status == PLM_CORRUPT || status == PLM_PROTOCOL);
  if (status == PLM_OK)
    PLM_ASSERT(memcmp(bytes + 1, scene->chunks + scene->offset[first], size - 1) == 0);
  return status;
}

/* In each form that the processor has, with the same result. */
static void data(const uint8_t *bytes, size_t size, int which)
{
  if (size == 0) return;
  (void)plm_token_bits_limit(PLM_BITS_PORTABLE);
  const plm_status expected = check_data(bytes, size, which);
  for (int form = PLM_BITS_PORTABLE + 1; form < PLM_BITS_FORMS; form++)
    if (plm_token_bits_limit((enum plm_token_bits_form)form))
      PLM_ASSERT(check_data(bytes, size, which) == expected);
}

/* What is accepted is true, in whatever form it came. */
static void tables(const uint8_t *bytes, size_t size, int which)
{
  const struct scene *scene = scene_of(which);
  struct plm_tables read = {0};
  struct plm_error error;
  const struct plm_tables_window of = {scene->plan, 0, 0, scene->split.schema != NULL};
  const plm_status status =
      plm_tables_read(&of, &scene->split.split, 1, bytes, size, &read, &error);
  PLM_ASSERT(status == PLM_OK || status == PLM_CORRUPT || status == PLM_PROTOCOL);
  if (status == PLM_OK) {
    PLM_ASSERT(read.groups == 1 && read.begin[1] == plm_plan_documents(scene->plan));
    for (uint32_t i = 0; i < read.begin[1]; i++) {
      const uint64_t number = read.numbers[i];
      PLM_ASSERT(read.lengths[i] == scene->split.lengths[number]);
      PLM_ASSERT(memcmp(&read.digests[i], &scene->split.digests[number], sizeof *read.digests) ==
                 0);
      if (of.labelled)
        PLM_ASSERT(
            memcmp(&read.labels[i], &scene->split.label_digests[number], sizeof *read.labels) == 0);
    }
  }
  plm_tables_deinit(&read);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  if (size == 0) return 0;
  switch (bytes[0] % 11) {
  case 0: header(bytes + 1, size - 1); break;
  case 1: hello(bytes + 1, size - 1); break;
  case 2: welcome(bytes + 1, size - 1); break;
  case 3: data(bytes + 1, size - 1, CHUNKS_BYTE); break;
  case 4: data(bytes + 1, size - 1, CHUNKS_ESM); break;
  case 6: fetch(bytes + 1, size - 1); break;
  case 7: tables(bytes + 1, size - 1, TABLES_DOCUMENTS); break;
  case 8: tables(bytes + 1, size - 1, TABLES_CLUSTERS); break;
  case 9: data(bytes + 1, size - 1, CHUNKS_LABELS); break;
  case 10: tables(bytes + 1, size - 1, TABLES_LABELS); break;
  default: small(bytes + 1, size - 1); break;
  }
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
