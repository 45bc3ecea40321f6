/* report.css, embedded. */
#include "common/base/files/embedded_file.h"
#include "stages/views/report.h"

PLM_EMBED(plm_report_css, "stages/views/report.css");
