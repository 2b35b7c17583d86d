# IN, OUT, ID: writes OUT with a function that returns the text of IN. The assembler copies the file: as an array the
# tables of cuDNN take the compiler a minute.
file(WRITE "${OUT}" "#include <string_view>
asm(\".section .rodata\\n.global memplan_embedded_${ID}\\n.hidden memplan_embedded_${ID}\\nmemplan_embedded_${ID}:\\n\"
    \".incbin \\\"${IN}\\\"\\n.global memplan_embedded_${ID}_end\\n.hidden memplan_embedded_${ID}_end\\n\"
    \"memplan_embedded_${ID}_end:\\n.byte 0\\n.previous\\n\");
extern \"C\" {
extern const char memplan_embedded_${ID}[];
extern const char memplan_embedded_${ID}_end[];
}
namespace memplan::embedded {
std::string_view ${ID}() { return {memplan_embedded_${ID}, memplan_embedded_${ID}_end}; }
}
")
