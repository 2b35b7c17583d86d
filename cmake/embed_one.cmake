# IN, OUT, ID: writes OUT with a function that returns the text of IN, as an array because compilers limit literals.
file(READ "${IN}" _hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," _bytes "${_hex}")
file(WRITE "${OUT}" "#include <string_view>\nnamespace memplan::embedded {\nstatic const unsigned char data[] = {${_bytes}0};\n"
  "std::string_view ${ID}() { return {reinterpret_cast<const char*>(data), sizeof(data) - 1}; }\n}\n")
