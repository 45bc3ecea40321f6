/* modeling_plm.py, taken in by the assembler at build time, so that a program needs no file beside
 * it to write a complete model folder. */
#include "common/huggingface/modeling_file.h"

__asm__(".pushsection .rodata\n"
        ".global plm_modeling_file\n"
        ".type plm_modeling_file, @object\n"
        "plm_modeling_file:\n"
        ".incbin \"common/huggingface/modeling_plm.py\"\n"
        ".byte 0\n"
        ".size plm_modeling_file, . - plm_modeling_file\n"
        ".popsection\n");
