/* What a person sees of a run in the foreground: the lines of the stages, each after the stage's
 * name, and on a terminal a live block below them. In the background, only what the supervisor says
 * is printed, and goes to its log. */
#ifndef PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_SCREEN_H
#define PLM_STAGES_SUPERVISOR_REPORT_SUPERVISOR_SCREEN_H

#include <stdbool.h>

#include "stages/supervisor/report/supervisor_live.h"
#include "stages/supervisor/supervised.h"

struct screen {
  struct stages *stages; /* their logs are read */
  bool detached;         /* in the background */
  bool quiet;
  bool color;       /* wanted; after screen_open, used */
  bool lines;       /* the stages' lines are shown */
  bool on_terminal; /* a live block is drawn below them */
  struct live live; /* if on_terminal */
};

/* The caller has set stages, detached, quiet and color. */
void screen_open(struct screen *screen);
/* Prints a message of the supervisor. It works before screen_open as well. */
void screen_say(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints new lines of the stages, and draws the live block. */
void screen_update(struct screen *screen);
/* The same for the last time, with lines that have no end, and erases the block. */
void screen_close(struct screen *screen);

#endif
