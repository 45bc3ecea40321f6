/* The matrix product of a warp from the fragments of its lanes. Layouts: PTX ISA, "Matrix fragments
 * for mma.m16n8k16". Products of bf16 are exact in double, and sums of 16 of them nearly so. */
#include "tests/emulation/emulation.h"

namespace plm::emulation
{

namespace
{

double from_bf16(uint64_t bits)
{
  return (double)from_word<float>((bits & 0xffff) << 16);
}

/* d = a b */
PLM_WIDE void multiply(const double a[16][16], const double b[16][8], double d[16][8])
{
  for (int row = 0; row < 16; row++) {
    double sums[8] = {};
    for (int k = 0; k < 16; k++)
      for (int column = 0; column < 8; column++) sums[column] += a[row][k] * b[k][column];
    memcpy(d[row], sums, sizeof sums);
  }
}

} // namespace

void multiply_fragments(Lanes &lanes)
{
  double a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < LANES; lane++) {
    const int group = lane / 4, pair = lane % 4 * 2;
    const uint64_t *words = lanes[lane];
    for (int half = 0; half < 2; half++) {
      for (int word = 0; word < 4; word++)
        a[group + word % 2 * 8][pair + word / 2 * 8 + half] = from_bf16(words[word] >> 16 * half);
      for (int word = 0; word < 2; word++)
        b[pair + word * 8 + half][group] = from_bf16(words[4 + word] >> 16 * half);
    }
  }
  multiply(a, b, d);
  count_multiply_adds(16 * 16 * 8);
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < 4; i++)
      lanes[lane][i] = to_word(d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

} // namespace plm::emulation
