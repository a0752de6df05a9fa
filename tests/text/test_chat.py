"""A conversation becomes the text the peer makes of it; a hostile template becomes an error."""

import time
import tracemalloc
from pathlib import Path

import pytest
from tests.text.published import open_with_peer, write, write_bytes

from qkv.errors import DataError
from qkv.text import SpecialTokens, Tokenizer, read_tokenizer
from qkv.text.chat_template import render

CHATML = """\
{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}"""
LLAMA3 = """\
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{{- bos_token }}
{%- set loop_messages = messages %}
{%- for message in loop_messages %}
    {%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' \
+ message['content'] | trim + '<|eot_id|>' %}
    {{- content }}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson(indent=4) }}{% endif %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
INSTRUCT = """\
{% if messages[0]['role'] == 'system' %}
  {%- set system = '<<SYS>>\\n' + messages[0]['content'].strip() + '\\n<</SYS>>\\n\\n' %}
  {%- set messages = messages[1:] %}
{% else %}
  {%- set system = '' %}
{% endif %}
{%- set ns = namespace(turns=0, seen=[]) %}
{%- for message in messages %}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif %}
  {%- if message.role == 'user' %}
    {{- bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ message.content ~ ' [/INST]' }}
  {%- elif message.role == 'assistant' %}
    {% generation %}{{- ' ' ~ message['content'] | trim ~ ' ' ~ eos_token }}{% endgeneration %}
    {%- set ns.turns = ns.turns + 1 %}
  {%- else %}
    {%- continue %}
  {%- endif %}
{%- endfor %}
{{- '' if ns.turns < 1 else '{%s}' % ns.turns }}"""
FILTERS = """\
{{- messages | map(attribute='role') | join(', ') | upper }}
{{- messages | selectattr('role', 'equalto', 'user') | list | length }}
{{- messages | tojson }}{{ messages[-1] | tojson(indent=2) }}{{ messages | length }}
{{- messages[0].content.replace('e', 'E').split(' ')[0] }}
{{- messages[0].content | replace('i', '1') }}
{{- nothing }}{{ nothing | default('none') }}{{ bos_token if bos_token is defined }}
{%- macro turn(m, i=0) %}{{ i }}:{{ m.role | capitalize }}={{ m['content'][:3] }};{% endmacro %}
{%- for m in messages %}{{ turn(m, loop.index) }}{% if loop.last %}.{% endif %}{% endfor %}
{%- for k, v in messages[0].items() %}{{ k }}{{ v is string }}{% endfor %}
{%- for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
{%- for x in [] %}{% else %}empty{% endfor %}{{ '%s-%03d' % ('a', 7) }}{{ '{:>4}'.format(3) }}
{{- "a<b>&'" }}{{ 'x' * 3 }}{{ [1, 2] + [3] }}{{ {'a': 1.5} }}{{ none }}{{ true }}{{ 7 // 2 }}
"""
TEMPLATES = {"chatml": CHATML, "llama 3": LLAMA3, "instruct": INSTRUCT, "filters": FILTERS}
CONVERSATIONS = [
    [{"role": "user", "content": "Hi there"}],
    [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi?"}],
    [
        {"role": "user", "content": "é 日本 👩‍👩‍👧 </s> <|im_end|> {{ 7 * 7 }} {% if %}"},
        {"role": "assistant", "content": "  <b> & 'quoted' \"text\"\n\n"},
        {"role": "user", "content": ""},
    ],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>"]
    options = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": None}
    place = tmp_path_factory.mktemp("chat")
    return write_bytes(place, special, tokenizer_class="GPT2Tokenizer", **options)


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_the_peer(
    place: Path, name: str, conversation: list[dict[str, str]], prompt: bool
) -> None:
    write(place, chat_template_jinja=TEMPLATES[name])
    ours, theirs = read_tokenizer(place), open_with_peer(place, "GPT2Tokenizer")
    expected = theirs.apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=prompt
    )
    assert ours.apply_chat_template(conversation, add_generation_prompt=prompt) == expected
    ids = theirs.apply_chat_template(conversation, add_generation_prompt=prompt, return_dict=False)
    assert ours.encode(expected, parse_special=True) == ids


def test_a_file_of_its_own_comes_first_and_default_among_named_ones(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    place = write_bytes(tmp_path, ["<|endoftext|>"], chat_template=named)
    assert read_tokenizer(place).apply_chat_template([]) == "plain"
    assert (
        read_tokenizer(write(place, chat_template_jinja="file")).apply_chat_template([]) == "file"
    )


def test_the_template_is_kept_with_the_marks(place: Path, tmp_path: Path) -> None:
    write(place, chat_template_jinja=LLAMA3)
    before = read_tokenizer(place)
    before.save(tmp_path / "tokenizer.json")
    after = Tokenizer.load(tmp_path / "tokenizer.json")
    assert after.apply_chat_template(CONVERSATIONS[0]) == before.apply_chat_template(
        CONVERSATIONS[0]
    )
    assert after.apply_chat_template(CONVERSATIONS[0]).startswith("<s><|start_header_id|>user")


def test_without_names_a_template_knows_the_marks() -> None:
    marks = SpecialTokens(
        None, None, "<start>", "<end>", None, chat_template="{{ bos_token }}{{ eos_token }}"
    )
    own = Tokenizer.train("bytes", ["a"], 300)
    assert Tokenizer(own._backend, marks).apply_chat_template([]) == "<start><end>"


def told(template: str, messages: object = ({"role": "user", "content": "hi"},)) -> str:
    with pytest.raises(DataError) as caught:
        render(template, messages, True, {"bos_token": "<s>"})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def test_a_tokenizer_without_a_template_says_so() -> None:
    with pytest.raises(DataError, match="no chat template"):
        Tokenizer.train("bytes", ["a"], 300).apply_chat_template([])


def test_what_a_template_refuses_is_said_in_its_words() -> None:
    assert told("{{ raise_exception('roles must\nalternate') }}").endswith("roles must alternate")
    assert "alternate" in told(INSTRUCT, [{"role": "assistant", "content": "x"}])


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}", "{{ 1 / 0 }}", "{{ missing.field }}", "{{ missing() }}",
        "{{ messages[9].role }}",
        "{% endfor %}", "{{ 'a' | nofilter }}", "{{ 'a' + 1 }}", "{% include 'x' %}", "{% break %}",
        "{% extends 'x' %}", "{% import 'os' as os %}", "{{ messages | attr }}", "{{ 1 | join }}",
    ],
)  # fmt: skip
def test_a_template_with_mistakes_is_told_in_one_line(template: str) -> None:
    assert "template" in told(template)


@pytest.mark.parametrize("messages", [[7], ["hi"], [{"content": {1, 2}}], [{"content": b"x"}]])
def test_messages_that_are_none_are_told(messages: object) -> None:
    assert "messages must be mappings" in told("{{ messages }}", messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('touch /tmp/ran') }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{{ strftime_now.__globals__['__builtins__'] }}",
        "{{ (messages | attr('__class__')).mro() }}",
        "{{ '{0.__class__.__mro__}'.format(1).x.y }}",
        "{{ self._TemplateReference__context.environment.loader.x }}",
        "{{ dict.__class__.__base__ }}",
        "{{ joiner.__init__.__func__ }}",
        "{% set namespace.__init__ = 1 %}",
        "{{ namespace(__class__=1) }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ lipsum.__globals__ }}",
        "{{ range.__class__.x.y }}",
        "{{ environment.call }}",
    ],
)
def test_no_template_gets_at_python(template: str) -> None:
    told(template)


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**12) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
        "{{ 'a' * 10**10 }}",
        "{{ [0] * 10**10 }}",
        "{{ 9 ** 9999999 }}",
        "{% set a = 10**1000 %}{% set b = a**1000 %}{% set c = b**40 %}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x**2 %}{% endfor %}",
        "{% set x = 'f' * 9000000 %}{% set a = x | int(base=16) %}{{ a // (a - 1) }}",
        "{{ (10**1000) ** 1000 == 1 }}",
        "{{ ('f' * 200000) | int(base=16) is divisibleby(3) }}",
        "{{ 0x" + "f" * 200_000 + " is divisibleby(3) }}",
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
        "{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
        "{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=['aa']) %}{% for i in range(99) %}"
        "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=['aa']) %}{% for i in range(99) %}"
        "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a'.zfill(10**10) }}",
        "{{ '\t'.expandtabs(10**10) }}",
        "{{ 'a' | center(10**10) }}",
        "{{ 'a' | indent(10**10) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10**10, 1) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10**10) }}",
        "{{ (5).to_bytes(10**10) }}",
        "{{ messages | tojson(indent=10**9) }}",
        "{{ messages | tojson(separators=('a' * 10**9, ':')) }}",
        "{% set x = 'a' * 10**6 %}{{ x.replace('a', x) }}",
        "{% set x = 'a' * 10**6 %}{{ x | replace('a', x) }}",
        "{% set x = 'a' * 10**6 %}{{ ''.join([x] * 10000) }}",
        "{% set x = 'a' * 10**6 %}{{ ([x] * 10000) | join }}",
        "{% set x = 'a' * 10**6 %}{{ ([x] * 10000) | map('string') | join }}",
        "{% set x = 'a' * 10**6 %}{{ ('{0}' * 1000).format(x) }}",
        "{{ range(99999) | list | map('string') | join('a' * 99999) }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "a" * 1_000_001,
    ],
)  # fmt: skip
def test_no_template_takes_much_time_or_memory(template: str) -> None:
    tracemalloc.start()
    start = time.perf_counter()
    told(template)
    taken = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 15
    assert peak < 300_000_000


def test_numbers_as_templates_use_them_are_no_attack() -> None:
    template = "{{ 2**31 - 1 }} {{ 10**100 // 10**98 }} {{ -7 % 3 }} {{ 2**-1 }} {{ 7 / 2 }}"
    assert render(template, [], True, {}) == "2147483647 100 2 0.5 3.5"


def test_half_a_character_in_what_a_template_says_can_be_printed() -> None:
    assert told(r"{{ raise_exception('no \ud800\x1b') }}").endswith(r"no \ud800\x1b")


def test_a_long_conversation_is_no_attack() -> None:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": "word " * 200} for i in range(1001)
    ]
    assert len(render(CHATML, messages, True, {})) > 1_000_000
    assert len(render(INSTRUCT, messages, True, {"bos_token": "<s>", "eos_token": "</s>"})) > 1e6
