"""Takes the pictures of HTML reports and of the live screen in docs/images, in a headless Chromium.

`python docs/generator/screenshots.py` writes each report light and dark, 1200 and 400 px wide, to docs/images, the upper part of long
ones; `--whole DIR` writes whole pages to DIR.
It ends with status 1 where a page asks for anything outside of itself, says something on its console or is wider than its window.
Needs Chromium (or `CHROMIUM=/path`) and what `make .venv/.developing` installs.
"""

import argparse
import asyncio
import io
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from nccl_doctor.watch.app import Watch
from nccl_doctor.watch.sources.demo import Demo
from nccl_doctor.watch.sources.playing import IdleSource

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
TALLEST = 1500  # pixels of a kept picture
DEMO = 150  # seconds of the invented job that the live screen has seen
TAB = "1"  # key of the tab that is shown


class Report(NamedTuple):
    """One input: a fixture, or the arguments of `simulate`."""

    name: str
    fixture: str = ""
    simulated: tuple[str, ...] = ()


REPORTS = (
    Report("hang", "job/xid-hang"),
    Report("tcp-fallback", simulated=("--nodes", "4", "--fault", "tcp-fallback")),
    Report("healthy", simulated=("--nodes", "4")),
    Report("slow-rank", "timeline/slow_rank2_4r.json"),
    Report("starved-input", "job/input-starved"),
    Report("pairs", simulated=("--pairs", "14", "--nodes", "8", "--fault", "slow-node")),
    Report("ranks-1024", simulated=("--nodes", "128", "--fault", "missing-rank-in-collective")),
    Report("job-folder", simulated=("--split", "--nodes", "2", "--fault", "xid-79-off-bus")),
)
SCHEMES, WIDTHS = ("light", "dark"), (1200, 400)


def chromium() -> str | None:
    """The browser of this machine."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def write_report(report: Report, folder: Path) -> Path:
    """The HTML report of an input, which it names without the folders of this machine."""
    command = [sys.executable, "-m", "nccl_doctor"]
    source = Path(Path(report.fixture).name or report.name)
    if report.simulated:
        subprocess.run([*command, "simulate", *report.simulated, "-o", source], cwd=folder, check=True)
    elif (ROOT / "fixtures" / report.fixture).is_dir():
        shutil.copytree(ROOT / "fixtures" / report.fixture, folder / source)
    else:
        shutil.copy(ROOT / "fixtures" / report.fixture, folder / source)
    page = folder / f"{report.name}.html"
    done = subprocess.run([*command, "analyze", source, "-o", page], cwd=folder, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"analyze {report.name} ended with status {done.returncode}")
    return page


def pictures(browser: Browser, page: Path, scheme: str, width: int, problems: list[str]) -> bytes:
    """The whole page as PNG; what it does beside being shown is a problem."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    shown = context.new_page()
    shown.on(
        "request",
        lambda request: request.url == page.as_uri() or problems.append(f"{page.name} asks for {request.url}"),
    )
    shown.on("console", lambda message: problems.append(f"{page.name} says {message.text}"))
    shown.on("dialog", lambda dialog: problems.append(f"{page.name} opens {dialog.message}"))
    shown.goto(page.as_uri())
    wide = shown.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        problems.append(f"{page.name} is {wide} px wide in a window of {width} px")
    taken = shown.screenshot(full_page=True)
    context.close()
    return taken


def live_screen() -> str:
    """The first tab of `watch --demo`, as SVG."""
    app = Watch(lambda _: IdleSource(), interval=60.0, title="demo", invented=True)
    invented = Demo()
    for _ in range(DEMO):
        for record in invented.step():
            app.add_record(record)

    async def run() -> str:
        async with app.run_test(size=(120, 35)) as pilot:
            app.diagnose_now()
            await pilot.press(TAB)
            await pilot.pause()
            return app.export_screenshot()

    return asyncio.run(run())


def terminal(browser: Browser, svg: str) -> bytes:
    """An SVG of a terminal as PNG, with the fonts of this machine."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000}, offline=True)
    shown = context.new_page()
    shown.set_content(
        f"<style>body {{ margin: 0 }} text {{ font-family: DejaVu Sans Mono, monospace !important }}</style>{svg}"
    )
    taken = shown.locator("svg").screenshot()
    context.close()
    return taken


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--whole", type=Path, metavar="DIR")
    options.add_argument("--only", choices=[report.name for report in REPORTS])
    given = options.parse_args()
    folder: Path | None = given.whole
    problems: list[str] = []
    screen = live_screen()
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        pages = [write_report(report, Path(made)) for report in REPORTS if given.only in (None, report.name)]
        for page in pages:
            for scheme, width in product(SCHEMES, WIDTHS):
                taken = pictures(browser, page, scheme, width, problems)
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"{page.stem}-{scheme}-{width}.png").write_bytes(taken)
                else:
                    _keep(taken, IMAGES / f"{page.stem}-{scheme}-{width}.webp")
        if given.only is None:
            _keep(terminal(browser, screen), (folder or IMAGES) / "watch.webp")
        browser.close()
    print(*problems, sep="\n")
    return int(bool(problems))


def _keep(taken: bytes, path: Path) -> None:
    """The upper part of a picture, small enough for a repository."""
    path.parent.mkdir(exist_ok=True)
    image = Image.open(io.BytesIO(taken)).convert("RGB")
    image.crop((0, 0, image.width, min(image.height, TALLEST))).save(path, "WEBP", quality=70, method=6)


if __name__ == "__main__":
    sys.exit(main())
