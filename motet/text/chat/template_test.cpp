#include "motet/text/chat/template.h"

#include <ctime>
#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using Json = nlohmann::ordered_json;

const char* const kChat =
    "{% for m in messages %}\n"
    "{{- '<|' + m['role'] + '|>\\n' + m.content | trim }}\n"
    "{%- endfor %}\n"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

Json chat() {
  return {{"messages", {{{"role", "user"}, {"content", " Hi "}}, {{"role", "assistant"}, {"content", "Ho"}}}},
          {"add_generation_prompt", true}};
}

TEST(ChatTemplate, MessagesBecomeText) {
  EXPECT_EQ(ChatTemplate(kChat).render(chat()), "<|user|>\nHi<|assistant|>\nHo<|assistant|>");
}

TEST(ChatTemplate, NumbersAreThoseOfPythonsRepr) {
  const ChatTemplate form("{{ x }} {{ {'a': x} }} {{ x | tojson }}");
  for (const auto& [value, text] : {std::pair(0.0001, "0.0001"),
                                    {0.00012345678901234567, "0.00012345678901234567"},
                                    {0.0009, "0.0009"},
                                    {1e-5, "1e-05"},
                                    {9.999999999999999e-05, "9.999999999999999e-05"},
                                    {0.0, "0.0"},
                                    {-0.0, "-0.0"},
                                    {-2.5, "-2.5"},
                                    {100.0, "100.0"},
                                    {0.1 + 0.2, "0.30000000000000004"},
                                    {1e15, "1000000000000000.0"},
                                    {9999999999999998.0, "9999999999999998.0"},
                                    {1e16, "1e+16"},
                                    {123456789012345680.0, "1.2345678901234568e+17"},
                                    {1e300, "1e+300"},
                                    {5e-324, "5e-324"}})
    EXPECT_EQ(form.render({{"x", value}}), motet::text(text, " {'a': ", text, "} ", text));
}

// As jinja2 3.1.
TEST(ChatTemplate, LinesMayEndAsWindowsOrOldMacsEndThem) {
  const std::string source = "a\n{% if true %}\n  b {{ 'c\nd\\r\\n' }}\n  {% endif %}\n{#- e #}\nf\n";
  const std::string text = ChatTemplate(source).render(Json::object());
  EXPECT_EQ(text, "a\n  b c\nd\r\n\nf");
  for (const std::string end : {"\r\n", "\r"}) {
    std::string other;
    for (const char c : source) other += c == '\n' ? end : std::string(1, c);
    EXPECT_EQ(ChatTemplate(other).render(Json::object()), text);
    const std::string message = message_of<Error>([&] { ChatTemplate("a" + end + "{{ 1 + }}", "t"); });
    EXPECT_EQ(message, "t: line 2: an expression ends too early");
  }
}

// As jinja2 3.1.
TEST(ChatTemplate, APlusAtTheEndOfATagKeepsTheLineBreak) {
  const char* const source = "{% if true +%}\na{% endif +%}\nb{# c +#}\nd{% set x = 1 %}\ne{{ 1 }}\n{#+#}\nf";
  EXPECT_EQ(ChatTemplate(source).render(Json::object()), "\na\nb\nde1\nf");
  EXPECT_EQ(message_of<Error>([] { ChatTemplate("{{ 1 +}}", "t"); }), "t: line 1: an expression ends too early");
}

