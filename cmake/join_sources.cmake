# Writes OUTPUT, one source that includes nothing: the text of FIRST, and behind it that of INPUT with the text of what
# it includes, below ROOT, in place.
# cmake -DROOT=... -DFIRST=a.h -DINPUT=b.cu -DOUTPUT=... -P join_sources.cmake

file(READ ${ROOT}/${FIRST} joined)
file(READ ${ROOT}/${INPUT} text)
string(REGEX MATCHALL "#include \"[^\"]*\"" includes "${text}")
foreach(include ${includes})
  string(REGEX REPLACE "#include \"(.*)\"" "\\1" path ${include})
  file(READ ${ROOT}/${path} included)
  string(REPLACE "${include}" "${included}" text "${text}")
endforeach()
string(REPLACE "#pragma once\n" "" joined "${joined}${text}")
file(WRITE ${OUTPUT} "${joined}")
