/* See check_memory.cuh. */
#include "kernels/cuda/checks/check_memory.cuh"

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <elf.h>
#include <link.h>

extern "C" {
#include "common/base/files/file.h"
#include "common/ops/measured_folder.h"
}

namespace
{

enum { LIMIT_BYTES = 4096 };

/* The version of the driver's kernel module, "" if the system does not say it. */
void module_version(char version[256])
{
  char *text = nullptr;
  size_t size;
  version[0] = '\0';
  if (plm_file_read("/proc/driver/nvidia/version", LIMIT_BYTES, &text, &size, nullptr) == PLM_OK)
    snprintf(version, 256, "%.*s", (int)strcspn(text, "\n"), text);
  free(text);
}

struct build {
  char hex[2 * 64 + 1];
};

/* Looks for the build ID, a note that the linker makes from all of the object's contents. */
void find_build_id(const char *notes, size_t size, struct build *build)
{
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    memcpy(&note, notes, sizeof note);
    const size_t name = (note.n_namesz + 3) / 4 * 4, content = (note.n_descsz + 3) / 4 * 4;
    const size_t whole = sizeof note + name + content;
    if (whole > size) return;
    const char *id = notes + sizeof note + name;
    if (note.n_type == NT_GNU_BUILD_ID && memcmp(notes + sizeof note, "GNU", 4) == 0 &&
        note.n_descsz < sizeof build->hex / 2)
      for (size_t i = 0; i < note.n_descsz; i++)
        snprintf(build->hex + 2 * i, 3, "%02x", (unsigned char)id[i]);
    notes += whole;
    size -= whole;
  }
}

/* Called for each loaded object; ends at the one that this code is in. */
int look_at_object(struct dl_phdr_info *object, size_t, void *context)
{
  const uintptr_t here = reinterpret_cast<uintptr_t>(&look_at_object);
  bool is_mine = false;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    is_mine |= part->p_type == PT_LOAD && here - object->dlpi_addr - part->p_vaddr < part->p_memsz;
  }
  for (int i = 0; is_mine && i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    if (part->p_type == PT_NOTE)
      find_build_id(reinterpret_cast<const char *>(object->dlpi_addr + part->p_vaddr),
                    part->p_memsz, static_cast<struct build *>(context));
  }
  return is_mine;
}

/* Where the check is kept, and what the file has to say. False if it is kept nowhere. */
bool place(const struct plm_cuda *cuda, const char *what, char path[PLM_PATH_SIZE], char text[1024])
{
  char folder[PLM_PATH_SIZE], name[256], version[256];
  struct build build = {};
  dl_iterate_phdr(look_at_object, &build);
  if (build.hex[0] == '\0' || !plm_measured_folder(folder)) return false;
  module_version(version);
  snprintf(name, sizeof name, "checked %s %d %s", cuda->processor, cuda->multiprocessors, what);
  snprintf(text, 1024, "passed: %s\ndriver: %s\nmodule: %s\nbackend: %s\n", name, cuda->driver,
           version, build.hex);
  for (char *c = name; *c != '\0'; c++)
    if (isalnum((unsigned char)*c) == 0) *c = '-';
  return plm_path_join(path, folder, name, nullptr) == PLM_OK;
}

} // namespace

bool plm_cuda_check_known(const struct plm_cuda *cuda, const char *what)
{
  char path[PLM_PATH_SIZE], text[1024], *kept = nullptr;
  size_t size;
  const bool known = place(cuda, what, path, text) &&
                     plm_file_read(path, LIMIT_BYTES, &kept, &size, nullptr) == PLM_OK &&
                     strcmp(kept, text) == 0;
  free(kept);
  return known;
}

void plm_cuda_check_keep(const struct plm_cuda *cuda, const char *what)
{
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], text[1024];
  if (place(cuda, what, path, text) && plm_path_parent(folder, path, nullptr) == PLM_OK &&
      plm_directory_make(folder, nullptr) == PLM_OK)
    (void)plm_file_replace(path, text, strlen(text), 0644, nullptr);
}