// As transformers' environment of jinja2 3.1.
TEST(ChatTemplate, ArgumentsAndOperatorsMeanWhatPythonMeans) {
  const auto shows = [](const std::string& expression, const std::string& text) {
    const Json variables = {{"s", "aXbXc"}, {"x", 3}, {"big", INT64_MIN}, {"d", {{"b", 1}, {"a", {2, true}}}}};
    EXPECT_EQ(ChatTemplate("{{ " + expression + " }}").render(variables), text) << expression;
  };
  shows("s|replace('X', '-', 1) ~ s.replace('X', '-', 1)", "a-bXca-bXc");
  shows("s|replace('X', '-', none) ~ s.replace('X', '-', -1) ~ s.replace('X', '-', 0)", "a-b-ca-b-caXbXc");
  shows("s.split('X', 1)", "['a', 'bXc']");
  shows("d|tojson(indent=none)", R"({"b": 1, "a": [2, true]})");
  shows("x == 3 == 3", "True");
  shows("1 < 3 < 2", "False");
  shows("3 > 2 == true", "False");
  shows("0 < x < 5 < 4", "False");
  shows("1 < x <= 3 != 4", "True");
  shows("x in [3] in [[3]]", "True");
  shows("1 > 2 > [].y.z", "False");  // is not looked at
  shows("d == {'a': [2, 1], 'b': true}", "True");
  shows("d == {'a': [2, 1], 'c': 1}", "False");
  shows("d != {'a': [2], 'b': 1}", "True");
  shows("true + 1", "2");
  shows("-true ~ (true is odd) ~ (-7 // 2) ~ (-7 % 2) ~ (7 // -2) ~ (7 % -2) ~ (-6 // 3)", "-1True-41-4-1-2");
  shows("big // 3 ~ ' ' ~ big % 3", "-3074457345618258603 1");
  shows("(big + 1 > big) ~ (big < big) ~ (1 <= true)", "TrueFalseTrue");
  shows("s.split(sep='X', maxsplit=1) ~ ''|default(boolean=true) ~ ''|default('b', true)", "['a', 'bXc']b");
  shows("-x|string ~ (-1 is number) ~ (-x is odd)", "-3TrueTrue");  // a filter binds looser
  shows("d.a[true] ~ 'xyz'[true]", "Truey");
  shows("d.a[none::-1] ~ d.a[:none:none]", "[True, 2][2, True]");
  shows("x is in [2, 3] and x is eq 3 and x is not in [] and x is odd", "True");
  shows("u|items|list", "[]");
  shows("[u] ~ {'k': u}", "[Undefined]{'k': Undefined}");
  shows("['foo_bar 1st it\\'s a-b (c [d']|map(attribute='x')|list ~ 'fOO_bar 1st it\\'s a-b (c [d <e'|title",
        "[Undefined]Foo_bar 1st It's A-B (C [D <E");
  shows("'foo_bar 1st'.title()", "Foo_Bar 1St");
  shows("''|default('b', boolean=true) ~ d|tojson(ensure_ascii=false)", R"(b{"b": 1, "a": [2, true]})");
  shows("'1_000'|int ~ '_1'|int ~ '1__0'|int", "100000");
  shows("[true] == [1.0] and [1] in [[true]] and [[]] != [{}]", "True");
}

TEST(ChatTemplate, ArgumentsThatWouldBeIgnoredAreRefused) {
  const auto refused = [](const std::string& expression) {
    return message_of<Error>([&] { ChatTemplate("{{ " + expression + " }}", "t").render({{"d", Json::object()}}); });
  };
  EXPECT_EQ(refused("'a'.startswith('X', 1)"), "t: line 1: startswith takes at most 1 argument here and got 2");
  EXPECT_EQ(refused("'a'.upper(1)"), "t: line 1: upper takes no argument here and got 1");
  EXPECT_EQ(refused("d.get(1, 2, 3)"), "t: line 1: get takes at most 2 arguments here and got 3");
  EXPECT_EQ(refused("'a'|replace('X', '-', 1, 2)"), "t: line 1: replace takes at most 3 arguments here and got 4");
  EXPECT_EQ(refused("'a'|replace('X')"), "t: line 1: the filter replace wants two strings");
  EXPECT_EQ(refused("'a'.replace('X', '-', 'y')"), "t: line 1: replace wants an integer as count and got 'y'");
  EXPECT_EQ(refused("'a b c'.split(none, 1)"), "t: line 1: split wants a separator before a count");
  EXPECT_EQ(refused("'a b c'.split(maxsplit=1)"), "t: line 1: split() takes no 'maxsplit' here");
  EXPECT_EQ(refused("range(stop=3)"), "t: line 1: range() takes no 'stop' here");
  EXPECT_EQ(refused("raise_exception(message='no')"), "t: line 1: no");
  EXPECT_EQ(refused("''|default(boolean=true, 'b')"), "t: line 1: an argument without a name stands behind 'boolean'");
  EXPECT_EQ(refused("d|tojson(indent=1, indent=2)"), "t: line 1: 'indent' is given twice");
  EXPECT_EQ(refused("1 is string 2"), "t: line 1: the test string takes no argument and got 1");
  EXPECT_EQ(refused("d is defined(1)"), "t: line 1: the test defined takes no argument and got 1");
  EXPECT_EQ(refused("d|tojson(ensure_ascii=true)"), "t: line 1: tojson with ensure_ascii is not supported");
  EXPECT_EQ(refused("'1f'|int(0, 16)"), "t: line 1: int takes at most 1 argument here and got 2");
  EXPECT_EQ(refused("d|tojson(2)"), "t: line 1: the filter tojson is only supported as tojson(indent=...)");
  EXPECT_EQ(refused("d|tojson(indent='  ')"), "t: line 1: tojson wants an integer as indent and got '  '");
}

