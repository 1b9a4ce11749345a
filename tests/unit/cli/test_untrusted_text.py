"""Control characters in names, logs and records are inert in terminal, pipe, JSON and page."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millrace.cli.shared import console
from millrace.cli.shared.html_pages import html_page
from millrace.config import ConfigurationError
from millrace.config.document.problems import TABLE, Problem, escape_invisible
from millrace.lifecycle.deploy import DeployError
from millrace.sandbox.programs import cdk
from tests.page_without_browser import drawn
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import history

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EVIL = "e\x1b[2J\x1b]0;owned\x07\x9b31m\u202ea\u2066b\u2028c\u2029d\u200be\ufefff\x7fg\x00h\x85i\u061cj\rk\U000e0041l"
BARE = [chr(code) for code in TABLE if not 0xD800 <= code <= 0xDFFF]


def bare(text: str) -> set[str]:
    return {each for each in text if ord(each) in TABLE}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    made = history(count=4)
    made = replace(made, name=EVIL, queries=tuple(replace(each, name=EVIL) for each in made.queries))
    return write(made, tmp_path_factory.mktemp("evil") / "local-1")


def in_a_pipe(*arguments: str, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "millrace", *arguments],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **more},
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def in_a_terminal(*arguments: str) -> str:
    """All that reaches a terminal of 200 columns."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "millrace", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm-256color"},
    ) as running:
        os.close(follower)
        result = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            result += piece
        os.close(leader)
        running.wait()
    return result.decode()


def test_a_report_in_a_pipe(log):
    status, out, err = in_a_pipe("advise", str(log))
    assert status == 0
    assert not bare(out + err)
    assert "e\\x1b[2J\\x1b]0;owned\\x07\\u009b31m\\u202ea" in out


def test_a_report_in_a_terminal(log):
    import re

    shown = in_a_terminal("advise", str(log))
    # What Rich adds itself: colours and styles, and the terminal's own line ends.
    own = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")
    assert not bare(own)
    assert "owned" in own
    assert "\x1b[2J" not in shown
    assert "\x1b[" in in_a_terminal("plan", "--env", "minimal")  # its own styles are there


def test_json_is_the_same_json(log):
    status, out, err = in_a_pipe("advise", str(log), "--json")
    assert status == 0
    assert not bare(out + err)
    assert json.loads(out)["application"]["name"] == EVIL


def test_a_page_shows_them_and_obeys_nothing(log, tmp_path):
    page = tmp_path / "advice.html"
    in_a_pipe("advise", str(log), "--html", str(page))
    text = page.read_text(encoding="utf-8")
    shown = drawn(text)
    assert not bare(text + shown)
    assert "owned" in shown
    assert "Content-Security-Policy\" content=\"default-src 'none';" in text


def nasty(value: object, bad: str) -> object:
    """A document whose texts and names are all of them one that is bad; words that the page looks up stay."""
    if isinstance(value, dict):
        kept = ("severity", "state", "kind", "begin", "end", "key", "started", "version")
        return {key: each if key in kept else nasty(each, bad) for key, each in value.items()}
    if isinstance(value, list):
        return [nasty(each, bad) for each in value]
    return bad if isinstance(value, str) else value


def test_no_name_becomes_a_tag_of_a_page():
    bad = "\"'><script>alert(1)</script></title>`<img src=x onerror=alert(1)>`"
    status, out, _ = in_a_pipe("plan", "--env", "prod", "--json")
    assert status == 0
    page = html_page("plan", bad, nasty(json.loads(out), bad))  # type: ignore[arg-type]
    for text in (page, drawn(page)):
        assert "<img" not in text
        assert text.count("<script") == (2 if text is page else 0), "the data, and the page's own"
        assert "</title>`" not in text


@pytest.mark.parametrize("where", [in_a_pipe, in_a_terminal])
def test_mistakes_tell_what_stands_there_visibly(where, tmp_path):
    file = tmp_path / "evil.yaml"
    file.write_text('project: "e\\e[2J\\u202ef"\n"k\\e]0;owned\\a": 1\n', encoding="utf-8")
    for arguments in (
        ("plan", "--env", str(file)),
        ("advise", "/none\x1b[2J\u202e"),
        ("plan", "--env", "x\x1b[2J"),
        ("advise", "--none\x1b[2J"),
        ("verb\x1b]0;x\x07",),
    ):
        result = where(*arguments)
        text = result if isinstance(result, str) else result[1] + result[2]
        assert "\x1b[2J" not in text
        assert "\x1b]" not in text
        assert "\u202e" not in text
        assert "\\x1b" in text


def test_an_ascii_terminal_is_no_way_round(log):
    _, out, _ = in_a_pipe("advise", str(log), PYTHONIOENCODING="ascii:backslashreplace", PYTHONUTF8="0")
    assert not bare(out)
    assert "owned" in out


def test_colours_that_are_asked_for_in_a_pipe_are_kept():
    _, out, _ = in_a_pipe("--help", GITHUB_ACTIONS="true")
    assert "\\x1b" not in out


@given(some.text(alphabet=some.one_of(some.characters(), some.sampled_from(BARE))))
def test_json_stays_the_same_document(text):
    for ascii_only in (True, False):
        assert json.loads(escape_invisible(json.dumps({text: text}, ensure_ascii=ascii_only))) == {text: text}


@given(some.text(alphabet=some.one_of(some.characters(), some.sampled_from(BARE))))
def test_nothing_bare_is_left(text):
    assert not bare(escape_invisible(text))
    stream = console._EscapingStream(io.StringIO())
    stream.write(text)
    stream.writelines([text])
    assert stream.rich_proxied_file.getvalue() == escape_invisible(text) * 2
    assert not bare(str(ConfigurationError([Problem(text, 1, text, text, text)])))


def test_what_another_program_prints_is_made_visible(monkeypatch, capsys):
    program = f"import sys; sys.stdout.write({EVIL!r} + '\\n'); sys.stderr.write('wrong'); sys.exit(3)"
    monkeypatch.setattr(cdk, "find_program", lambda *_: sys.executable)
    with console.invisible_output_escaped(), pytest.raises(DeployError, match=r"status 3\nwrong$"):
        cdk.run_cdk(["-c", program], os.environ, shown=True)
    assert not bare(capsys.readouterr().err)


def test_no_verb_writes_past_the_place_where_texts_are_made_visible():
    """Neither file descriptors nor the streams behind ``sys.stdout``; children do not inherit them."""
    for file in (ROOT / "millrace").rglob("*.py"):
        if file.name == "console.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("__stdout__", "__stderr__"), file
                if node.attr in ("buffer", "fileno"):
                    assert not (
                        isinstance(node.value, ast.Attribute) and node.value.attr in ("stdout", "stderr")
                    ), file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                named = f"{getattr(node.func.value, 'id', '')}.{node.func.attr}"
                if named in ("subprocess.run", "subprocess.Popen"):
                    given_ = {each.arg for each in node.keywords}
                    assert given_ & {"capture_output", "stdout", None}, (file, node.lineno)
