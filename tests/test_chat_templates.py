"""Chat templates are rendered as the jinja2 package does, set up as Hugging Face transformers does."""
import datetime
import json
import subprocess

import pytest
from conftest import MOTET, environment, run
from serving import serving, small_model

jinja2 = pytest.importorskip("jinja2")
sandbox = pytest.importorskip("jinja2.sandbox")

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
LLAMA31 = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
MISTRAL = """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"""
QWEN3_CODER = r"""{% macro render_extra_keys(json_dict, handled_keys) %}
    {%- if json_dict is mapping %}
        {%- for json_key in json_dict if json_key not in handled_keys %}
            {%- if json_dict[json_key] is mapping or (json_dict[json_key] is sequence and json_dict[json_key] is not string) %}
                {{- '\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}
            {%- else %}
                {{-'\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = [] %}
{%- endif %}
{%- if system_message is defined %}
    {{- "<|im_start|>system\n" + system_message }}
{%- else %}
    {%- if tools is iterable and tools | length > 0 %}
        {{- "<|im_start|>system\nYou are Qwen, a helpful AI assistant." }}
    {%- endif %}
{%- endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- "\n\n# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}
            {%- set tool = tool.function %}
        {%- endif %}
        {{- "\n<function>\n<name>" ~ tool.name ~ "</name>" }}
        {%- if tool.description is defined %}
            {{- '\n<description>' ~ (tool.description | trim) ~ '</description>' }}
        {%- endif %}
        {{- '\n<parameters>' }}
        {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined and tool.parameters.properties is mapping %}
            {%- for param_name, param_fields in tool.parameters.properties|items %}
                {{- '\n<parameter>' }}
                {{- '\n<name>' ~ param_name ~ '</name>' }}
                {%- if param_fields.type is defined %}
                    {{- '\n<type>' ~ (param_fields.type | string) ~ '</type>' }}
                {%- endif %}
                {%- set handled_keys = ['name', 'type', 'description'] %}
                {{- render_extra_keys(param_fields, handled_keys) }}
                {{- '\n</parameter>' }}
            {%- endfor %}
        {%- endif %}
        {%- set handled_keys = ['type', 'properties'] %}
        {{- render_extra_keys(tool.parameters, handled_keys) }}
        {{- '\n</parameters>' }}
        {%- set handled_keys = ['type', 'name', 'description', 'parameters'] %}
        {{- render_extra_keys(tool, handled_keys) }}
        {{- '\n</function>' }}
    {%- endfor %}
    {{- "\n</tools>" }}
{%- endif %}
{%- for message in loop_messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
HERMES = r"""{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool"
} %}