// What Python would do otherwise, or not at all, is refused.
TEST(ChatTemplate, ValuesThatWouldBeOthersAreRefused) {
  const auto refused = [](const std::string& source) {
    const Json variables = {{"big", 18446744073709551615u}, {"l", {1, 2}}, {"d", {{"a", 1}}}};
    return message_of<Error>([&] { ChatTemplate(source, "t").render(variables); });
  };
  EXPECT_EQ(refused("{{ {'a': u}|tojson }}"), "t: line 1: tojson of something undefined");
  EXPECT_EQ(refused("{{ d.items|tojson }}"), "t: line 1: tojson of a method");
  EXPECT_EQ(refused("{{ {1: 'a'} }}"), "t: line 1: a key of a mapping wants a string and got '1'");
  for (const char* of : {"big + 1", "-big", "l[big]", "l[:big]", "range(big)"})
    EXPECT_EQ(refused(text("{{ ", of, " }}")), "t: line 1: a number is too large") << of;
  EXPECT_EQ(refused("{{ ','.join(l) }}"), "t: line 1: join() wants a string and got '1'");
  EXPECT_EQ(refused("{{ u.strip() }}"), "t: line 1: strip() wants a string and got something undefined");
  EXPECT_EQ(refused("{{ [d]|map(attribute='x.y')|list }}"), "t: line 1: something undefined has no member 'y'");
  EXPECT_EQ(refused("{{ l|first.role }}"), "t: line 1: '.' is too much");
  EXPECT_EQ(refused("{{ -l|length }}"), "t: line 1: - wants a number and got '[1, 2]'");
  for (const char* of : {"{{ 'a'|safe + '>' }}", "{{ ('a'|safe) ~ '>' + 'a'|safe }}", "{% set x = 'a'|safe %}",
                         "{{ ['a'|safe]|join('>')|safe }}"})
    EXPECT_EQ(refused(of), "t: line 1: the filter safe is only supported at the end of what is printed or beside ~")
        << of;
  EXPECT_EQ(ChatTemplate("{{ ('a'|safe ~ '>' ~ ('b'|safe if l)) + '<' }}").render({{"l", {1}}}), "a>b<");
  EXPECT_EQ(ChatTemplate("{{ l|join('>')|safe|safe }}{{ '<'|safe if l else 'x' }}").render({{"l", {1, 2}}}), "1>2<");
  EXPECT_EQ(refused("{% set x, y = [1] %}"), "t: line 1: a 'set' of 2 names got '[1]'");
  for (const char* of :
       {"{% set x = 1, 2 %}", "{% set x = (1, 2) %}", "{{ (1,) }}", "{{ ((1, 2),)[0] }}", "{{ l == () }}",
        "{{ l in ([1], (1, 2)) }}", "{{ (1, 2) in l }}", "{% for x in [(1, 2)] %}{% endfor %}",
        "{% for x, y in [((1, 2), 3)] %}{% endfor %}", "{% if (1, 2) %}{% endif %}", "{% set x, y = (1,), 2 %}"})
    EXPECT_EQ(refused(of),
              "t: line 1: a tuple is only supported behind 'in', as a 'set' of several names and in the list of a "
              "loop of several")
        << of;
  EXPECT_EQ(refused("{% for x, y in [(1, 2)] %}{{ loop.index }}{% endfor %}"),
            "t: line 1: a loop over tuples whose body has 'loop' is not supported");
  EXPECT_EQ(refused("{{ 'a\\\nb' }}"), "t: line 1: the escape '\\\\n' is not supported");
  const std::string space = "{% set ns = namespace(a=1) %}",
                    members = "t: line 1: a namespace is only supported by its members, as in ns.name";
  for (const char* of : {"{{ ns }}", "{% set b = ns %}", "{{ ns is mapping }}", "{{ ns.items() }}", "{{ [ns] }}"})
    EXPECT_EQ(refused(space + of), members) << of;
  EXPECT_EQ(refused("{{ namespace(a=1) }}"),
            "t: line 1: namespace() is only supported as what a 'set' gives a name to");
  EXPECT_EQ(ChatTemplate(space + "{{ ns is defined }}{% set ns.items = 2 %}{{ ns.items }}{{ ns['a'] }}")
                .render(Json::object()),
            "True21");
}

TEST(ChatTemplate, TuplesStandWhereAListDoesTheSame) {
  const auto shows = [](const std::string& source, const std::string& text) {
    EXPECT_EQ(ChatTemplate(source).render({{"r", "user"}}), text) << source;
  };
  shows("{{ r in ('user', 'tool') }}{{ r not in ('a', 'b',) }}{{ r in ('a',) }}{{ r in () }}", "TrueTrueFalseFalse");
  shows("{{ 'use' in ('user') }}{{ 'use' in ('user',) }}{{ not r in (r, 1) or r in ((r, 2)) }}", "TrueFalseTrue");
  shows("{% for x in ('a', 'b') %}{{ loop.index }}{{ x }}{% else %}-{% endfor %}", "1a2b");
  shows("{% for x in () %}{{ x }}{% else %}-{% endfor %}", "-");
  shows("{% for k, v in [('a', 1), ('b', 2)] if v > 1 %}{{ k }}{{ v }}{% endfor %}", "b2");
  shows("{% for k, v in (('a', 1), ['b', 2]) %}{{ k }}{{ v }}{% endfor %}", "a1b2");
  shows("{% set a, b = ('x', r) %}{{ a }}{{ b }}{{ r if r in (a, b) else '-' }}", "xuseruser");
}

