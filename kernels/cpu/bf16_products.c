/* The table of processors whose bf16 products are faster than fp32 ones. */
#include "kernels/cpu/bf16_products.h"

#include <stddef.h>
#include <string.h>

#include "kernels/cpu/product.h"

/* A processor of at least this level, from this vendor, multiplies bf16 faster than fp32 with a
 * library of at least this version. */
struct row {
  enum plm_processor_level level;
  const char *vendor; /* NULL: any */
  uint32_t library;
  const char *gain;
};

/* The figures are those of doc/performance.md. Intel's processors with AVX512_BF16 but without AMX
 * are missing on purpose: they multiply as many bf16 pairs per cycle as floats, and oneDNN 2.6
 * trained a unet at 2,994 tokens/s in bf16 and at 5,041 in fp32 (Emerald Rapids without AMX). */
static const struct row rows[] = {
    {PLM_PROCESSOR_AMX, NULL, 206,
     "bf16 is faster than fp32 here: its products run in AMX tiles (2.4 to 3.1 times the speed in "
     "training, measured on Sapphire Rapids)"},
    {PLM_PROCESSOR_AVX512_BF16, "AuthenticAMD", 206,
     "bf16 is faster than fp32 here: its products use AVX512_BF16 (1.7 to 2 times the speed in "
     "training, measured on Zen 4)"},
};

static const struct row *find_row(const struct plm_bf16_machine *machine)
{
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (machine->level >= rows[i].level && machine->library >= rows[i].library &&
        (rows[i].vendor == NULL || strcmp(rows[i].vendor, machine->vendor) == 0))
      return &rows[i];
  return NULL;
}

struct plm_bf16_machine plm_bf16_machine(void)
{
  const struct plm_products_kind library = plm_products_kind();
  const enum plm_processor_level level = plm_processor_level();
  struct plm_bf16_machine machine = {.level = level < library.level ? level : library.level,
                                     .library = library.version};
  plm_processor_vendor(machine.vendor);
  return machine;
}

bool plm_bf16_has_native(const struct plm_bf16_machine *machine)
{
  return machine->library > 0 && machine->level >= PLM_PROCESSOR_AVX512_BF16;
}

bool plm_bf16_is_faster(const struct plm_bf16_machine *machine)
{
  return plm_bf16_has_native(machine) && find_row(machine) != NULL;
}

const char *plm_bf16_gain(const struct plm_bf16_machine *machine)
{
  if (plm_bf16_is_faster(machine)) return find_row(machine)->gain;
  return "bf16 saves memory but no time here: its products are computed as fp32 ones, because this "
         "processor or its product library multiplies bf16 no faster";
}
