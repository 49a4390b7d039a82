#include "motet/report/html_assets.h"

#include <cstddef>

// The files of this folder between three symbols (see motet/data/builtin.cpp); the scripts follow each other.
#define MOTET_FILE(name) ".incbin \"" MOTET_REPORT_FOLDER "/" name "\"\n"
#define MOTET_SYMBOL(name) ".global " name "\n.hidden " name "\n" name ":\n"

asm(".pushsection .rodata\n"                 //
    MOTET_SYMBOL("motet_report_style")       //
    MOTET_FILE("report.css")                 //
    MOTET_SYMBOL("motet_report_script")      //
    MOTET_FILE("report.js")                  //
    MOTET_FILE("report_curves.js")           //
    MOTET_FILE("report_traces.js")           //
    MOTET_FILE("report_cost.js")             //
    MOTET_FILE("report_scaling.js")          //
    MOTET_FILE("report_attention.js")        //
    MOTET_FILE("report_mixes.js")            //
    MOTET_SYMBOL("motet_report_script_end")  //
    ".popsection\n");

extern "C" __attribute__((visibility("hidden"))) const char motet_report_style[];
extern "C" __attribute__((visibility("hidden"))) const char motet_report_script[];
extern "C" __attribute__((visibility("hidden"))) const char motet_report_script_end[];

namespace motet {

std::string_view report_style() {
  return {motet_report_style, static_cast<size_t>(motet_report_script - motet_report_style)};
}

std::string_view report_script() {
  return {motet_report_script, static_cast<size_t>(motet_report_script_end - motet_report_script)};
}

}  // namespace motet
