/* Initial weights: drawn by Philox with purpose 3, computed on the host in double and rounded once.
 *
 * Element e of parameter NAME takes word e mod 4 of the counter (e / 4, XXH32(NAME)). Any element
 * can therefore be computed without the others, and the layout of the arena does not matter.
 * doc/model.md#initialisation */
#include <math.h>
#include <string.h>

#include "common/base/numbers/hash.h"
#include "common/base/numbers/philox.h"
#include "common/base/numbers/size.h"
#include "common/model/model.h"

/* Uniform in (0, 1). It is never 0, so its logarithm is finite. */
static double open_unit(uint32_t word)
{
  return ((double)(word >> 8) + 0.5) * 0x1p-24;
}

/* Values are drawn in fours. The last ones may reach into the gap behind the parameter,
 * which plm_model_initialise then sets to zero. */
static void fill_uniform(const struct plm_parameter *parameter, uint64_t seed, float *values)
{
  const double bound = 1.0 / sqrt((double)parameter->cols);
  const uint64_t y = plm_hash32_name(parameter->name);
  for (size_t e = 0; e < parameter->count; e += 4) {
    const struct plm_philox_words words =
        plm_philox(seed, (uint32_t)(e / 4), y, PLM_PURPOSE_WEIGHTS);
    for (size_t j = 0; j < 4; j++)
      values[e + j] = (float)(bound * (2.0 * open_unit(words.w[j]) - 1.0));
  }
}

static void fill_normal(const struct plm_parameter *parameter, uint64_t seed, double deviation,
                        float *values)
{
  const uint64_t y = plm_hash32_name(parameter->name);
  for (size_t e = 0; e < parameter->count; e += 4) {
    const struct plm_philox_words words =
        plm_philox(seed, (uint32_t)(e / 4), y, PLM_PURPOSE_WEIGHTS);
    double normal[4];
    for (size_t j = 0; j < 4; j += 2) { /* Box and Muller 1958 */
      const double radius = deviation * sqrt(-2.0 * log(open_unit(words.w[j])));
      const double angle = 2.0 * M_PI * open_unit(words.w[j + 1]);
      normal[j] = radius * cos(angle);
      normal[j + 1] = radius * sin(angle);
    }
    for (size_t j = 0; j < 4; j++) values[e + j] = (float)normal[j];
  }
}

static void fill_constant(const struct plm_parameter *parameter, float value, float *values)
{
  for (size_t e = 0; e < parameter->count; e++) values[e] = value;
}

void plm_model_initialise(const struct plm_parameter *table, size_t count, uint64_t seed,
                          float *values)
{
  for (size_t i = 0; i < count; i++) {
    const struct plm_parameter *parameter = &table[i];
    float *place = values + parameter->offset;
    switch (parameter->initialiser) {
    case PLM_INIT_ZERO: fill_constant(parameter, 0.0f, place); break;
    case PLM_INIT_ONE: fill_constant(parameter, 1.0f, place); break;
    case PLM_INIT_HALF: fill_constant(parameter, 0.5f, place); break;
    case PLM_INIT_ONE_ZERO:
      place[0] = 1.0f;
      place[1] = 0.0f;
      break;
    case PLM_INIT_UNIFORM: fill_uniform(parameter, seed, place); break;
    case PLM_INIT_NORMAL: fill_normal(parameter, seed, 1.0, place); break;
    case PLM_INIT_SMALL: fill_normal(parameter, seed, 0.02, place); break;
    case PLM_INIT_SMALL_PAD:
      fill_normal(parameter, seed, 0.02, place);
      memset(place + parameter->cols, 0, (size_t)parameter->cols * sizeof *place);
      break;
    }
    /* the gap before what follows, whose offset is aligned */
    const size_t end = parameter->offset + parameter->count;
    const size_t next = plm_size_round_up(end, PLM_PARAMETER_ALIGNMENT);
    memset(values + end, 0, (next - end) * sizeof *values);
  }
}
