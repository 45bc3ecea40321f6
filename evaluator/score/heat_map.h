/* All single substitutions of a wild type as a map in a terminal: a column a position, a row a
 * residue. */
#ifndef PLM_EVALUATOR_SCORE_HEAT_MAP_H
#define PLM_EVALUATOR_SCORE_HEAT_MAP_H

#include <stdbool.h>
#include <stdio.h>

#include "evaluator/score/variant.h"

enum { PLM_HEAT_MAP_ROWS = 20 };

/* Row of an amino acid: small and aliphatic ones first, then aromatic, polar, charged; -1 for other
 * letters. */
int plm_heat_map_row(uint8_t letter);

/* scores (length, PLM_HEAT_MAP_ROWS), NaN where there is none: the wild type's residue, drawn as a
 * dot. In blocks as wide as `columns` allow. In colour red is unlikely, blue likely, white as
 * likely as the wild type's residue; without, + is likelier than it and four shades of grey are
 * less and less likely. The strongest shade is that of the largest absolute score. */
void plm_heat_map_draw(FILE *out, const struct plm_wild_type *wild_type, const double *scores,
                       int columns, bool color);

#endif
