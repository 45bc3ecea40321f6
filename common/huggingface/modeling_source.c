/* modeling_plm.py, embedded by the assembler at build time. A program can therefore write a
 * complete model folder without any file beside it. */
#include "common/huggingface/huggingface.h"

__asm__(".pushsection .rodata\n"
        ".global plm_huggingface_modeling\n"
        ".type plm_huggingface_modeling, @object\n"
        "plm_huggingface_modeling:\n"
        ".incbin \"common/huggingface/modeling_plm.py\"\n"
        ".byte 0\n"
        ".size plm_huggingface_modeling, . - plm_huggingface_modeling\n"
        ".popsection\n");
