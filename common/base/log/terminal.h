/* What a terminal can do. */
#ifndef PLM_COMMON_BASE_LOG_TERMINAL_H
#define PLM_COMMON_BASE_LOG_TERMINAL_H

#include <stdbool.h>

/* Whether the descriptor is a terminal on which lines can be erased and drawn again. It is not if
 * TERM is "dumb" or missing. */
bool plm_terminal_can_redraw(int descriptor);
/* Whether the locale of the environment (LC_ALL, LC_CTYPE, LANG) encodes text as UTF-8. */
bool plm_terminal_is_utf8(void);

#endif
