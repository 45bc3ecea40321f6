# Functions with more than eight parameters, which belong in a struct. Looks at definitions and declarations,
# which start in the first column, and at members of a table of functions, indented by two spaces.
FNR == 1 { gathering = 0; comment = 0 }
{
  line = $0
  sub(/[[:space:]]*\/\/.*$/, "", line)
  while (match(line, /\/\*([^*]|\*[^\/])*\*\//)) line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
  if (comment) { if (line !~ /\*\//) next; sub(/^.*\*\//, "", line); comment = 0 }
  if (line ~ /\/\*/) { sub(/\/\*.*$/, "", line); comment = 1 }
}
!gathering && (line ~ /^[A-Za-z_].*\(/ || line ~ /^  [A-Za-z_][A-Za-z_ ]*\**\(\*[a-z_0-9]+\)\(/) && line !~ /^(#|typedef|enum|return|else|extern)/ {
  gathering = 1; text = ""; at = FNR
}
gathering {
  text = text line
  if (line !~ /[;{]/) next
  gathering = 0
  sub(/^  [A-Za-z_ ]*\**\(\*/, "", text)
  sub(/^[^(]*\)?\(/, "", text)
  depth = 0; parameters = 1
  for (i = 1; i <= length(text); i++) {
    c = substr(text, i, 1)
    if (c == "(") depth++
    else if (c == ")") { if (depth == 0) break; depth-- }
    else if (c == "," && depth == 0) parameters++
  }
  if (parameters > 8) print FILENAME ":" at ": " parameters " parameters: more than eight belong in a struct"
}