// As transformers' environment of jinja2 3.1.
TEST(ChatTemplate, AttributesAreThoseOfPythonsValues) {
  const Json variables = {{"d", {{"items", {{"type", "x"}}}, {"pop", 1}}}, {"s", "a"}, {"l", {1}}};
  const auto shows = [&](const std::string& expression, const std::string& text) {
    EXPECT_EQ(ChatTemplate("{{ " + expression + " }}").render(variables), text) << expression;
  };
  shows("d.items.type is defined", "False");
  shows("d['items'].type", "x");
  shows("d.items is defined ~ d.get is defined ~ s.strip is defined ~ s['strip'] is defined", "TrueTrueTrueTrue");
  shows("l.index is defined ~ d.pop is defined ~ l.append is defined ~ s.items is defined", "TrueFalseFalseFalse");
  shows("d.keys()|list", "['items', 'pop']");
}

void renders(const std::string& source, const std::string& text) {
  EXPECT_EQ(ChatTemplate(source).render(Json::object()), text) << source;
}

// As transformers' environment of jinja2 3.1.
TEST(ChatTemplate, NamesStayInTheBlockThatSetsThem) {
  renders("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}[{{ x }}]", "1[]");
  renders("{% set n = 2 %}{% for x in [] %}{% else %}{% set n = 5 %}{{ n }}{% endfor %}{{ n }}", "52");
  renders("{% for x in [1, 2] %}{{ x }}{% break %}{% else %}e{% endfor %}", "1e");
  renders("{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor %}", "2");
  const std::string seen = "{% set ns = namespace(seen=false) %}{% for x in [3, 1] if not ns.seen %}{{ x }}";
  renders(seen + "{% set ns.seen = true %}{% else %}e{% endfor %}", "3");  // asked in each turn
  EXPECT_EQ(
      message_of<Error>([&] { ChatTemplate(seen + "{{ loop.index }}{% set ns.seen = true %}{% endfor %}", "t"); }),
      "t: line 1: a loop's filter of what a body with 'loop' sets is not supported");
  renders("{% for x in [3, 1, 2] if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}", "3222");
  renders("{% for x in [3, 1, 2] if x > 3 %}{{ x }}{% else %}e{% endfor %}", "e");
  renders("{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1");
  renders("{% for x in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "10");
}

// As transformers' environment of jinja2 3.1.
TEST(ChatTemplate, WhiteSpaceIsThatOfUnicode) {
  renders("a\u3000{{- 1 -}}\u00a0\x1c b", "a1b");
  renders("x\n\u3000{% if 1 %}b{% endif %}", "x\nb");
  renders("\u3000{% if 1 %}b{% endif %}", "b");
  renders("x\u3000{% if 1 %}b{% endif %}", "x\u3000b");
  renders("\u4e2d{{-\u00a01\u3000}}", "\u4e2d1");
  renders(
      "{{ 'a\x1c"
      "b c'.split() }}",
      "['a', 'b', 'c']");
  renders("{{ ['a\u200bb\x01\u00a0', 'it\\'s', '\U000e0001'] }}", "['a\\u200bb\\x01\\xa0', \"it's\", '\\U000e0001']");
}

// As jinja2 3.1.
TEST(ChatTemplate, IntGivesItsArgumentForWhatIsNoNumber) {
  const char* const source =
      "{{ 'z'|int(5) }} {{ 'z'|int }} {{ ' 12 '|int(5) }} {{ '+7'|int }} {{ '-3.7'|int(5) }} {{ '1e3'|int }} "
      "{{ 'nan'|int(6) }} {{ none|int(7) }} {{ []|int }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ ''|int('x') }} "
      "{{ long|int }}";
  EXPECT_EQ(ChatTemplate(source).render({{"long", 9007199254740993}}),
            "5 0 12 7 -3 1000 6 7 0 3 -3 1 x 9007199254740993");
}

TEST(ChatTemplate, MistakesAreNamedWithTheirLine) {
  const auto refused = [](const std::string& source) {
    return message_of<Error>([&] { ChatTemplate(source, "t").render(Json::object()); });
  };
  EXPECT_EQ(refused("a\n{% import 'x' %}"),
            "t: line 2: the statement 'import' is not supported; known: if, for, set, macro, generation, break, "
            "continue");
  EXPECT_EQ(refused("{{ 1 + }}"), "t: line 1: an expression ends too early");
  EXPECT_EQ(refused("{{ x.y }}"), "t: line 1: something undefined has no member 'y'");
  EXPECT_EQ(refused("a\n{{ raise_exception('no\nend') }}"), "t: line 2: no end");
  for (const char* around : {"[#][0]", "{'a': #}['a']", "x|default(#)", "'a'.get(#)", "'a' is eq(#)"}) {
    std::string nested = "1";
    for (int i = 0; i < 46; ++i) {
      std::string sum;
      for (int k = 0; k < 20; ++k) sum += "+1";
      nested = std::string(around).replace(std::string_view(around).find('#'), 1, nested) + sum;
    }
    EXPECT_EQ(refused("{{ " + nested + " }}"), "t: line 1: an expression has more than 400 operators") << around;
  }
  std::string deep = "1";
  for (int i = 0; i < 1000; ++i) deep += "+1";
  EXPECT_EQ(refused("{{ " + deep + " }}"), "t: line 1: an expression has more than 400 operators");
  EXPECT_EQ(refused("{{ " + std::string(1000, '(') + " }}"), "t: line 1: an expression is more than 48 levels deep");
}

// Templates ask whether there is one, and write a date of their own where there is none.
TEST(ChatTemplate, StrftimeNowIsTodaysDate) {
  const std::string format = "%d %b %Y";
  const auto today = [&] {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    char text[64];
    return std::string(text, std::strftime(text, sizeof text, format.c_str(), ::localtime_r(&now, &local)));
  };
  const ChatTemplate source(
      "{% if strftime_now is defined %}{% set d = strftime_now('%d %b %Y') %}{% else %}{% set d = '26 Jul 2024' %}"
      "{% endif %}{{ d }}{{ other is defined }}");
  const std::string before = today(), text = source.render(Json::object()), after = today();
  EXPECT_TRUE(text == before + "False" || text == after + "False") << text;
  const auto refused = [](const std::string& call) {
    return message_of<Error>([&] { ChatTemplate("{{ strftime_now(" + call + ") }}", "t").render(Json::object()); });
  };
  EXPECT_EQ(refused(""), "t: line 1: strftime_now() wants one text");
  EXPECT_EQ(refused("5"), "t: line 1: strftime_now() wants one text");
  EXPECT_EQ(refused("'%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c%c'"),
            "t: line 1: strftime_now() makes nothing, or more than 255 bytes");
  EXPECT_EQ(ChatTemplate("[{{ strftime_now('') }}]").render(Json::object()), "[]");
  EXPECT_EQ(ChatTemplate("[{{ strftime_now('%z%Z%%f') }}]").render(Json::object()),
            "[%f]");  // as of a time without zone
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%f')|length }}").render(Json::object()), "6");
}

// Whether it is a namespace is told by its first member: a search for each look at it would take minutes.
TEST(ChatTemplate, LooksAtALargeMappingDoNotSearchIt) {
  Json large = Json::object();
  auto& members = large.get_ref<Json::object_t&>();
  for (int i = 0; i < 100000; ++i) members.push_back({std::to_string(i), 0});
  const ChatTemplate looks("{% for i in range(100000) %}{% if x['0'] %}{% endif %}{% endfor %}");
  EXPECT_EQ(looks.render({{"x", large}}), "");
  EXPECT_EQ(ChatTemplate("{{ x }}").render({{"x", {{"\x01namespace", true}}}}), "{'\\x01namespace': True}");
}

// A list of messages is looked at where it stands: a copy for each look at one of them would take an hour.
TEST(ChatTemplate, LooksAtALongListCostNoCopyOfIt) {
  Json messages = Json::array();
  for (int i = 0; i < 20000; ++i) messages.push_back({{"role", i % 2 == 0 ? "a" : "b"}, {"content", "x"}});
  const ChatTemplate other(
      "{% for m in messages %}{% if loop.index0 > 0 and messages[loop.index0 - 1].role != m.role %}"
      "{{ messages|length - loop.index0 }} {% endif %}{% endfor %}");
  const std::string text = other.render({{"messages", messages}});
  EXPECT_EQ(text.substr(0, 12), "19999 19998 ");
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 19999);
}

