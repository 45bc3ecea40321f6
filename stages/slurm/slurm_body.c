/* slurm_body.sh, embedded by the assembler, so that plm-pipeline needs no file beside it. */
#include "stages/slurm/slurm_body.h"

__asm__(".pushsection .rodata\n"
        ".global plm_slurm_body\n"
        ".type plm_slurm_body, @object\n"
        "plm_slurm_body:\n"
        ".incbin \"stages/slurm/slurm_body.sh\"\n"
        ".byte 0\n"
        ".size plm_slurm_body, . - plm_slurm_body\n"
        ".popsection\n");
