/* Draws the scores of all single substitutions in a terminal: one column for each position, one row
 * for each amino acid. */
#ifndef PLM_EVALUATOR_SCORE_HEAT_MAP_H
#define PLM_EVALUATOR_SCORE_HEAT_MAP_H

#include <stdbool.h>
#include <stdio.h>

#include "evaluator/score/variant.h"

enum { PLM_HEAT_MAP_ROWS = 20 };

/* The row of an amino acid: small and aliphatic ones first, then aromatic, polar and charged ones.
 * -1 for other letters. */
int plm_heat_map_row(uint8_t letter);

/* scores (length, PLM_HEAT_MAP_ROWS); NaN, drawn as a dot, stands for the wild type's own residue.
 * The map is cut into blocks that fit into `columns`. In colour, blue means likelier than the wild
 * type's residue, red less likely and white equally likely. Without colour, + means likelier, and
 * darker shades of grey mean less likely. The strongest shade belongs to the largest absolute
 * score. */
void plm_heat_map_draw(FILE *out, const struct plm_wild_type *wild_type, const double *scores,
                       int columns, bool color);

#endif
