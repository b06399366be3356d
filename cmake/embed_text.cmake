# Writes OUTPUT, a C++ file that defines std::string_view <NAMESPACE>::<FUNCTION>() with the text of INPUT, behind which
# there is a zero byte.
# cmake -DINPUT=... -DOUTPUT=... -DHEADER=... -DNAMESPACE=... -DFUNCTION=... -P embed_text.cmake

file(READ ${INPUT} bytes HEX)
string(REGEX MATCHALL "................................" lines "${bytes}00000000000000000000000000000000")
string(JOIN "\n    " lines ${lines})
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," lines "${lines}")
file(SIZE ${INPUT} size)
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {

// NOLINTNEXTLINE(readability-function-size): the whole text is in it
std::string_view ${FUNCTION}() {
  static constexpr char kText[] = {
    ${lines}
  };
  return {kText, ${size}};
}

}  // namespace ${NAMESPACE}
")