{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" +  json_to_python_type(json_spec|items) + "]"}}
{%- elif json_spec.type == "object" %}
    {%- if json_spec.additionalProperties is defined %}
        {{- "dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']'}}
    {%- else %}
        {{- "dict" }}
    {%- endif %}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}
        {{- "," }}
    {%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}


{{- bos_token }}
{{- '<|im_start|>system\n' }}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}
        {%- set tool = tool.function %}
    {%- endif %}
    {{- '{"type": "function", "function": ' }}
    {{- '{"name": "' + tool.name + '", ' }}
    {{- '"description": "' + tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {{- param_name + ": " + json_to_python_type(param_fields) }}
        {%- if not loop.last %}
            {{- ", " }}
        {%- endif %}
    {%- endfor %}
    {{- ")" }}
    {{- '", "parameters": ' }}
    {%- if tool.parameters.properties | length == 0 %}
        {{- "{}" }}
    {%- else %}
        {{- tool.parameters|tojson }}
    {%- endif %}
    {{- "}" }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system" or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
    {%- for tool_call in message.tool_calls %}
       {{- '\n<tool_call>\n' }}           {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '{' }}
            {{- '"name": "' }}
            {{- tool_call.name }}
            {{- '"' }}
            {{- ', '}}
            {%- if tool_call.arguments is defined %}
                {{- '"arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments|tojson }}
                {%- endif %}
            {%- endif %}
             {{- '}' }}
            {{- '\n</tool_call>' }}
    {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
PIECES = [
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content|length %}{% endfor %}{{ ns.n }}",
    "  {% if true %}\n  a\n  {% endif %}\n  b {# c #}\n  d",
    "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %} {{ strftime is defined }}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
    "{{ messages[::-1][0].content }}|{{ messages[-1]['role'] }}|{{ messages[1:]|length }}|{{ 'abcdef'[1:-1] }}|{{ 'abc'[0] }}",
    "{{ [1, 2.5, 'a', none, true, {'k': [1]}] }} {{ {'a': \"it's\"} }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1 ~ 'x' ~ none }}",
    "{{ 'a,b,c'.split(',') | join('-') }} {{ ' x '.strip() }}. {{ 'Hello World'.upper() | lower | title }} {{ 'abc' | replace('b', 'x') }}",
    "{{ missing is defined }} {{ missing | default('d') }} {{ '' | default('e', true) }} {{ none is none }} {{ 3 is odd }} {{ messages is iterable }} {{ 'a' is string }}[{{ missing }}]",
    "{% for k, v in {'a': 1, 'b': [2, 3]}.items() %}{{ k }}={{ v }};{% endfor %}{{ {'a': 1} | tojson }} {{ 'x<y>&\"é' | tojson }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(5, 0, -2) | list }}",
    "{{ 1 if messages else 2 }}{{ 'x' if false }}{{ not 1 == 2 }}{{ 1 < 2 and 2 >= 2 or false }}{{ 'a' in 'abc' }}{{ 'z' not in ['a'] }}",
    "{%- set x = 'a' -%}  {{ x }}  {%- if x == 'a' %} yes {%- else %} no {% endif -%}  end\n",
    "{{ (messages | selectattr('role', 'equalto', 'system') | list | last).content if messages | selectattr('role', '==', 'system') | list else 'none' }}{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}{{ messages | selectattr('tool_calls') | list | length }}{{ messages | selectattr('tool_calls', 'defined') | map(attribute='role') | join(',') }}{{ tools | default([]) | map(attribute='function.name') | join }}",
    "{% macro turn(m, sign='#', n=0) -%}\n  {{ sign }}{{ m.content | trim }}{{ turn(m, n=n - 1) if n }}\n{%- endmacro %}\n{% for m in messages %}{{ turn(m, n=loop.index) }}{{ turn(m, '!') | replace('H', 'h') }}{% endfor %}",
    "{% for m in messages %}{% set text %}\n  {{ m.role }}: {{ m.content }}\n{% endset %}{% set a, b = loop.first, text | length %}{{ text | trim }}{{ a }}{{ b }}{% endfor %}{% set x | upper %}a{{ text }}{% endset %}{{ x }}",
    "{{ messages[0].content.startswith('H') }} {{ (messages | last).role }} {{ messages | first | length }} {{ messages[0].get('none', 'other') }}",
]
TEMPLATES = {
    "chatml": CHATML, "smollm2": SMOLLM2, "llama2": LLAMA2, "llama3": LLAMA3, "llama31": LLAMA31, "zephyr": ZEPHYR,
    "mistral": MISTRAL, "qwen3 coder": QWEN3_CODER, "hermes": HERMES,
} | {f"piece {i}": piece for i, piece in enumerate(PIECES)}  # fmt: skip


def chats():
    user = {"role": "user", "content": "  Hello there \n"}
    answer = {"role": "assistant", "content": "Hi! {{ not a tag }} caf\u00e9"}
    system = {"role": "system", "content": "Be brief."}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "int"}, "none": {}, "list": [1, 2], "properties": {"p": {"type": ["string", "number"]}, "q": {"type": "object", "additionalProperties": {"type": "integer"}}}}}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": "z"}}}]}
    for messages in ([user], [user, answer], [user, answer, user], [system, user], [system, user, answer, user], [answer], [user, user], [user, call]):
        for prompt in (True, False):
            yield {"messages": messages, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
    yield {"messages": [user], "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "tools": [tool]}


def reference(template, variables):
    """The text, or None where the template raises."""
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        return environment.from_string(template).render(**variables)
    except (jinja2.exceptions.TemplateError, TypeError):
        return None


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_give_the_text_of_jinja2(name, tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATES[name])
    command = [MOTET, "tokenize", "--chat-template", path]

    def rendered(*variables):
        lines = "".join(json.dumps(each) + "\n" for each in variables).encode()
        return subprocess.run(command, input=lines, capture_output=True, env=environment())

    pairs = [(variables, reference(TEMPLATES[name], variables)) for variables in chats()]
    good = [variables for variables, expected in pairs if expected is not None]
    done = rendered(*good)
    assert good and done.returncode == 0, done.stderr
    texts = [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]
    assert texts == [expected for _, expected in pairs if expected is not None]
    for variables, expected in pairs:
        if expected is None:
            done = rendered(variables)
            assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_numbers_are_printed_as_python_prints_them(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text("{{ x }} {{ [x] }} {{ x | tojson }}")
    numbers = [0.0001, 0.00012345678901234567, 0.0009, 1e-5, 9.999999999999999e-05, 0.0, -0.0, 0.1, -2.5, 100.0,
               0.1 + 0.2, 1e15, 9999999999999998.0, 1e16, 123456789012345680.0, 1e22, 1e300, 5e-324]  # fmt: skip
    lines = "".join(json.dumps({"x": number}) + "\n" for number in numbers).encode()
    done = subprocess.run([MOTET, "tokenize", "--chat-template", path], input=lines, capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr
    texts = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert texts == [f"{number} {[number]} {json.dumps(number)}" for number in numbers]


@pytest.mark.parametrize(
    "template, wanted",
    [
        ("{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}", "the statement 'call' is not supported"),
        ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "more than 1000 levels deep"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "more than a million steps"),
        ("{% include 'x' %}", "the statement 'include' is not supported"),
        ("{{ x | attr('y') }}", "the filter 'attr' is not supported"),
        ("{{ [{}] | selectattr('x', 'divisibleby', 3) | list }}", "the test 'divisibleby' is not supported"),
        ("{{ [1] | map('upper') | list }}", "the filter map is only supported as map(attribute=...)"),
        ("{{ x is divisibleby 3 }}", "the test 'divisibleby' is not supported"),
        ("{{ open('/etc/passwd') }}", "the function 'open' is not supported"),
        ("{{ ''.__class__ }}{{ ''.format(1) }}", "the method 'format' of a string is not supported"),
        ("{% if x %}", "line 1: 'endif' is missing"),
        ("a\n{{ x", "line 2: a tag that begins with {{ is not closed"),
        ("{% for i in range(1000000) %}{% for j in range(1000000) %}x{% endfor %}{% endfor %}", "more than a million steps"),
        ("{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x ~ x ~ x %}" * 20 + "{{ x }}", "more than 16 MB"),
    ],
)
def test_what_a_template_must_not_do_is_said(template, wanted, tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(template)
    done = subprocess.run([MOTET, "tokenize", "--chat-template", path], input=b"{}\n", capture_output=True, env=environment())
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1 and len(lines) == 1 and wanted in lines[0], done.stderr


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("templates"))


def test_a_template_of_a_model_gets_what_transformers_gives_it(small):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install tokenizers")
    template = "{% if tools is not none %}TOOLS{% endif %}{% if documents is not none %}DOCUMENTS{% endif %}"
    roles = [f"{role}_token" for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask")]
    template += "|".join(f"{{{{ {role} }}}}" for role in roles) + "|{{ other_token }}{{ messages[0].content }}"
    names = {role: f"<{role[:3]}>" for role in roles if role != "sep_token"}
    (small / "tokenizer_config.json").write_text(json.dumps(names))
    (small / "chat_template.jinja").write_text(template)
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **names)
    messages = [{"role": "user", "content": "Hello"}]
    expected = words.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert expected == "<bos>|<eos>|<unk>|<pad>||<cls>|<mas>|Hello"
    with serving(small, "-t", 1) as server:
        assert bytes(server.post("/tokenize", {"messages": messages})["tokens"]).decode() == expected


def test_what_is_marked_as_generated_is_written_as_transformers_writes_it(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install tokenizers")
    template = "{% for m in messages %}\n{% if m.role == 'assistant' %}\n  {% generation %}\n{{ m.content }}\n  {% endgeneration %}\n!{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": " b"}, {"role": "user", "content": "c"}]
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()))
    expected = words.apply_chat_template(messages, chat_template=template, tokenize=False)
    (tmp_path / "template.jinja").write_text(template)
    command = [MOTET, "tokenize", "--chat-template", tmp_path / "template.jinja"]
    done = subprocess.run(command, input=json.dumps({"messages": messages}).encode(), capture_output=True, env=environment())
    assert done.returncode == 0 and json.loads(done.stdout) == expected and " b" in expected


def test_a_missing_template_is_said(tmp_path):
    done = run("tokenize", "--chat-template", tmp_path / "none.jinja")
    assert done.returncode == 1 and "none.jinja" in done.stderr
