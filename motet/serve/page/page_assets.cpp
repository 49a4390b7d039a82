#include "motet/serve/page/page_assets.h"

// Files between symbols, as in motet/report/html_assets.cpp, some of them the report's own.
#define MOTET_OWN(name) ".incbin \"" MOTET_PAGE_FOLDER "/" name "\"\n"
#define MOTET_REPORTS(name) ".incbin \"" MOTET_REPORT_FOLDER "/" name "\"\n"
#define MOTET_SYMBOL(name) ".global " name "\n.hidden " name "\n" name ":\n"

asm(".pushsection .rodata\n"               //
    MOTET_SYMBOL("motet_page_html")        //
    MOTET_OWN("page.html")                 //
    MOTET_SYMBOL("motet_page_style")       //
    MOTET_REPORTS("report.css")            //
    MOTET_OWN("page.css")                  //
    MOTET_SYMBOL("motet_page_script")      //
    MOTET_REPORTS("report.js")             //
    MOTET_OWN("page_before.js")            //
    MOTET_REPORTS("report_attention.js")   //
    MOTET_OWN("page.js")                   //
    MOTET_SYMBOL("motet_page_script_end")  //
    ".popsection\n");

extern "C" __attribute__((visibility("hidden"))) const char motet_page_html[];
extern "C" __attribute__((visibility("hidden"))) const char motet_page_style[];
extern "C" __attribute__((visibility("hidden"))) const char motet_page_script[];
extern "C" __attribute__((visibility("hidden"))) const char motet_page_script_end[];

namespace motet {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }

}  // namespace

std::string_view page_html() { return between(motet_page_html, motet_page_style); }
std::string_view page_style() { return between(motet_page_style, motet_page_script); }

const std::string& page_script() {
  static const std::string script =
      "\"use strict\";\n(() => {\n" + std::string(between(motet_page_script, motet_page_script_end)) + "})();\n";
  return script;
}

}  // namespace motet
