/* Reads which fault is on when a program or shared library is loaded. run_inside.py writes the
 * number into a folder that each job sees with other contents. Tests replace functions of the C
 * library, so this calls the kernel. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RECORD (-1) /* as in run_inside.py, like the size of the file */
#define FUNCTIONS 65536

__attribute__((visibility("hidden"))) int plm_mutant;
__attribute__((visibility("hidden"))) unsigned char *plm_mutants_reached;

__attribute__((constructor(101))) static void choose(void)
{
  long file = syscall(SYS_openat, AT_FDCWD, PLM_MUTANT_FOLDER "/number", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  if (syscall(SYS_read, file, &plm_mutant, sizeof plm_mutant) < 0) plm_mutant = 0;
  syscall(SYS_close, file);
  if (plm_mutant != RECORD) return;
  file = syscall(SYS_openat, AT_FDCWD, PLM_MUTANT_FOLDER "/reached", O_RDWR | O_CLOEXEC);
  void *reached =
      (void *)syscall(SYS_mmap, NULL, FUNCTIONS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) syscall(SYS_close, file);
  if (reached == MAP_FAILED) /* also without the file */
    plm_mutant = 0;
  else
    plm_mutants_reached = reached;
}