TEST(ChatTemplate, ListsThatAreCopiedAgainAndAgainAreRefused) {
  Json messages = Json::array();
  for (int i = 0; i < 20000; ++i) messages.push_back("x");
  EXPECT_EQ(message_of<Error>([&] {
              ChatTemplate("{% for m in messages %}{% set all = messages %}{% endfor %}", "t")
                  .render({{"messages", messages}});
            }),
            "t: line 1: the template moves more than a gigabyte");
}

// What copies, prints or compares a value goes down into it.
TEST(ChatTemplate, ValuesThatGrowDeepAreRefused) {
  const auto deep = [](int levels) {
    return "{% set ns = namespace(l='x') %}{% for i in range(" + std::to_string(levels) +
           ") %}{% set ns.l = [{'k': ns.l}] if i % 2 else [ns.l] %}{% endfor %}{{ ns.l|length }}";
  };
  EXPECT_EQ(ChatTemplate(deep(60)).render(Json::object()), "1");
  for (const int levels : {70, 100000})
    EXPECT_EQ(message_of<Error>([&] { ChatTemplate(deep(levels), "t").render(Json::object()); }),
              "t: line 1: a value is more than 100 levels deep");
}

TEST(ChatTemplate, WhatAnExpressionNamesIsNotChanged) {
  const char* const source =
      "{% set a = [1, 2] %}{% set b = a %}{% set a = [3] %}{{ b[0] }}{{ a[-1] }}{{ [[7, 8], [9]][0][1] }}{{ 'xyz'[1] }}"
      "{{ {'k': {'l': 'm'}}.k.l }}{{ ('a' + 'b')[1] }}{{ a[5] is defined }}";
  EXPECT_EQ(ChatTemplate(source).render(Json::object()), "138ymbFalse");
}

