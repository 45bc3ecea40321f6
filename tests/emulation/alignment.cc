/* What the compiler's check of alignment calls: kernels for the CPU are compiled with
 * -fsanitize=alignment (the Makefile), since a device faults where this processor does not. Left
 * out where a sanitizer brings its own. */
#ifdef PLM_OWN_ALIGNMENT_CHECK

#include "tests/emulation/emulation.h"

namespace
{

/* As GCC and Clang lay it out (struct ubsan_mismatch_data, version 1). */
struct Place {
  const char *file;
  uint32_t line, column;
};
struct Mismatch {
  Place place;
  const void *type;
  unsigned char log_alignment, kind;
};

} // namespace

extern "C" void __ubsan_handle_type_mismatch_v1_abort(void *data, uintptr_t address);
extern "C" void __ubsan_handle_type_mismatch_v1_abort(void *data, uintptr_t address)
{
  const Mismatch *found = static_cast<const Mismatch *>(data);
  plm::emulation::stop("%s:%u: an access to an address that is not a multiple of %u: %#lx",
                       found->place.file, found->place.line, 1u << found->log_alignment,
                       (unsigned long)address);
}

#endif
