# Reads three files: the paths that exist, the sections of pages (PAGE#SECTION), and references (FILE:LINE, a tab,
# PAGE[#SECTION]; a page without "doc/" in front is relative to the folder of the file, which is what links are). Prints
# the references to what is not there.
FNR == 1 { input++ }
input == 1 { exists[$0]; next }
input == 2 { section[$0]; next }
{
  split($0, field, "\t")
  place = field[1]; page = field[2]; anchor = ""
  at = index(page, "#")
  if (at > 0) { anchor = substr(page, at); page = substr(page, 1, at - 1) }
  if (field[3] == "link") {
    folder = place
    if (!sub(/\/[^\/]*$/, "/", folder)) folder = ""
    page = plain(folder page)
  }
  if (!(page in exists)) print place ": there is no " page
  else if (anchor != "" && page ~ /\.md$/ && !((page anchor) in section)) print place ": " page " has no section " anchor
}

# The path without "." and "..".
function plain(path,    part, count, i, kept, n, text) {
  count = split(path, part, "/")
  n = 0
  for (i = 1; i <= count; i++) {
    if (part[i] == "..") { if (n > 0) n-- }
    else if (part[i] != "" && part[i] != ".") kept[++n] = part[i]
  }
  text = n > 0 ? kept[1] : "."
  for (i = 2; i <= n; i++) text = text "/" kept[i]
  return text
}