TEST(ChatTemplate, WhatIsMarkedAsGeneratedIsAPlainBlock) {
  const std::string source =
      "{% for m in messages %}{%- if m.role == 'assistant' %}\n{% generation %}\n  {{- m.content }}\n"
      "{% endgeneration %}\n{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(ChatTemplate(source).render(chat()), " Hi Ho\n");
  EXPECT_EQ(message_of<Error>([] { ChatTemplate("{% generation %}", "t"); }), "t: line 1: 'endgeneration' is missing");
}

const Json kVariables = {{"x", 7}, {"l", {1, 2, 3}}};

// Macros and block sets: what is expected here is the text of transformers' environment of jinja2 3.1.
void expect_text(const std::string& source, const std::string& text) {
  EXPECT_EQ(ChatTemplate(source).render(kVariables), text) << source;
}

std::string macro_refusal(const std::string& source) {
  return message_of<Error>([&] { ChatTemplate(source, "t").render(kVariables); });
}

TEST(ChatTemplate, AMacroTakesTheArgumentsOfItsCall) {
  const std::string f = "{% macro f(a, b=1) %}[{{ a }},{{ b }}]{% endmacro %}";
  expect_text(f + "{{ f() }}{{ f(2) }}{{ f(2, 3) }}{{ f(b=3) }}{{ f(b=3, a=4) }}", "[,1][2,1][2,3][,3][4,3]");
  expect_text(f + "{{ f(u, u) }}{{ f(2)|length + 1 }}{{ f(1) ~ f(2) == '[1,1][2,1]' }}", "[,]6True");
  expect_text("{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}{{ f(u) }}{{ f(none) }}", "FalseFalseTrue");
  expect_text("{% macro f(a, b=a, c=x) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(b=2) }}", "117 27");
  expect_text("{% macro f(x=x) %}[{{ x }}]{% endmacro %}{{ f() }}{{ x }}", "[]7");
  expect_text("{% macro f(a=b, b=1) %}[{{ a }}{{ b }}]{% endmacro %}{{ f() }}{{ f(b=2) }}", "[1][22]");
  EXPECT_EQ(macro_refusal(f + "\n{{ f(1, 2, 3) }}"), "t: line 2: the macro 'f' takes at most 2 arguments and got 3");
  EXPECT_EQ(macro_refusal(f + "{{ f(1, a=2) }}"), "t: line 1: the macro 'f' takes no 'a' here");
  EXPECT_EQ(macro_refusal(f + "{{ f(c=2) }}"), "t: line 1: the macro 'f' takes no 'c' here");
}

TEST(ChatTemplate, AMacroSeesTheNamesAroundItAndNotAroundItsCall) {
  const std::string f = "{% macro f() %}{{ y }}{% endmacro %}", loop = "{% for i in [1] %}{% set y = 2 %}{{ f() }}";
  expect_text(f + loop + "{% endfor %}", "");
  expect_text("{% set y = 1 %}" + f + loop + "{{ y }}{% endfor %}", "12");
  expect_text(f + "{% set y = 3 %}{{ f() }}{% set y = 4 %}{{ f() }}", "34");
  expect_text(
      "{% for i in l %}{% macro f() %}{{ i }}{{ loop.last }} {% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}",
      "1False 2False 3True False");
  expect_text("{% macro f() %}{% set x = 3 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}", "37");
  expect_text("{% macro f(y) %}{% macro g() %}{{ y }}{% endmacro %}{{ g() }}{% endmacro %}{{ f(1) }}{{ g is defined }}",
              "1False");
  expect_text("{% if x %}{% macro f() %}a{% endmacro %}{% else %}{% macro f() %}b{% endmacro %}{% endif %}{{ f() }}",
              "a");
  expect_text("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210");
  expect_text("{% set ns = namespace(n=1) %}{% macro f() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ f() }}{{ ns.n }}",
              "2");
}

