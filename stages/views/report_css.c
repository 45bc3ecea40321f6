/* report.css, embedded by the assembler, so that plm-pipeline needs no file beside it. */
#include "stages/views/report.h"

__asm__(".pushsection .rodata\n"
        ".global plm_report_css\n"
        ".type plm_report_css, @object\n"
        "plm_report_css:\n"
        ".incbin \"stages/views/report.css\"\n"
        ".byte 0\n"
        ".size plm_report_css, . - plm_report_css\n"
        ".popsection\n");
