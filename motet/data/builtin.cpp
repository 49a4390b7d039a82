#include "motet/data/builtin.h"

// The assembler places the file's bytes between two symbols; as a C++ literal they would cost the compiler seconds.
asm(".pushsection .rodata\n"
    ".global motet_builtin_text_begin\n"
    ".hidden motet_builtin_text_begin\n"
    "motet_builtin_text_begin:\n"
    ".incbin \"" MOTET_BUILTIN_TEXT
    "\"\n"
    ".global motet_builtin_text_end\n"
    ".hidden motet_builtin_text_end\n"
    "motet_builtin_text_end:\n"
    ".popsection\n");

extern "C" __attribute__((visibility("hidden"))) const char motet_builtin_text_begin[];
extern "C" __attribute__((visibility("hidden"))) const char motet_builtin_text_end[];

namespace motet {

std::string_view builtin_text() {
  return {motet_builtin_text_begin, static_cast<size_t>(motet_builtin_text_end - motet_builtin_text_begin)};
}

}  // namespace motet