TEST(ChatTemplate, ANameIsUndefinedUntilItsScopeSetsIt) {
  const std::string f = "{% macro f() %}{{ x }}.{% endmacro %}{{ f() }}";
  expect_text(f + "{% set x = 5 %}{{ f() }}", ".5.");
  expect_text(f + "{% set x %}6{% endset %}{{ f() }}", ".6.");
  expect_text("{{ x }}" + f + "{% set x = 5 %}", "77.");
  expect_text(f + "{% if l %}{% set x = 5 %}{% endif %}{{ f() }}", "7.5.");
  expect_text("{% for i in [1] %}{{ x }}{% endfor %}{% set x = 5 %}{{ x }}", "5");
  expect_text("{% for i in [1, 2] %}" + f + "{% set x = i %}{% endfor %}{{ f() if f is defined }}", "..");
  expect_text("{% for i in [1] if x %}{% set x = 5 %}{{ x }}{% endfor %}", "5");
  expect_text("{% for i in [1, 2] %}{{ f is defined }}{% macro f() %}{% endmacro %}{% endfor %}", "FalseFalse");
}

// A namespace is all that a macro can change around it, and an operand is what it was before.
TEST(ChatTemplate, OperandsStayWhileAMacroIsCalled) {
  const std::string space =
      "{% set ns = namespace(t='abc', l=[[1], 2]) %}{% macro f() %}{% set ns.t = 'xyz' %}"
      "{% set ns.l = [] %}{% for i in l %}{% set ns.a = 1 %}{% set ns.b = 1 %}{% endfor %}b{% endmacro %}";
  expect_text(space + "{{ ns.t ~ f() ~ ns.t }}", "abcbxyz");
  expect_text(space + "{{ ns.t.replace(f(), '-') }}{{ ns.t|replace('x', f()) }}", "a-cbyz");
  expect_text(space + "{{ ns.t|replace(f(), '-') }}{{ ns.t is eq f() }}", "a-cFalse");
  expect_text(space + "{{ ns.l[0 if f()] }}{{ ns.l }}", "[1][]");
  expect_text(space + "{{ ns.l[(0 if f()):] }}{{ ns.l }}", "[[1], 2][]");
}

TEST(ChatTemplate, ASetMayHoldABlock) {
  expect_text("{% set y %}a{{ x }}{% set z = 1 %}{% endset %}[{{ y }}{{ z }}]", "[a7]");
  expect_text("{% set y | upper | replace('A', 'b') %}a {{ x }}{% endset %}{{ y }}", "b 7");
  expect_text("{% set ns = namespace(a=1) %}{% set ns.a | trim %}\n b {% endset %}{{ ns.a }}", "b");
  expect_text("{% set y %}{% set y %}a{% endset %}{{ y }}b{% endset %}{{ y }}", "ab");
  expect_text("{% set y | length %}{% endset %}{{ y + 1 }}", "1");
  expect_text(
      "{% for i in l %}{% set y %}{{ i }}{% if i == 2 %}{% continue %}{% endif %}{% endset %}{{ y }},{% endfor %}",
      "1,3,");
  EXPECT_EQ(macro_refusal("{% set y %}a"), "t: line 1: 'endset' is missing");
  EXPECT_EQ(macro_refusal("{% set y is defined %}a{% endset %}"), "t: line 1: 'set' without '=' takes filters alone");
  EXPECT_EQ(macro_refusal("{% set a, b %}ab{% endset %}"),
            "t: line 1: 'set' of several names without '=' is not supported");
}

TEST(ChatTemplate, ASetMayHaveSeveralNames) {
  expect_text("{% set a, b = 1, 2 %}{% set a, b = b, a %}{{ a }}{{ b }}", "21");
  expect_text("{% set a, b, c = l %}{{ a }}{{ b }}{{ c }}", "123");
}

