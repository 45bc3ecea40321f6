/* How much of DATA proves a piece of a document. */
#include "common/wire/data.h"
#include "tests/support/harness/cmocka_all.h"

static void pieces_say_what_proves_them(void **state)
{
  (void)state;
  static struct {
    struct plm_chunk_document document; /* number, start, tokens, offset, residues */
    struct plm_data_piece piece;
  } cases[] = {
      /* whole documents */
      {{0, 0, 2, 0, 0}, {true, true, 0, 0, true, 0, 0, 0, 0, 0}},
      {{0, 0, 2002, 0, 2000}, {true, true, 0, 2000, true, 0, 0, 0, 0, 0}},
      /* only <cls> and a residue; a middle; the last residue and <eos>; only <eos> */
      {{0, 0, 2, 0, 3}, {true, false, 0, 1, false, 0, 1, 0, 2, 0}},
      {{0, 0, 2, 1, 3000}, {false, false, 1, 3, false, 0, 1, 1, 509, 3}},
      {{0, 0, 2, 2999, 3000}, {false, true, 2999, 3000, false, 5, 6, 439, 0, 2}},
      {{0, 0, 1, 3000, 3000}, {false, true, 3000, 3000, false, 0, 0, 0, 0, 0}},
      /* all residues without <eos> */
      {{0, 0, 601, 0, 600}, {true, false, 0, 600, false, 0, 2, 0, 0, 0}},
      /* exactly a block, and one residue more on either side */
      {{0, 0, 512, 512, 3000}, {false, false, 512, 1024, false, 1, 2, 0, 0, 3}},
      {{0, 0, 513, 511, 3000}, {false, false, 511, 1024, false, 0, 2, 511, 0, 2}},
      {{0, 0, 513, 512, 3000}, {false, false, 512, 1025, false, 1, 3, 0, 511, 3}},
      /* the last block is not full */
      {{0, 0, 101, 2600, 2700}, {false, true, 2600, 2700, false, 5, 6, 40, 0, 2}},
      {{0, 0, 100, 2600, 2700}, {false, false, 2600, 2700, false, 5, 6, 40, 0, 2}},
      {{0, 0, 99, 2600, 2700}, {false, false, 2600, 2699, false, 5, 6, 40, 1, 2}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_data_piece *expected = &cases[i].piece;
    struct plm_data_piece piece;
    plm_data_piece(&cases[i].document, &piece);
    assert_int_equal(piece.has_cls, expected->has_cls);
    assert_int_equal(piece.has_eos, expected->has_eos);
    assert_int_equal(piece.begin, expected->begin);
    assert_int_equal(piece.end, expected->end);
    assert_int_equal(piece.whole, expected->whole);
    assert_int_equal(piece.block_begin, expected->block_begin);
    assert_int_equal(piece.block_end, expected->block_end);
    assert_int_equal(piece.before, expected->before);
    assert_int_equal(piece.after, expected->after);
    assert_int_equal(piece.path, expected->path);
    uint32_t begin[] = {0, 1};
    const struct plm_window window = {
        .chunks = 1, .document_count = 1, .documents = &cases[i].document, .chunk_begin = begin};
    const struct plm_data_extent extent = plm_data_extent(4096, &window, 0);
    assert_int_equal(extent.tokens, 4096 + expected->before + expected->after);
    assert_int_equal(extent.path_bytes, 32 * expected->path);
    const uint64_t blocks = expected->before + expected->end - expected->begin + expected->after;
    assert_int_equal(extent.block_tokens, expected->whole ? 0 : blocks);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_say_what_proves_them)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
