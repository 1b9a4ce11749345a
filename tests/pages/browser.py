"""A headless Chromium: the one on this machine, or the pinned one of ``toolchain/browser``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from millrace.sandbox.programs.toolchain import (
    ROOT,
    ToolchainError,
    node_bin_folder,
    npm_command,
    program_variables,
    state_folder,
)

FOLDER = state_folder() / "browser"
AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"

_PACKED = FOLDER / "node_modules" / "@sparticuz" / "chromium" / "bin"
_OPENED = FOLDER / "chromium"
_OWN = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{}</dir><dir>/usr/share/fonts</dir><cachedir>{}</cachedir></fontconfig>
"""
"""The package's own names folders that only its usual machine has; without a font no text has a width."""

_UNPACK = """
const fs = require('node:fs'), zlib = require('node:zlib');
const {pipeline} = require('node:stream/promises');
const [from, to] = process.argv.slice(1);
pipeline(fs.createReadStream(from), zlib.createBrotliDecompress(), fs.createWriteStream(to));
"""


def find() -> tuple[Path, dict[str, str]]:
    """Return a Chromium and the environment variables that it wants.

    Raises
    ------
    ToolchainError
        There is none; says the command that fetches one.
    """
    if not AXE.is_file():
        raise ToolchainError("no axe-core here: `python -m tests.pages --fetch` fetches it, and a Chromium")
    own = next((result for name in _OWN if (result := shutil.which(name))), None)
    if own is not None:
        return Path(own), {}
    if not _PACKED.is_dir():
        raise ToolchainError(
            "no Chromium on this machine: `python -m tests.pages --fetch` fetches a pinned one"
        )
    program = _OPENED / "chromium"
    if not program.exists():
        _unpack()
    (_OPENED / "fonts.conf").write_text(_FONTS.format(_OPENED / "fonts", _OPENED / "font-cache"))
    wanted = {"FONTCONFIG_FILE": str(_OPENED / "fonts.conf")}
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if "not found" in linked:  # the package brings the libraries that slim machines lack
        before = os.environ.get("LD_LIBRARY_PATH")
        libraries = str(_OPENED / "libraries" / "lib")
        wanted["LD_LIBRARY_PATH"] = f"{libraries}:{before}" if before else libraries
    return program, wanted


def fetch() -> None:
    """Install what the lock file of ``toolchain/browser`` names, each package held against its checksum."""
    lock = ROOT / "toolchain" / "browser" / "package-lock.json"
    if (
        (FOLDER / lock.name).is_file()
        and (FOLDER / lock.name).read_bytes() == lock.read_bytes()
        and AXE.is_file()
    ):
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in ("package.json", lock.name):
        shutil.copy(lock.with_name(name), FOLDER / name)
    quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
    subprocess.run(
        [*npm_command(), "ci", "--prefix", str(FOLDER), *quiet], check=True, env=program_variables()
    )


def _unpack() -> None:
    """Open the package's archives; the program goes last, as it tells that all is there."""
    for name, folder in (("al2023.tar", "libraries"), ("fonts.tar", "fonts")):
        archive = _OPENED / name
        archive.parent.mkdir(parents=True, exist_ok=True)
        _brotli(_PACKED / f"{name}.br", archive)
        with tarfile.open(archive) as opened:
            opened.extractall(_OPENED / folder, filter="data")
        archive.unlink()
    half = _OPENED / "chromium.half"
    _brotli(_PACKED / "chromium.br", half)
    half.chmod(0o755)
    half.replace(_OPENED / "chromium")


def _brotli(packed: Path, to: Path) -> None:
    subprocess.run([node_bin_folder() / "node", "-e", _UNPACK, packed, to], check=True)


@contextmanager
def running() -> Iterator[Browser]:
    """Start the browser and end it."""
    program, wanted = find()
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program,
            args=["--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"],
            env={**os.environ, **wanted},
        )
        try:
            yield browser
        finally:
            browser.close()