TEST(ChatTemplate, WhatAMacroMayNotBeIsSaid) {
  const std::string f = "{% macro f(a) %}{{ a }}{% endmacro %}";
  for (const char* of : {"{{ f }}", "{% set g = f %}", "{{ [f] }}", "{{ f.name }}", "{{ f(f) }}"})
    EXPECT_EQ(macro_refusal(f + of), "t: line 1: a macro is only supported where it is called, as in f()") << of;
  for (const std::string of : {"varargs", "kwargs", "caller"})
    EXPECT_EQ(macro_refusal("{% macro f() %}{{ " + of + " }}{% endmacro %}"),
              "t: line 1: '" + of + "' in a macro is not supported");
  EXPECT_EQ(macro_refusal("{% macro range() %}{% endmacro %}"),
            "t: line 1: a macro named as the function 'range' is not supported");
  EXPECT_EQ(macro_refusal("{% macro f(a, a) %}{% endmacro %}"), "t: line 1: the macro 'f' has two parameters 'a'");
  EXPECT_EQ(macro_refusal("{% macro f(a=1, b) %}{% endmacro %}"),
            "t: line 1: the parameter 'b' lacks a default behind one with it");
  EXPECT_EQ(macro_refusal("{% for i in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}"),
            "t: line 1: 'break' is outside of a loop");
  EXPECT_EQ(macro_refusal("{% set range = 3 %}{{ range(3) }}"), "t: line 1: 'range' is no function, but '3'");
  expect_text(f + "{% for i in l if f(i) != '2' %}{{ i }}{% endfor %}", "13");
  EXPECT_EQ(macro_refusal(f + "\n{% for i in l if f(i) != '2' %}{{ loop.index }}{% endfor %}"),
            "t: line 2: a loop's filter that calls a macro beside a body with 'loop' is not supported");
  EXPECT_EQ(macro_refusal("{% macro f() %}{% set ns.n = 1 %}{% endmacro %}\n"
                          "{% for i in l if ns.n %}{{ loop.index }}{{ f() }}{% endfor %}"),
            "t: line 2: a loop's filter of what a body with 'loop' sets is not supported");
}

TEST(ChatTemplate, CallsWithoutAnEndAreRefused) {
  const auto deep = "t: line 1: macros that call one another are more than 1000 levels deep";
  for (const char* of :
       {"{{ f(1) }}", "{{ f(f(1)) }}", "{% set y %}{{ f(1) }}{% endset %}", "{% if x|replace(f(1), '') %}{% endif %}"})
    EXPECT_EQ(macro_refusal(text("{% macro f(a) %}", of, "{% endmacro %}{{ f(1) }}")), deep) << of;
  EXPECT_EQ(macro_refusal("{% macro f(a=f()) %}{% endmacro %}{{ f() }}"), deep);
  EXPECT_EQ(macro_refusal("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"),
            "t: line 1: the template takes more than a million steps");
  const std::string large(1 << 20, 'y');
  EXPECT_EQ(macro_refusal("{% macro f() %}" + large + "{{ f() }}{% endmacro %}{{ f() }}"),
            "t: line 1: the text has more than 16 MB");
  const std::string left = "{% for i in range(100000) %}{% set y %}" + large + "{% continue %}{% endset %}{% endfor %}";
  EXPECT_EQ(macro_refusal(left), "t: line 1: the template moves more than a gigabyte");
  std::string many = "p";
  for (int i = 0; i < 255; ++i) many += ", p" + std::to_string(i);
  EXPECT_EQ(macro_refusal("{% macro f(" + many + ") %}{% endmacro %}"),
            "t: line 1: a macro has more than 255 parameters");
  EXPECT_EQ(macro_refusal("{{ f(" + many + ") }}"), "t: line 1: a call has more than 255 arguments");
  std::string calls = "{% macro f(" + many.substr(many.find(' ') + 1) + ") %}{% endmacro %}";
  EXPECT_EQ(macro_refusal(calls + "{% for i in range(50000) %}{{ f() }}{% endfor %}"),
            "t: line 1: the template takes more than a million steps");
}

TEST(ChatTemplate, CutOrChangedTemplatesNeverCrash) {
  const std::string source = kChat;
  const char* const parts[] = {"{%", "%}", "{{", "}}", "for", " in ", "|",     "[",
                               "]",  "(",  ")",  "'",  "-",   ":",    "endif", "set x = "};
  std::mt19937 random(1);
  const auto attempt = [](const std::string& text) {
    try {
      ChatTemplate(text).render(chat());
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  };
  for (size_t size = 0; size < source.size(); ++size) attempt(source.substr(0, size));
  for (int round = 0; round < 3000; ++round) {
    std::string changed = source;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % changed.size();
      random() % 2 ? changed.erase(at, 1 + random() % 8) : changed.insert(at, parts[random() % std::size(parts)]);
      if (changed.empty()) changed = "{";
    }
    attempt(changed);
  }
}

}  // namespace
}  // namespace motet
