"""HTML reports in a real browser: nothing leaves the page, a hostile log does nothing in it, and no width overflows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.places import FIXTURES

from nccl_doctor.app.analyze import analyze
from nccl_doctor.reporters import render

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
screenshots = pytest.importorskip("screenshots")
if screenshots.chromium() is None:
    pytest.skip("no Chromium on this machine", allow_module_level=True)

EVIL = (
    '<img src="https://evil.example/x.png" onerror="document.title=1"><script>document.title="run"</script>'
    '</style><style>@import "https://evil.example/x.css";</style><a href="javascript:document.title=2">x</a>'
    '<svg onload="document.title=3"><iframe src="https://evil.example"></iframe><meta http-equiv="refresh" content="0;https://evil.example">'
)
LOG = f"""
node01:101:140 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.4<0>
node01:101:140 [0] misc/ibvwrap.cc:300 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory {EVIL}
{EVIL} RuntimeError: {EVIL}
NVRM: Xid (PCI:0000:3b:00): 79, {EVIL}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=screenshots.chromium(), args=["--no-sandbox"])
        yield started
        started.close()


def page_of(path: Path, folder: Path) -> Path:
    written = folder / "report.html"
    written.write_text(render("html", analyze([str(path)], drawn=True)[0]), "utf-8")
    return written


def test_what_a_page_asks_for_is_noticed(browser: object, tmp_path: Path) -> None:
    problems: list[str] = []
    page = tmp_path / "page.html"
    page.write_text('<p style="width: 900px"><img src="https://evil.example/x.png"><script>console.log("ran")</script>')
    screenshots.pictures(browser, page, "light", 400, problems)
    assert {"page.html asks for https://evil.example/x.png", "page.html says ran"} <= set(problems)
    assert any("px wide in a window of 400 px" in one for one in problems)


@pytest.mark.parametrize("name", ["hostile", "job/xid-hang"])
@pytest.mark.parametrize("width", [1200, 400])
def test_a_report_asks_for_nothing_runs_nothing_and_fits(
    name: str, width: int, browser: object, tmp_path: Path
) -> None:
    source = FIXTURES / name
    if name == "hostile":
        source = tmp_path / "<img src=x onerror=alert(1)>.log"
        source.write_text(LOG)
    problems: list[str] = []
    page = page_of(source, tmp_path)
    title = page.read_text("utf-8").partition("<title>")[2].partition("</title>")[0]
    assert screenshots.pictures(browser, page, "dark", width, problems)
    assert [] == problems
    assert "evil.example" not in title
    context = browser.new_context(java_script_enabled=True)  # type: ignore[attr-defined]
    opened = context.new_page()
    opened.goto(page.as_uri())
    for fold in opened.query_selector_all("details"):
        fold.evaluate("one => one.open = true")
    assert opened.title().strip() == title.strip()
    assert [] == opened.query_selector_all("script, iframe, img, [onerror], [onload], a[href^='javascript']")
    context.close()
